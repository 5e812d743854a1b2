//! The reference implementation: every op as plain loops in double precision, and tolerances of results. Executors are checked against it,
//! and constant folding uses it.

mod compare;
mod layer_norm;
#[cfg(test)]
mod tests;

pub use self::compare::{Difference, Mismatch, assert_close, check_close};
pub use self::layer_norm::layer_norm_tolerance;
pub use crate::array::{Array, Real};
use crate::dtype::DType;
use crate::op::{Op, OpError};
pub use crate::softmax::masked_softmax;
pub use crate::tolerance::{
    cancellation, fused_attention_tolerance, model_tolerance, narrow, rounded, tolerance,
};

/// Computes the first result of `op`.
///
/// # Errors
///
/// [`OpError`] if the op rejects operands of these shapes.
pub fn eval<T: Real>(op: &Op, operands: &[&Array<T>]) -> Result<Array<T>, OpError> {
    let mut results = op.eval(operands)?;
    Ok(results.swap_remove(0))
}

/// Tolerance of the first result of `op` for these operands, whose elements are in `dtype` (except for pixels).
pub fn op_tolerance(op: &Op, operands: &[&Array], dtype: DType) -> f64 {
    op.tolerance(0, operands, dtype)
}
