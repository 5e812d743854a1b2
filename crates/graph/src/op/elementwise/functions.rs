//! Functions that the cases for `hipvit validate` choose from.

use crate::pattern::Float;

/// A function of two operands.
pub(super) type Function = fn(&Float, &Float) -> Float;

/// Functions whose results are exact or rounded once.
pub(super) const ARITHMETIC: &[Function] = &[
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
pub(super) const APPROXIMATE: &[Function] = &[
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
pub(super) const ACTIVATIONS_OF_ONNX: &[Function] = &[
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
