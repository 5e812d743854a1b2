//! The trait that each op implements for the CPU.

use hipvit_graph::op::OpError;

use super::constants::Form;
use super::operands::Operands;
use hipvit_graph::tensor::DType;

/// An op that the CPU computes.
pub(crate) trait CpuOp {
    /// Checks that there is a kernel, before anything runs.
    ///
    /// # Errors
    ///
    /// [`OpError`] if there is none.
    fn check(&self) -> Result<(), OpError> {
        Ok(())
    }

    /// Computes the results from operands in memory.
    ///
    /// # Errors
    ///
    /// [`OpError`] if the operands do not fit the kernel.
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError>;

    /// Returns the form of the constant operand `index` if the CPU computes in `dtype`.
    fn constant_form(&self, _index: usize, _dtype: DType) -> Form {
        Form::Values
    }
}
