//! The devices that validation runs on, with one trait for both executors.

use super::cases::Case;
use super::check::{Clock, Run};
use super::digest::CodeDigest;
use super::operands::Operands;
use crate::peaks::Peaks;
use hipvit::error::Result;
use hipvit::tensor::DType;

/// A device with its executor.
pub(super) trait Backend {
    /// Returns the device in the syntax of `--device`.
    fn device(&self) -> String;

    /// Returns the name of the device.
    fn name(&self) -> String;

    /// Returns the dtypes that the device computes in.
    fn dtypes(&self) -> &'static [DType];

    /// Returns the dtype of activations in memory if the device computes in `dtype`.
    fn activations(&self, dtype: DType) -> DType {
        dtype
    }

    /// Returns the reason if the device does not support the case.
    fn lacks(&self, case: &Case, dtype: DType) -> Option<&'static str>;

    /// Returns the free memory of the device. `None` if it uses the host's.
    fn free_memory(&self) -> Result<Option<usize>>;

    /// Measures the rates of a large copy and of a large GEMM.
    fn peaks(&self, dtypes: &[DType]) -> Peaks;

    /// Runs the case once, then repeatedly as `clock` requests.
    fn run(&self, case: &Case, operands: &Operands, dtype: DType, clock: Option<Clock<'_>>) -> Result<Run>;

    /// Returns hipvit's code objects that the runs have loaded so far.
    fn code(&self) -> Vec<CodeDigest> {
        Vec::new()
    }
}
