//! Shape rule, dtypes, tolerance and cases that the optimisers share. Their operands are the weight, its gradient, the states, and scalars.

use std::fmt;

use super::operands::{exactly, expect};
use super::{OpError, Shape};
use crate::cases::{Operand, positive, single};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// Formats the factor of the learning rate, and whether the rounded weight is a result.
pub(super) fn fmt(f: &mut fmt::Formatter<'_>, rate_factor: f32, rounded: bool) -> fmt::Result {
    if rate_factor != 1.0 {
        write!(f, " ×{rate_factor}")?;
    }
    f.write_str(if rounded { "+rounded" } else { "" })
}

/// Returns the dtype of operand `index`. `f32_gradient`: the gradient is in f32 in plans of any dtype.
pub(super) fn operand_dtype(index: usize, f32_gradient: bool, dtype: DType) -> DType {
    if index == 1 && !f32_gradient {
        dtype
    } else {
        DType::F32
    }
}

/// Returns the dtype of result `index`. The rounded weight follows the weight and the `states` states.
pub(super) fn result_dtype(index: usize, states: usize, dtype: DType) -> DType {
    if index > states { dtype } else { DType::F32 }
}

/// Returns the tolerance of result `index`: some 20 roundings in f32 at most, of terms that may cancel.
pub(super) fn tolerance_of(index: usize, states: usize, dtype: DType) -> f64 {
    let rounding = if index > states { narrow(dtype) } else { 0.0 };
    rounding + 8.0 * tolerance(DType::F32, 1)
}

/// Returns the shapes of the results for the operands `(weight, gradient, momentum, rate, factor)`.
pub(super) fn shapes_with_momentum(operands: &[&[usize]], rounded: bool) -> Result<Vec<Shape>, OpError> {
    let [weight, gradient, momentum, rate, factor] = exactly(operands)?;
    expect("gradient", gradient, weight)?;
    expect("momentum", momentum, weight)?;
    expect("rate", rate, &[1])?;
    expect("factor", factor, &[1])?;
    Ok(vec![weight.to_vec(); 2 + usize::from(rounded)])
}

/// Returns the shapes of the results for the operands `(weight, gradient, first moment, second moment, rates, factor)`.
pub(super) fn shapes_with_moments(operands: &[&[usize]], rounded: bool) -> Result<Vec<Shape>, OpError> {
    let [weight, gradient, first, second, rates, factor] = exactly(operands)?;
    expect("gradient", gradient, weight)?;
    expect("first moment", first, weight)?;
    expect("second moment", second, weight)?;
    expect("rates", rates, &[3])?;
    expect("factor", factor, &[1])?;
    Ok(vec![weight.to_vec(); 3 + usize::from(rounded)])
}

/// Returns the operands `(weight, gradient, momentum, rate, factor)` of a case.
pub(super) fn operands_with_momentum(shape: &[usize], gradient: Operand) -> Vec<Operand> {
    let (weight, momentum) = (single(shape), single(shape));
    vec![weight, gradient, momentum, positive(&[1]), positive(&[1])]
}

/// Returns the operands `(weight, gradient, first moment, second moment, rates, factor)` of a case.
pub(super) fn operands_with_moments(shape: &[usize], gradient: Operand) -> Vec<Operand> {
    let moments = [single(shape), positive(shape)];
    let scalars = [positive(&[3]), positive(&[1])];
    [single(shape), gradient]
        .into_iter()
        .chain(moments)
        .chain(scalars)
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use crate::array::Array;
    use crate::op::Definition;

    pub(in crate::op) fn array(values: &[f64]) -> Array {
        Array::new([values.len()], values.to_vec()).unwrap()
    }

    /// Returns the weight and the momentum after ten steps.
    pub(in crate::op) fn ten_steps(op: impl Definition) -> [Array; 2] {
        let mut states = [array(&[1.0, -2.0, 0.5]), array(&[0.0; 3])];
        for step in 0..10 {
            // Gradients of twice the size, which the factor halves.
            let gradient: Vec<f64> = (0..3)
                .map(|i| f64::from((step * 7 + i * 5) % 11 - 5) / 4.0)
                .collect();
            let [weight, momentum] = &states;
            let operands = [
                weight,
                &array(&gradient),
                momentum,
                &array(&[0.2]),
                &array(&[0.5]),
            ];
            states = op.eval(&operands).unwrap().try_into().unwrap();
        }
        states
    }

    pub(in crate::op) fn assert_close(found: &Array, expected: [f64; 3]) {
        for (found, expected) in found.values().iter().zip(expected) {
            // The attributes are in f32.
            assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
        }
    }
}
