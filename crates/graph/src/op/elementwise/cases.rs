//! Cases of elementwise expressions for `hipvit validate`.

use super::Elementwise;
use crate::cases::{Cases, Operand, Role, activation};
use crate::op::activation::{ACTIVATIONS, wide};
use crate::pattern::{Float, PatternError};

/// A function of two operands.
type Function = fn(&Float, &Float) -> Float;

/// Functions whose results are exact or rounded once.
const ARITHMETIC: &[Function] = &[
    |x, y| x.clone() + y.clone(),
    |x, y| x.clone() - y.clone(),
    |x, y| x.clone() * y.clone(),
    |x, y| x.clone() / (y.clone() + 2.0),
    |x, y| x.min(y.clone()),
    |x, y| x.max(y.clone()),
    |x, y| x.remainder(y.clone()),
    |x, y| x.modulo(y.clone()),
    |x, _| -x.clone(),
    |x, _| x.abs(),
    |x, _| x.sign(),
    |x, _| x.floor(),
    |x, _| x.ceil(),
    |x, _| x.trunc(),
    |x, _| x.round(),
    |x, _| x.clip(-0.5, 0.25),
    |x, y| x.less(y.clone()).to_float(),
    |x, y| x.less_equal(y.clone()).to_float(),
    |x, y| x.greater(y.clone()).to_float(),
    |x, y| x.greater_equal(y.clone()).to_float(),
    |x, y| (x.less(0.0) & y.less(0.0)).to_float(),
    |x, y| (x.less(0.0) | y.less(0.0)).to_float(),
    |x, y| x.less(0.0).not_equal(&y.less(0.0)).to_float(),
    |x, y| (x.is_nan() | y.is_infinite()).to_float(),
    |x, y| Float::select(&y.greater(0.0), x.clone(), y.clone()),
];

/// Functions that are approximated. Their results have similar magnitudes.
const APPROXIMATE: &[Function] = &[
    |x, _| (x.clone() * 0.25).exp(),
    |x, _| (x.abs() + 0.125).log(),
    |x, _| x.abs().sqrt(),
    |x, _| (x.abs() + 0.125).rsqrt(),
    |x, _| (x.abs() + 0.5).reciprocal(),
    |x, y| (x.abs() * 0.25 + 0.125).pow(y.clone()),
    |x, _| (x.clone() * 0.25).pow(3.0),
    |x, _| x.sin(),
    |x, _| x.cos(),
    |x, _| (x.clone() * 0.125).tan(),
    |x, _| (x.clone() * 0.125).asin(),
    |x, _| (x.clone() * 0.125).acos(),
    |x, _| x.atan(),
    |x, _| (x.clone() * 0.25).sinh(),
    |x, _| (x.clone() * 0.25).cosh(),
    |x, _| x.tanh(),
    |x, _| x.asinh(),
    |x, _| (x.abs() + 1.0).acosh(),
    |x, _| (x.clone() * 0.125).atanh(),
    |x, _| x.erf(),
    |x, _| x.sigmoid(),
    |x, _| (x.clone() * 0.25).exp_m1(),
    |x, _| x.abs().log_1p(),
    // Arguments beyond a few periods.
    |x, _| (x.clone() * 512.0).sin(),
    |x, _| (x.clone() * 65_536.0).cos(),
];

/// Activation functions that [`Activation`](crate::op::Activation) does not have.
const ACTIVATIONS_OF_ONNX: &[Function] = &[
    |x, _| x.leaky_relu(0.01),
    |x, y| x.leaky_relu(y.clone()),
    |x, _| x.elu(1.5),
    |x, _| x.selu(1.673_263_2, 1.050_701),
    |x, _| x.celu(1.25),
    |x, _| x.softplus(),
    |x, _| x.softsign(),
    |x, _| x.hard_sigmoid(0.2, 0.5),
    |x, _| x.hard_swish(),
    |x, _| x.mish(),
    |x, _| x.thresholded_relu(1.0),
    |x, _| x.gelu(),
    |x, _| x.gelu_tanh(),
];

pub(super) fn push(cases: &mut Cases<Elementwise>) {
    // The expressions are valid; without them, the test of the number of cases fails.
    let _ = push_all(cases);
}

fn push_all(cases: &mut Cases<Elementwise>) -> Result<(), PatternError> {
    let sum = Elementwise::ternary(|x, y, z| x * y - z)?;
    let groups =
        [ARITHMETIC, APPROXIMATE, ACTIVATIONS_OF_ONNX].map(|group| Ok((chosen(group)?, group.len())));
    let groups = groups.into_iter().collect::<Result<Vec<_>, _>>()?;
    let activations =
        ACTIVATIONS.map(|activation| Elementwise::new(1, Elementwise::of_activation(activation)));
    let activations = activations.into_iter().collect::<Result<Vec<_>, _>>()?;
    let rounded = Elementwise::unary(|x| x.round())?.into_integers();
    let place = Elementwise::binary(|x, y| Float::select(&x.equal(2.0), y, x * 0.5))?;
    let place = place.with_integer_operands(&[0]);
    cases.for_each_shape(|cases, [batch, tokens, channels], every_form| {
        let whole = [batch, tokens, channels];
        cases.push_in_arena(
            sum.clone(),
            vec![activation(&whole), activation(&whole), activation(&[channels])],
        );
        let broadcast: [[&[usize]; 3]; 4] = [
            [&whole, &[tokens, 1], &[1]],
            [&[batch, 1, channels], &[batch, tokens, 1], &[1, 1]],
            [&[tokens, 1], &[channels], &[batch, 1, 1]],
            [&[channels], &whole, &whole],
        ];
        for shapes in broadcast.iter().take(if every_form { 4 } else { 1 }) {
            cases.push(
                sum.clone(),
                shapes.iter().map(|shape| activation(shape)).collect(),
            );
        }
        for (op, functions) in &groups {
            let index = integers(&[channels], *functions);
            cases.push(op.clone(), vec![wide(&whole), activation(&whole), index]);
        }
        cases.push(rounded.clone(), vec![wide(&whole)]);
        cases.push(
            place.clone(),
            vec![integers(&[tokens, channels], 4), activation(&whole)],
        );
        for op in activations.iter().take(if every_form { 6 } else { 0 }) {
            cases.push(op.clone(), vec![wide(&whole)]);
        }
    });
    Ok(())
}

fn integers(shape: &[usize], below: usize) -> Operand {
    let below = i32::try_from(below).unwrap_or(i32::MAX);
    Operand {
        role: Role::Integers { below },
        ..activation(shape)
    }
}

/// Returns the op that chooses a function by its third operand, an integer.
fn chosen(functions: &[Function]) -> Result<Elementwise, PatternError> {
    let op = Elementwise::ternary(|x, y, index| {
        let functions = functions.iter().enumerate();
        functions.fold(Float::from(0.0), |rest, (number, function)| {
            let is_chosen = index.equal(number as f32);
            Float::select(&is_chosen, function(&x, &y), rest)
        })
    })?;
    Ok(op.with_integer_operands(&[2]))
}
