//! Tolerance of the kernel layer_norm.

use crate::array::Array;
use crate::dtype::DType;
use crate::op::{Definition, LayerNorm};
use crate::tolerance::{mean_and_deviation, unit_roundoff};

/// Returns the tolerance of the kernel layer_norm with operands `(x, weight, bias)` and result `y`. It is at most that of the op, and
/// `u·|y| + u₃₂·(24·max|x|/σ·|weight| + 4·|bias|)` per element.
///
/// The sums of a row have parts of at most 32 terms and a tree: about 16 roundings of the largest |x|, which are then divided by the
/// deviation σ. With `reread`, the kernel reads x again after it was rounded to the dtype.
pub fn layer_norm_tolerance(
    operands: [&Array; 3],
    y: &Array,
    epsilon: f32,
    dtype: DType,
    reread: bool,
) -> f64 {
    let [x, weight, bias] = operands;
    let largest = |values: &[f64]| values.iter().fold(0f64, |m, v| m.max(v.abs()));
    let reach = x.values().chunks(weight.values().len().max(1)).map(|row| {
        let (_, deviation) = mean_and_deviation(row, epsilon);
        largest(row) / deviation
    });
    let reach = reach.fold(0.0, f64::max) * largest(weight.values());
    let (u, single) = (unit_roundoff(dtype), unit_roundoff(DType::F32));
    let rereading = if reread { u * reach } else { 0.0 };
    let errors = rereading + single * (24.0 * reach + 4.0 * largest(bias.values()));
    let bound = u + errors / largest(y.values()).max(f64::MIN_POSITIVE);
    let of_op = LayerNorm { epsilon }.tolerance(0, &operands, dtype);
    if reread { bound } else { bound.min(of_op) }
}
