//! The 8-bit floating-point formats. gfx940 to gfx942 have FNUZ's: one NaN, 0x80, no infinity, no negative zero. gfx950 and gfx12
//! have OCP's, in instructions of the same names (OFP8 revision 1.0): E4M3 has no infinity, and E5M2 follows IEEE 754.

use std::sync::LazyLock;

use crate::arch::Encoding;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float8 {
    /// E4M3 with a bias of 8: to ±240.
    Fp8Fnuz,
    /// E5M2 with a bias of 16: to ±57344.
    Bf8Fnuz,
    /// E4M3 with a bias of 7: to ±448.
    Fp8,
    /// E5M2 with a bias of 15: to ±57344.
    Bf8,
}

impl Encoding {
    /// The format that instructions call `fp8` or `bf8`.
    pub(super) fn format(self, name: &str) -> Option<Float8> {
        match (name, self) {
            ("fp8", Self::Fnuz) => Some(Float8::Fp8Fnuz),
            ("bf8", Self::Fnuz) => Some(Float8::Bf8Fnuz),
            ("fp8", Self::Ocp) => Some(Float8::Fp8),
            ("bf8", Self::Ocp) => Some(Float8::Bf8),
            _ => None,
        }
    }
}

const SIGN: u32 = 0x80;

impl Float8 {
    pub(super) const ALL: [Self; 4] = [Self::Fp8Fnuz, Self::Bf8Fnuz, Self::Fp8, Self::Bf8];

    /// Bits of the mantissa, and the exponent's bias.
    const fn layout(self) -> (i32, i32) {
        match self {
            Self::Fp8Fnuz => (3, 8),
            Self::Bf8Fnuz => (2, 16),
            Self::Fp8 => (3, 7),
            Self::Bf8 => (2, 15),
        }
    }

    const fn is_fnuz(self) -> bool {
        matches!(self, Self::Fp8Fnuz | Self::Bf8Fnuz)
    }

    /// The bits of the largest number.
    const fn largest(self) -> u32 {
        match self {
            Self::Fp8Fnuz | Self::Bf8Fnuz => 0x7f,
            Self::Fp8 => 0x7e,
            Self::Bf8 => 0x7b,
        }
    }

    fn decode(self, bits: u32) -> f32 {
        let magnitude = bits & !SIGN;
        if self.is_fnuz() && bits == SIGN || magnitude > self.largest() + u32::from(self == Self::Bf8) {
            return f32::NAN;
        }
        let (mantissa_bits, bias) = self.layout();
        let (exponent, mantissa) = (magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1));
        let value = if magnitude > self.largest() {
            f32::INFINITY
        } else {
            let (exponent, mantissa) = match exponent {
                0 => (1, mantissa),
                _ => (exponent, mantissa | 1 << mantissa_bits),
            };
            mantissa as f32 * power_of_two(exponent.cast_signed() - bias - mantissa_bits)
        };
        if bits & SIGN == 0 { value } else { -value }
    }

    /// The value of the lowest 8 bits.
    pub(super) fn value(self, bits: u32) -> f32 {
        static VALUES: LazyLock<[[f32; 256]; 4]> = LazyLock::new(|| {
            Float8::ALL.map(|format| std::array::from_fn(|bits| format.decode(bits as u32)))
        });
        VALUES[self as usize][(bits & 255) as usize]
    }

    /// The nearest, ties to even. Beyond the largest it is NaN, of OCP's E5M2 infinity; MODE.FP16_OVFL, which the interpreter refuses,
    /// would clamp.
    pub(super) fn round(self, value: f32) -> u32 {
        let sign = if value.is_sign_negative() { SIGN } else { 0 };
        let (nan, beyond) = match self {
            Self::Fp8Fnuz | Self::Bf8Fnuz => (SIGN, SIGN),
            Self::Fp8 => (sign | 0x7f, sign | 0x7f),
            Self::Bf8 => (sign | 0x7f, sign | 0x7c),
        };
        if value.is_nan() {
            return nan;
        }
        let magnitude = value.abs();
        if magnitude.is_infinite() {
            return beyond;
        }
        let (mantissa_bits, bias) = self.layout();
        // Below the smallest normal number there is one unit for all.
        let exponent = ((magnitude.to_bits() >> 23).cast_signed() - 127).max(1 - bias);
        let units = (magnitude / power_of_two(exponent - mantissa_bits)).round_ties_even() as u32;
        // Where rounding carries, the sum carries into the exponent.
        match ((exponent + bias - 1).cast_unsigned() << mantissa_bits) + units {
            0 if self.is_fnuz() => 0,
            bits if bits > self.largest() => beyond,
            bits => sign | bits,
        }
    }
}

