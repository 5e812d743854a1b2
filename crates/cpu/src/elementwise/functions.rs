//! Functions of vectors, by the methods of `hip/elementwise/functions.hpp`.

use rten_simd::ops::{BitOps, FloatOps, IntOps, NumOps, ToFloat};
use rten_simd::{Isa, Simd, SimdUnaryOp};
use rten_vecmath::Exp;

/// Evaluates a polynomial, whose coefficients start with that of the highest power.
#[inline(always)]
fn polynomial<I: Isa, const N: usize>(isa: I, x: I::F32, coefficients: [f32; N]) -> I::F32 {
    let ops = isa.f32();
    let mut sum = ops.splat(coefficients[0]);
    for &coefficient in &coefficients[1..] {
        sum = ops.mul_add(sum, x, ops.splat(coefficient));
    }
    sum
}

/// `e^x − 1`: a polynomial near 0, where the difference would cancel.
#[inline(always)]
pub(super) fn exp_m1<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let series = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];
    let small = ops.mul_add(ops.mul(x, x), polynomial(isa, x, series), x);
    let large = ops.sub(Exp::apply(isa, x), ops.one());
    ops.select(small, large, ops.lt(ops.abs(x), ops.splat(0.35)))
}

/// `x = 2^k · m` with m between √½ and √2, and ln m by a polynomial in `s = (m − 1) / (m + 1)`.
#[inline(always)]
pub(super) fn log<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    const LARGE: f32 = 33_554_432.0; // 2^25
    let (ops, ints) = (isa.f32(), isa.i32());
    let tiny = ops.lt(x, ops.splat(f32::MIN_POSITIVE));
    let normal = ops.select(ops.mul(x, ops.splat(LARGE)), x, tiny);
    let bits: I::I32 = normal.reinterpret_cast();
    let bits = ints.add(bits, ints.splat(0x3f80_0000 - 0x3f35_04f3));
    let exponent = ints.sub(ints.shift_right::<23>(bits), ints.splat(127));
    let shift = ops.select(ops.splat(25.0), ops.zero(), tiny);
    let k = ops.sub(ints.to_float(exponent), shift);
    let mantissa = ints.add(ints.and(bits, ints.splat(0x007f_ffff)), ints.splat(0x3f35_04f3));
    let m: I::F32 = mantissa.reinterpret_cast();
    let f = ops.sub(m, ops.one());
    let s = ops.div(f, ops.add(ops.splat(2.0), f));
    let z = ops.mul(s, s);
    let w = ops.mul(z, z);
    let even = ops.mul(w, polynomial(isa, w, [0.242_790_78, 0.400_009_72]));
    let r = ops.mul_add(z, polynomial(isa, w, [0.284_987_87, 0.666_666_6]), even);
    let half = ops.mul(ops.mul(ops.splat(0.5), f), f);
    let small = ops.mul_add(s, ops.add(half, r), ops.mul(k, ops.splat(9.058_001e-6)));
    let y = ops.add(ops.sub(small, half), f);
    let y = ops.mul_add(k, ops.splat(0.693_138_1), y);
    let infinity = ops.splat(f32::INFINITY);
    let y = ops.select(y, x, ops.lt(x, infinity));
    let y = ops.select(y, ops.splat(f32::NAN), ops.ge(x, ops.zero()));
    ops.select(ops.neg(infinity), y, ops.eq(x, ops.zero()))
}

/// `ln(1 + x)`, in which `x / ((1 + x) − 1)` corrects the rounding of `1 + x`.
#[inline(always)]
pub(super) fn log_1p<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let sum = ops.add(ops.one(), x);
    let rounded = ops.sub(sum, ops.one());
    let log = log(isa, sum);
    let corrected = ops.mul(log, ops.div(x, rounded));
    let y = ops.select(corrected, log, ops.lt(ops.abs(x), ops.splat(1e8)));
    ops.select(x, y, ops.eq(rounded, ops.zero()))
}

/// Error function: an odd polynomial near 0, and `1 − e^p` beyond.
#[inline(always)]
pub(super) fn erf<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let t = ops.abs(x);
    let inner = [
        -5.967_617e-4,
        4.991_194_2e-3,
        -2.676_813_5e-2,
        1.128_199_3e-1,
        -3.761_253_4e-1,
        1.283_791_7e-1,
    ];
    let small = ops.mul_add(polynomial(isa, ops.mul(x, x), inner), x, x);
    // The tail is 0 beyond 4.
    let bounded = ops.min(t, ops.splat(4.0));
    let outer = [
        -1.728_534_7e-5,
        3.831_971_3e-4,
        -3.883_964_4e-3,
        2.425_462_2e-2,
        -1.067_778_8e-1,
        -6.348_467e-1,
        -1.287_175_1e-1,
    ];
    let p = ops.mul_add(polynomial(isa, bounded, outer), bounded, ops.neg(bounded));
    let large = ops.sub(ops.one(), Exp::apply(isa, p));
    let large = ops.select(ops.neg(large), large, ops.lt(x, ops.zero()));
    ops.select(large, small, ops.gt(t, ops.splat(0.927_734_4)))
}

/// Arc tangent: a polynomial for |x| ≤ 1, and `π/2 − atan(1/x)` beyond.
#[inline(always)]
pub(super) fn atan<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let t = ops.abs(x);
    let is_large = ops.gt(t, ops.one());
    let v = ops.select(ops.div(ops.one(), t), t, is_large);
    let s = ops.mul(v, v);
    let coefficients = [
        2.785_698_3e-3,
        -1.586_602_3e-2,
        4.247_222e-2,
        -7.497_53e-2,
        1.064_488e-1,
        -1.420_703_1e-1,
        1.999_345_4e-1,
        -3.333_314_7e-1,
    ];
    let r = ops.mul_add(ops.mul(polynomial(isa, s, coefficients), s), v, v);
    let half_pi = ops.splat(std::f32::consts::FRAC_PI_2);
    let y = ops.select(ops.sub(half_pi, r), r, is_large);
    ops.select(ops.neg(y), y, ops.lt(x, ops.zero()))
}

/// Largest integer that is not larger.
#[inline(always)]
pub(super) fn floor<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let nearest = ops.round_ties_even(x);
    ops.select(ops.sub(nearest, ops.one()), nearest, ops.gt(nearest, x))
}

/// Smallest integer that is not smaller.
#[inline(always)]
pub(super) fn ceil<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let nearest = ops.round_ties_even(x);
    ops.select(ops.add(nearest, ops.one()), nearest, ops.lt(nearest, x))
}

/// Integer part.
#[inline(always)]
pub(super) fn trunc<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    ops.select(ceil(isa, x), floor(isa, x), ops.lt(x, ops.zero()))
}
