//! The devices that validation runs on: either executor behind one trait.

use super::cases::Case;
use super::check::{Clock, Run};
use super::digest::CodeDigest;
use super::operands::Operands;
use crate::peaks::Peaks;
use hipvit::error::Result;
use hipvit::tensor::DType;

/// A device with its executor.
pub(super) trait Backend {
    /// As `--device` takes it.
    fn device(&self) -> String;

    /// The device's name.
    fn name(&self) -> String;

    /// The dtypes that it computes in.
    fn dtypes(&self) -> &'static [DType];

    /// What activations are in, in memory, where it computes in `dtype`.
    fn activations(&self, dtype: DType) -> DType {
        dtype
    }

    /// Why this is never computed here, if it is not.
    fn lacks(&self, case: &Case, dtype: DType) -> Option<&'static str>;

    /// The device's memory that is free, where it is not the host's.
    fn free_memory(&self) -> Result<Option<usize>>;

    /// The rates of a large copy and of a large GEMM.
    fn peaks(&self, dtypes: &[DType]) -> Peaks;

    /// Runs the case; then again and again, as the clock asks for.
    fn run(&self, case: &Case, operands: &Operands, dtype: DType, clock: Option<Clock<'_>>) -> Result<Run>;

    /// The code of the crate's own that its runs have loaded so far.
    fn code(&self) -> Vec<CodeDigest> {
        Vec::new()
    }
}
