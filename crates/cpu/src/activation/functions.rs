//! Activation functions by SIMD instructions.

use hipvit_graph::op::Activation;
use rten_simd::ops::{BitOps, FloatOps, NumOps};
use rten_simd::{Isa, SimdUnaryOp};
use rten_vecmath::{Exp, Tanh};

/// Computes `x ← activation(x)` on this thread.
pub fn apply(activation: Activation, x: &mut [f32]) {
    match activation {
        Activation::GeluErf => GeluErf.map_mut(x),
        Activation::GeluTanh => GeluTanh.map_mut(x),
        Activation::QuickGelu => Swish { factor: 1.702 }.map_mut(x),
        Activation::Silu => Swish { factor: 1.0 }.map_mut(x),
        Activation::Relu => x.iter_mut().for_each(|x| *x = x.max(0.0)),
        Activation::Tanh => Tanh {}.map_mut(x),
    }
}

/// GELU as `x·Φ(x) = max(x, 0) − |x|·q(|x|)`, with the tail of the normal distribution `q(t) = exp(−t²/2) · R(t)`.
///
/// `R` is half the scaled complementary error function of t/√2. It is smooth: a polynomial in `u = 1/(1 + 0.35·t)` fits it with a relative
/// error of 3.2e-8 over 0 ≤ t ≤ 14, and q vanishes beyond. The relative error is therefore a few ulps in the left tail too, where a form
/// with `1 + erf` would cancel.
struct GeluErf;

/// Coefficients of u, u², … u⁹, a minimax fit by iteratively reweighted least squares.
const TAIL: [f32; 9] = [
    0.139_621_4,
    0.139_861_87,
    0.119_832_87,
    0.105_507_96,
    -0.023_109_73,
    0.159_174,
    -0.255_714_1,
    0.143_971_62,
    -0.029_145_91,
];

impl SimdUnaryOp<f32> for GeluErf {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        let ops = isa.f32();
        let t = ops.abs(x);
        let u = ops.reciprocal(ops.mul_add(t, ops.splat(0.35), ops.one()));
        let mut ratio = ops.splat(TAIL[8]);
        for &coefficient in TAIL[..8].iter().rev() {
            ratio = ops.mul_add(ratio, u, ops.splat(coefficient));
        }
        let ratio = ops.mul(ratio, u);
        let density = Exp::apply(isa, ops.mul(ops.mul(x, x), ops.splat(-0.5)));
        let tail = ops.mul(ratio, density);
        // q is 0 if x² overflows. Avoid 0·∞ for x = ±∞.
        let product = ops.mul(ops.min(t, ops.splat(f32::MAX)), tail);
        ops.sub(ops.max(x, ops.zero()), product)
    }
}

/// Tanh GELU as `x/2 · (1 + tanh(y)) = x · σ(2·y)`, which does not cancel for negative x.
struct GeluTanh;

impl SimdUnaryOp<f32> for GeluTanh {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        // 2·√(2/π)
        const FACTOR: f32 = 1.595_769_2;
        let ops = isa.f32();
        let cubic = ops.mul_add(ops.mul(x, x), ops.splat(0.044_715 * FACTOR), ops.splat(FACTOR));
        gated(isa, x, ops.mul(x, cubic))
    }
}

/// Computes `x · σ(factor·x)`.
struct Swish {
    factor: f32,
}

impl SimdUnaryOp<f32> for Swish {
    #[inline(always)]
    fn eval<I: Isa>(&self, isa: I, x: I::F32) -> I::F32 {
        gated(isa, x, isa.f32().mul(x, isa.f32().splat(self.factor)))
    }
}

/// Computes `x · σ(z)`.
#[inline(always)]
fn gated<I: Isa>(isa: I, x: I::F32, z: I::F32) -> I::F32 {
    let ops = isa.f32();
    ops.div(x, ops.add(ops.one(), Exp::apply(isa, ops.neg(z))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hipvit_graph::op::Op;
    use hipvit_graph::reference::{Array, eval};

    #[test]
    fn relative_errors_stay_within_some_units_in_the_last_place() {
        let x: Vec<f32> = (-80_000..=80_000).map(|i| i as f32 * 1e-4).collect();
        let exact = Array::new([x.len()], x.iter().map(|&v| f64::from(v)).collect()).unwrap();
        for (activation, limit) in [
            // exp(z) multiplies the error of z by |z|. z = −x²/2 is −32 at the end of the range.
            (Activation::GeluErf, 16.0),
            // z is −49 at the end of the range, after three roundings.
            (Activation::GeluTanh, 64.0),
            (Activation::QuickGelu, 12.0),
            (Activation::Silu, 8.0),
            (Activation::Relu, 0.0),
            (Activation::Tanh, 4.0),
        ] {
            let expected = eval(&Op::Activation(activation), &[&exact]).unwrap();
            let mut y = x.clone();
            apply(activation, &mut y);
            let worst = |range: f32| {
                (y.iter().zip(expected.values()).zip(&x))
                    .filter(|((_, e), x)| **e != 0.0 && x.abs() <= range)
                    .map(|((y, e), _)| ((f64::from(*y) - e) / e).abs() / f64::from(f32::EPSILON))
                    .fold(0.0, f64::max)
            };
            assert!(worst(8.0) <= limit, "{activation:?}: {} ε", worst(8.0));
            assert!(
                worst(2.0) <= 6.0,
                "{activation:?}: {} ε up to |x| = 2",
                worst(2.0)
            );
        }
    }

    #[test]
    fn extremes_have_their_limits() {
        for activation in [
            Activation::GeluErf,
            Activation::GeluTanh,
            Activation::QuickGelu,
            Activation::Silu,
        ] {
            let mut y = [-1e30, -1e4, -200.0, 0.0, 200.0, 1e4, 1e30, f32::INFINITY];
            apply(activation, &mut y);
            let limits = [0.0, 0.0, 0.0, 0.0, 200.0, 1e4, 1e30, f32::INFINITY];
            assert_eq!(y, limits, "{activation:?}");
            let mut y = [f32::NAN];
            apply(activation, &mut y);
            assert!(y[0].is_nan(), "{activation:?}");
        }
    }
}
