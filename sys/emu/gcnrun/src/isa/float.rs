//! Half-precision formats and roundings, without branches so that loops over lanes vectorise.

/// The `f32` with the value of an `f16`'s bits; denormals and NaN payloads are kept.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u32) -> f32 {
    let sign = (bits & 0x8000) << 16;
    let magnitude = (bits & 0x7fff) << 13;
    // The exponent's bias changes from 15 to 127; the multiplication normalises denormals.
    let finite = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
    let special = magnitude | 0x7f80_0000;
    f32::from_bits(sign | if bits & 0x7c00 == 0x7c00 { special } else { finite })
}

/// The bits of the nearest `f16`, ties to even; beyond the largest it is infinite.
#[inline(always)]
pub(crate) fn f32_to_f16(value: f32) -> u32 {
    let bits = value.to_bits();
    let sign = (bits >> 16) & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Adding 0.5 leaves the multiple of 2^-24, the spacing of denormals, in the last bits.
    let denormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0x3f00_0000);
    let normal = magnitude
        .wrapping_add(0xc800_0fff)
        .wrapping_add((magnitude >> 13) & 1)
        >> 13;
    let nan = 0x7e00 | (magnitude >> 13) & 0x03ff;
    let finite = if magnitude < 0x3880_0000 { denormal } else { normal };
    let large = if magnitude > 0x7f80_0000 { nan } else { 0x7c00 };
    sign | if magnitude >= 0x4780_0000 { large } else { finite }
}

/// The bits of the `f16` rounded toward zero.
#[inline(always)]
pub(crate) fn f32_to_f16_toward_zero(value: f32) -> u32 {
    let nearest = f32_to_f16(value);
    let back = f16_to_f32(nearest);
    if value.is_finite() && back.abs() > value.abs() {
        nearest - 1
    } else {
        nearest
    }
}

/// Rounds so that rounding once more, to fewer bits, gives what rounding once would have: to odd where it is inexact.
#[inline(always)]
pub(crate) fn f64_to_f32_odd(value: f64) -> f32 {
    let nearest = value as f32;
    let bits = nearest.to_bits();
    let back = f64::from(nearest);
    if back == value || !nearest.is_finite() || value.is_nan() {
        return nearest;
    }
    // The neighbour toward zero, with its last bit set, represents everything between two neighbours.
    let toward_zero = if back.abs() > value.abs() { bits - 1 } else { bits };
    f32::from_bits(toward_zero | 1)
}

/// The `f32` with the value of a `bf16`'s bits.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// The bits of the nearest `bf16`, ties to even.
#[inline(always)]
pub(crate) fn f32_to_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    if value.is_nan() {
        (bits >> 16) | 0x40
    } else {
        rounded
    }
}

/// a·b + c of three `f16` values, rounded once to `f16` (its bits).
#[inline(always)]
pub(crate) fn fma_f16(a: f32, b: f32, c: f32) -> f32 {
    // The product is exact in f64; the sum is made odd where it is inexact, so that the next rounding is the only one.
    let product = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let sum = product + c;
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    let odd = if error != 0.0 && sum.is_finite() && sum.to_bits() & 1 == 0 {
        let up = (error > 0.0) == (sum > 0.0);
        f64::from_bits(if up { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
    } else {
        sum
    };
    f64_to_f32_odd(odd)
}

/// A denormal becomes a zero of its sign.
#[inline(always)]
pub(crate) fn flush_f32(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 {
        bits & 0x8000_0000
    } else {
        bits
    })
}

/// The smaller number; a NaN loses against a number, and −0 is below +0.
pub(super) fn min_f32(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a < b || (a == b && a.is_sign_negative()) {
        a
    } else {
        b
    }
}

/// The larger number; a NaN loses against a number, and +0 is above −0.
pub(super) fn max_f32(a: f32, b: f32) -> f32 {
    if a.is_nan() {
        b
    } else if b.is_nan() || a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn conversions_agree_with_the_half_crate() {
        for bits in 0..=u16::MAX {
            let expected = f16::from_bits(bits);
            let converted = f16_to_f32(u32::from(bits));
            if expected.is_nan() {
                assert!(converted.is_nan(), "{bits:#x}");
            } else {
                assert_eq!(converted.to_bits(), expected.to_f32().to_bits(), "{bits:#x}");
                assert_eq!(f32_to_f16(converted), u32::from(bits), "{bits:#x}");
            }
        }
    }

    #[test]
    fn rounding_to_halves() {
        let mut state = 1_u32;
        for _ in 0..200_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Exponents around those of f16, and every other.
            for bits in [
                state,
                (state & 0x8fff_ffff) | 0x3000_0000,
                (state & 0x80ff_ffff) | 0x3800_0000,
            ] {
                let value = f32::from_bits(bits);
                if value.is_nan() {
                    continue;
                }
                assert_eq!(
                    f32_to_f16(value),
                    u32::from(f16::from_f32(value).to_bits()),
                    "{value:e}"
                );
                assert_eq!(
                    f32_to_bf16(value),
                    u32::from(bf16::from_f32(value).to_bits()),
                    "{value:e}"
                );
                assert!(f16_to_f32(f32_to_f16_toward_zero(value)).abs() <= value.abs().min(f32::INFINITY));
            }
        }
        assert_eq!(f32_to_f16(65519.9), 0x7bff);
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(f32_to_f16_toward_zero(65535.0), 0x7bff);
    }

    #[test]
    fn a_fused_half_rounds_once() {
        // 1.0009766 · 1.0009766 = 1.0019541 is just above the midpoint of two halves once 2^-24 is added.
        let a = f16_to_f32(0x3c01);
        let tiny = f16_to_f32(0x0001);
        let exact = f64::from(a) * f64::from(a) + f64::from(tiny);
        assert_eq!(
            f32_to_f16(fma_f16(a, a, tiny)),
            u32::from(f16::from_f64(exact).to_bits())
        );
        // 2^15 · 2 + 2^5 − 2^-24 would tie without the last term.
        let big = f16_to_f32(0x7800);
        assert_eq!(f32_to_f16(fma_f16(big, 1.0, 16.0)), 0x7800, "a tie goes to even");
        let above = fma_f16(181.0, 181.0, f16_to_f32(0x0001));
        assert_eq!(
            f32_to_f16(above),
            u32::from(f16::from_f64(32761.0 + 5.96e-8).to_bits())
        );
    }
}