/// 2^exponent, of a normal number.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent + 127).cast_unsigned() << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_formats() {
        for (format, bits, value) in [
            (Float8::Fp8Fnuz, 0x00, 0.0),
            (Float8::Fp8Fnuz, 0x01, 2_f32.powi(-10)),
            (Float8::Fp8Fnuz, 0x08, 2_f32.powi(-7)),
            (Float8::Fp8Fnuz, 0x40, 1.0),
            (Float8::Fp8Fnuz, 0xc4, -1.5),
            (Float8::Fp8Fnuz, 0x7f, 240.0),
            (Float8::Bf8Fnuz, 0x01, 2_f32.powi(-17)),
            (Float8::Bf8Fnuz, 0x40, 1.0),
            (Float8::Bf8Fnuz, 0xff, -57344.0),
            (Float8::Fp8, 0x01, 2_f32.powi(-9)),
            (Float8::Fp8, 0x38, 1.0),
            (Float8::Fp8, 0xbc, -1.5),
            (Float8::Fp8, 0x7e, 448.0),
            (Float8::Bf8, 0x01, 2_f32.powi(-16)),
            (Float8::Bf8, 0x3c, 1.0),
            (Float8::Bf8, 0xfb, -57344.0),
            (Float8::Bf8, 0x7c, f32::INFINITY),
            (Float8::Bf8, 0xfc, f32::NEG_INFINITY),
        ] {
            assert_eq!(format.value(bits), value, "{format:?} {bits:#x}");
        }
        for (format, bits) in [
            (Float8::Fp8Fnuz, 0x80),
            (Float8::Bf8Fnuz, 0x80),
            (Float8::Fp8, 0x7f),
            (Float8::Fp8, 0xff),
            (Float8::Bf8, 0x7d),
            (Float8::Bf8, 0xff),
        ] {
            assert!(format.value(bits).is_nan(), "{format:?} {bits:#x}");
        }
        assert!(Float8::Fp8.value(0x80).is_sign_negative() && Float8::Fp8.value(0x80) == 0.0);
    }

    /// Against a search of the nearest among all values; of two the one with an even mantissa.
    #[test]
    fn the_nearest_is_written_ties_to_even() {
        for format in Float8::ALL {
            let largest = format.largest();
            let values: Vec<f64> = (0..=largest).map(|bits| f64::from(format.value(bits))).collect();
            let mut checked: Vec<f64> = values.clone();
            for pair in values.windows(2) {
                let middle = pair[0].midpoint(pair[1]);
                checked.extend([middle, middle * (1.0 - 1e-6), middle * (1.0 + 1e-6)]);
            }
            for &value in &checked {
                let distance = |&bits: &u32| (values[bits as usize] - value).abs();
                let nearest = (0..=largest)
                    .min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))))
                    .unwrap();
                assert_eq!(format.round(value as f32), nearest, "{format:?} {value}");
                let negative = if nearest == 0 && format.is_fnuz() {
                    0
                } else {
                    nearest | SIGN
                };
                assert_eq!(format.round(-value as f32), negative, "{format:?} −{value}");
            }
            // If the largest number is odd, infinity or its substitute begins half a unit above it.
            let last = largest as usize;
            let unit = values[last] - values[last - 1];
            let beyond = match format {
                Float8::Bf8 => 0x7c,
                Float8::Fp8 => 0x7f,
                Float8::Fp8Fnuz | Float8::Bf8Fnuz => 0x80,
            };
            let tie = if largest & 1 == 1 { beyond } else { largest };
            for (value, expected) in [
                (values[last] + 0.49 * unit, largest),
                (values[last] + 0.5 * unit, tie),
                (values[last] + 0.51 * unit, beyond),
                (f64::from(f32::MAX), beyond),
                (f64::INFINITY, beyond),
                (1e-30, 0),
            ] {
                assert_eq!(format.round(value as f32), expected, "{format:?} {value}");
            }
            assert!(format.value(format.round(f32::NAN)).is_nan(), "{format:?}");
        }
    }
}
