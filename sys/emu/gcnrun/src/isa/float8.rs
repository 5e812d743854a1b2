//! The 8-bit floating-point formats of gfx940 to gfx942, FNUZ: one NaN (0x80), no infinity, no negative zero.
//! gfx950 and gfx12 have OCP's encoding in instructions of the same names, which is not supported.

use std::sync::LazyLock;

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Float8 {
    /// E4M3 with a bias of 8: to ±240.
    Fp8,
    /// E5M2 with a bias of 16: to ±57344.
    Bf8,
}

const NAN: u32 = 0x80;
const LARGEST: u32 = 0x7f;

impl Float8 {
    /// Bits of the mantissa, and the exponent's bias.
    const fn layout(self) -> (i32, i32) {
        match self {
            Self::Fp8 => (3, 8),
            Self::Bf8 => (2, 16),
        }
    }

    fn decode(self, bits: u32) -> f32 {
        if bits == NAN {
            return f32::NAN;
        }
        let (mantissa_bits, bias) = self.layout();
        let (exponent, mantissa) = (
            (bits & LARGEST) >> mantissa_bits,
            bits & ((1 << mantissa_bits) - 1),
        );
        let (exponent, mantissa) = match exponent {
            0 => (1, mantissa),
            _ => (exponent, mantissa | 1 << mantissa_bits),
        };
        let value = mantissa as f32 * power_of_two(exponent.cast_signed() - bias - mantissa_bits);
        if bits & NAN == 0 { value } else { -value }
    }

    /// The value of the lowest 8 bits.
    pub(super) fn value(self, bits: u32) -> f32 {
        static VALUES: LazyLock<[[f32; 256]; 2]> = LazyLock::new(|| {
            [Float8::Fp8, Float8::Bf8].map(|format| std::array::from_fn(|bits| format.decode(bits as u32)))
        });
        VALUES[self as usize][(bits & 255) as usize]
    }

    /// The nearest, ties to even. Beyond the largest it is NaN, which MODE.FP16_OVFL, which the interpreter refuses, would clamp.
    pub(super) fn round(self, value: f32) -> u32 {
        if !value.is_finite() {
            return NAN;
        }
        let (mantissa_bits, bias) = self.layout();
        let magnitude = value.abs();
        // Below the smallest normal number there is one unit for all.
        let exponent = ((magnitude.to_bits() >> 23).cast_signed() - 127).max(1 - bias);
        let units = (magnitude / power_of_two(exponent - mantissa_bits)).round_ties_even() as u32;
        // Where rounding carries, the sum carries into the exponent.
        let bits = ((exponent + bias - 1).cast_unsigned() << mantissa_bits) + units;
        match bits {
            0 => 0,
            bits if bits > LARGEST => NAN,
            bits if value < 0.0 => bits | NAN,
            bits => bits,
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
            (Float8::Fp8, 0x00, 0.0),
            (Float8::Fp8, 0x01, 2_f32.powi(-10)),
            (Float8::Fp8, 0x08, 2_f32.powi(-7)),
            (Float8::Fp8, 0x40, 1.0),
            (Float8::Fp8, 0xc4, -1.5),
            (Float8::Fp8, 0x7f, 240.0),
            (Float8::Bf8, 0x01, 2_f32.powi(-17)),
            (Float8::Bf8, 0x40, 1.0),
            (Float8::Bf8, 0xff, -57344.0),
        ] {
            assert_eq!(format.value(bits), value, "{format:?} {bits:#x}");
        }
        assert!(Float8::Fp8.value(0x80).is_nan() && Float8::Bf8.value(0x80).is_nan());
    }

    /// Against a search of the nearest among all values; of two the one with an even mantissa.
    #[test]
    fn the_nearest_is_written_ties_to_even() {
        for format in [Float8::Fp8, Float8::Bf8] {
            let values: Vec<f64> = (0..=LARGEST).map(|bits| f64::from(format.value(bits))).collect();
            let mut checked: Vec<f64> = values.clone();
            for pair in values.windows(2) {
                let middle = pair[0].midpoint(pair[1]);
                checked.extend([middle, middle * (1.0 - 1e-6), middle * (1.0 + 1e-6)]);
            }
            for &value in &checked {
                let distance = |&bits: &u32| (values[bits as usize] - value).abs();
                let nearest = (0..=LARGEST)
                    .min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))))
                    .unwrap();
                assert_eq!(format.round(value as f32), nearest, "{format:?} {value}");
                let negative = if nearest == 0 { 0 } else { nearest | NAN };
                assert_eq!(format.round(-value as f32), negative, "{format:?} −{value}");
            }
            // Half a unit above the largest, whose neighbour would be even, is out of range.
            let unit = values[127] - values[126];
            for (value, expected) in [
                (values[127] + 0.49 * unit, LARGEST),
                (values[127] + 0.5 * unit, NAN),
                (f64::from(f32::MAX), NAN),
                (f64::INFINITY, NAN),
                (f64::NAN, NAN),
                (1e-30, 0),
            ] {
                assert_eq!(format.round(value as f32), expected, "{format:?} {value}");
            }
        }
    }
}
