//! 8-bit floating point: E4M3 and E5M2 in two encodings.
//!
//! - OCP's (gfx950, gfx12, NVIDIA; `F8_E4M3` and `F8_E5M2` of safetensors).
//! - FNUZ (gfx942): one NaN, no infinity, no negative zero, and an exponent bias that is larger by one.
//!
//! <https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1>
//!
//! # Rounding
//!
//! The operands of linear layers are rounded to FP8 (E4M3) with one of two kinds of scales:
//!
//! - One scale for all elements, from calibration: the largest magnitude over some images becomes 448. Larger values saturate.
//! - A scale per row (token): the row's largest magnitude becomes 448. No calibration is needed, and results do not depend on the batch.
//!
//! GPUs multiply the result of a GEMM by the scales. The CPU rounds to the numbers that a GPU multiplies in FP8, but multiplies them in
//! f32. Only the order of the sums differs.
//!
//! Training rounds activations and weights to E4M3 and gradients to E5M2, with [one power of two for a tensor](Float8::power_of_two_scale).
//! The rounded numbers are then exact in bf16 and f32.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// FP8 formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float8 {
    /// OCP E4M3: up to ±448, NaN, no infinity.
    E4M3,
    /// OCP E5M2: up to ±57344, NaN and infinity as in IEEE 754.
    E5M2,
    /// E4M3 FNUZ: up to ±240.
    E4M3Fnuz,
    /// E5M2 FNUZ: up to ±57344.
    E5M2Fnuz,
}

/// Conversion of numbers whose magnitude exceeds the largest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Convert to the largest number of the same sign, also infinity.
    Saturate,
    /// Convert to infinity if the format has it, otherwise to NaN.
    NonFinite,
}

impl Float8 {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::E4M3, Self::E5M2, Self::E4M3Fnuz, Self::E5M2Fnuz];

    const fn mantissa_bits(self) -> u32 {
        match self {
            Self::E4M3 | Self::E4M3Fnuz => 3,
            Self::E5M2 | Self::E5M2Fnuz => 2,
        }
    }

    const fn bias(self) -> i32 {
        match self {
            Self::E4M3 => 7,
            Self::E4M3Fnuz => 8,
            Self::E5M2 => 15,
            Self::E5M2Fnuz => 16,
        }
    }

    /// Returns the bits of the largest number.
    const fn largest_bits(self) -> u8 {
        match self {
            Self::E4M3 => 0x7e,
            Self::E5M2 => 0x7b,
            Self::E4M3Fnuz | Self::E5M2Fnuz => 0x7f,
        }
    }

    /// Returns true if the format has a single zero, and the sign bit alone is NaN.
    const fn is_fnuz(self) -> bool {
        matches!(self, Self::E4M3Fnuz | Self::E5M2Fnuz)
    }

    /// Returns the largest number.
    pub fn largest(self) -> f32 {
        self.to_f32(self.largest_bits())
    }

    /// Returns the exact value of `bits`.
    pub fn to_f32(self, bits: u8) -> f32 {
        if self.is_fnuz() && bits == 0x80 {
            return f32::NAN;
        }
        let magnitude = bits & 0x7f;
        let sign = if bits == magnitude { 1.0 } else { -1.0 };
        if magnitude > self.largest_bits() {
            // In E5M2, infinity follows the largest number and NaNs follow infinity.
            return if self == Self::E5M2 && magnitude == self.largest_bits() + 1 {
                sign * f32::INFINITY
            } else {
                f32::NAN
            };
        }
        let mantissa_bits = self.mantissa_bits();
        let (exponent, mantissa) = (magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1));
        let (exponent, mantissa) = match exponent {
            0 => (1, mantissa),
            _ => (exponent, mantissa | 1 << mantissa_bits),
        };
        let unit = i32::from(exponent) - self.bias() - mantissa_bits.cast_signed();
        sign * f32::from(mantissa) * power_of_two(unit)
    }

    /// Rounds `value` to nearest, ties to even. NaN stays NaN.
    pub fn from_f32(self, value: f32, overflow: Overflow) -> u8 {
        let sign = (value.to_bits() >> 24) as u8 & 0x80;
        if value.is_nan() {
            return if self.is_fnuz() { 0x80 } else { sign | 0x7f };
        }
        let mantissa_bits = self.mantissa_bits().cast_signed();
        // Exponent of the last place. All subnormal numbers share one.
        let exponent = ((value.to_bits() >> 23 & 0xff).cast_signed() - 127).max(1 - self.bias());
        // Division by a power of two is exact, unless it underflows, far below half a unit. Infinity exceeds the largest number.
        let units = (value.abs() / power_of_two(exponent - mantissa_bits)).round_ties_even();
        // A carry of the rounding carries into the exponent.
        let bits = ((exponent + self.bias() - 1) << mantissa_bits).saturating_add(units as i32);
        let bits = match (u8::try_from(bits), overflow) {
            (Ok(bits), _) if bits <= self.largest_bits() => bits,
            (_, Overflow::Saturate) => self.largest_bits(),
            (_, Overflow::NonFinite) => match self {
                Self::E4M3 => 0x7f,
                Self::E5M2 => 0x7c,
                Self::E4M3Fnuz | Self::E5M2Fnuz => return 0x80,
            },
        };
        if self.is_fnuz() && bits == 0 {
            0
        } else {
            sign | bits
        }
    }

    /// Returns the smallest power of two that maps numbers up to `largest` to numbers that the format represents without saturation. NaN if
    /// `largest` is NaN or infinite.
    pub fn power_of_two_scale(self, largest: f32) -> f32 {
        if !largest.is_finite() {
            return f32::NAN;
        }
        let [largest, end] = [largest.abs(), self.largest()].map(f32::to_bits);
        let mantissa = |bits: u32| bits & 0x7f_ffff;
        let carry = i32::from(mantissa(largest) > mantissa(end));
        let exponent = (largest >> 23).cast_signed() - (end >> 23).cast_signed() + carry;
        // Normal, as is the reciprocal.
        power_of_two(exponent.clamp(-126, 126))
    }

    /// Rounds `x` to the nearest number that the format represents with this scale, a power of two. Numbers beyond the largest one saturate,
    /// NaN stays NaN. With the scale NaN the result is NaN.
    pub fn round_scaled(self, x: f32, scale: f32) -> f32 {
        let scaled = x * (1.0 / scale);
        // Exponent of the last place, as in `from_f32`.
        let exponent = ((scaled.to_bits() >> 23 & 0xff).cast_signed() - 127).max(1 - self.bias());
        let unit = power_of_two(exponent - self.mantissa_bits().cast_signed());
        let rounded = (scaled / unit).round_ties_even() * unit;
        let end = self.largest();
        // `clamp` keeps NaN.
        rounded.clamp(-end, end) * scale
    }

    /// Returns the values of all bit patterns.
    pub fn table(self) -> [f32; 256] {
        std::array::from_fn(|bits| self.to_f32(bits as u8))
    }
}

/// Returns 2^exponent for exponents of normal f32 numbers.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent + 127).cast_unsigned() << 23)
}

/// Scale of [`Rounding::Float8`](crate::op::Rounding::Float8).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Float8Scale {
    /// A scale per row, which maps the row's largest magnitude to 448.
    Row,
    /// One fixed scale for all of x: a normal positive number.
    Fixed(f32),
}

/// Elements per parallel task.
const PIECE: usize = 1 << 14;

/// Returns the scale that maps the largest magnitude of a row to 448, the largest number of E4M3.
///
/// - 0 for a row of zeros, or of numbers so small that no normal scale exists. They become 0.
/// - NaN for a row with an infinite number or NaN. All its results are NaN.
pub fn row_scale(row: &[f32]) -> f32 {
    // `max` ignores NaN.
    let magnitude = |x: &f32| if x.is_nan() { f32::INFINITY } else { x.abs() };
    let scale = row.iter().map(magnitude).fold(0.0, f32::max) / Float8::E4M3.largest();
    if !scale.is_finite() {
        f32::NAN
    } else if scale < f32::MIN_POSITIVE {
        0.0
    } else {
        scale
    }
}

/// Rounds `x` to the nearest number that E4M3 represents with this scale. NaN stays NaN. With scale 0 the result is 0.
pub fn round(x: f32, scale: f32) -> f32 {
    if scale == 0.0 {
        return 0.0;
    }
    // Multiply by the reciprocal, as GPUs do.
    let bits = Float8::E4M3.from_f32(x * (1.0 / scale), Overflow::Saturate);
    Float8::E4M3.to_f32(bits) * scale
}

/// [Rounds](round) all of `x`, in rows of `channels`.
pub fn rounded(x: &[f32], channels: usize, scale: Float8Scale) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    let (piece, fixed) = match scale {
        Float8Scale::Fixed(scale) => (PIECE, Some(scale)),
        Float8Scale::Row => (channels.max(1), None),
    };
    let pieces = y.par_chunks_mut(piece).zip(x.par_chunks(piece));
    pieces.for_each(|(y, x)| {
        let scale = fixed.unwrap_or_else(|| row_scale(x));
        y.iter_mut().zip(x).for_each(|(y, &x)| *y = round(x, scale));
    });
    y
}

#[cfg(test)]
mod tests {
    use safetensors::SafeTensors;

    use super::*;

    const NAMES: [&str; 4] = ["e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz"];

    /// Reads `tests/data/float8.safetensors`, the conversions of the Python package `ml_dtypes`, from `scripts/float8_table.py`.
    fn reference(name: &str) -> Vec<u8> {
        let file = include_bytes!("../../../tests/data/float8.safetensors");
        let tensors = SafeTensors::deserialize(file).unwrap();
        tensors.tensor(name).unwrap().data().to_vec()
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        let chunks = bytes.as_chunks().0.iter();
        chunks.map(|&bytes| f32::from_le_bytes(bytes)).collect()
    }

    #[test]
    fn all_256_values_are_those_of_the_reference() {
        for (format, name) in Float8::ALL.into_iter().zip(NAMES) {
            let expected = floats(&reference(&format!("{name}.values")));
            assert_eq!(expected.len(), 256);
            for (bits, (value, expected)) in format.table().iter().zip(expected).enumerate() {
                assert!(
                    value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan(),
                    "{name} {bits:#04x}: {value}, expected {expected}"
                );
            }
        }
    }

    #[test]
    fn every_kind_of_rounding_is_the_reference_s() {
        for (format, name) in Float8::ALL.into_iter().zip(NAMES) {
            let values = floats(&reference(&format!("{name}.cases")));
            let expected = reference(&format!("{name}.bits"));
            assert!(values.len() == expected.len() && values.len() > 1000);
            for (value, expected) in values.into_iter().zip(expected) {
                let bits = format.from_f32(value, Overflow::NonFinite);
                let is_nan = format.to_f32(bits).is_nan() && format.to_f32(expected).is_nan();
                assert!(
                    bits == expected || is_nan,
                    "{name} of {value:e} ({:#010x}): {bits:#04x}, expected {expected:#04x}",
                    value.to_bits()
                );
                // Saturation only differs where the reference has no number.
                let saturated = format.to_f32(format.from_f32(value, Overflow::Saturate));
                let wanted = match format.to_f32(expected) {
                    _ if value.is_nan() => f32::NAN,
                    wanted if wanted.is_finite() => wanted,
                    _ => format.largest().copysign(value),
                };
                assert!(
                    saturated.to_bits() == wanted.to_bits() || saturated.is_nan() && wanted.is_nan(),
                    "{name} of {value:e}: {saturated}, expected {wanted}"
                );
            }
        }
    }

    #[test]
    fn a_value_converts_back_to_its_bits() {
        for format in Float8::ALL {
            for bits in 0..=255 {
                let value = format.to_f32(bits);
                let back = format.from_f32(value, Overflow::NonFinite);
                assert!(
                    back == bits || value.is_nan() && format.to_f32(back).is_nan(),
                    "{format:?} {bits:#04x}"
                );
            }
        }
    }

    #[test]
    fn scaled_numbers_are_rounded_to_those_of_the_format() {
        for (format, name) in Float8::ALL.into_iter().zip(NAMES) {
            for x in floats(&reference(&format!("{name}.cases"))) {
                for scale in [1.0, 0.25, 64.0] {
                    let expected = format.to_f32(format.from_f32(x / scale, Overflow::Saturate)) * scale;
                    let rounded = format.round_scaled(x, scale);
                    assert!(
                        rounded == expected || rounded.is_nan() && expected.is_nan(),
                        "{name} of {x:e} with the scale {scale}: {rounded}, expected {expected}"
                    );
                }
            }
        }
        assert!(Float8::E4M3.round_scaled(1.0, f32::NAN).is_nan());
    }

    #[test]
    fn the_largest_magnitude_does_not_saturate_and_uses_the_last_binade() {
        for format in [Float8::E4M3, Float8::E5M2] {
            let end = format.largest();
            for largest in [
                1.0,
                1.75,
                1.750_000_1,
                448.0,
                449.0,
                57344.0,
                3e-5,
                1e30,
                end,
                end * 1.01,
            ] {
                let scale = format.power_of_two_scale(largest);
                assert!(
                    largest / scale <= end && largest / scale > end / 2.0,
                    "{format:?} of {largest}: {scale}"
                );
                assert_eq!(scale.to_bits() & 0x7f_ffff, 0);
            }
            // There is no smaller or larger normal power of two with a reciprocal.
            assert_eq!(format.power_of_two_scale(0.0), f32::MIN_POSITIVE);
            assert_eq!(format.power_of_two_scale(1e-44), f32::MIN_POSITIVE);
            assert!(f32::MAX / format.power_of_two_scale(f32::MAX) <= end);
            assert!(format.power_of_two_scale(f32::INFINITY).is_nan());
            assert!(format.power_of_two_scale(f32::NAN).is_nan());
        }
    }

    #[test]
    fn values_are_rounded_to_steps_and_saturate() {
        let x = [0.0, 1.0, -1.06, 1.07, 2000.0, -2000.0, f32::INFINITY];
        let scale = 2.0;
        // Numbers from 0.5 to 1 have a spacing of 1/16.
        let fixed = Float8Scale::Fixed(scale);
        assert_eq!(
            rounded(&x, x.len(), fixed),
            [0.0, 1.0, -1.0, 1.125, 896.0, -896.0, 896.0]
        );
        assert!(round(f32::NAN, scale).is_nan());
        // Numbers below 2^-6 have one spacing, 2^-9.
        assert_eq!(round(0.003, 1.0), 1.5f32.round_ties_even() / 512.0);
    }

    #[test]
    fn each_row_has_its_own_scale() {
        let x = [
            [1.0, -448.0, 0.26],
            [2.0, -896.0, 0.52],
            [0.0, -0.0, 0.0],
            [1e-38, -2e-38, 0.0],
            [1.0, f32::NAN, 2.0],
            [f32::INFINITY, 1.0, 2.0],
        ];
        let y = rounded(x.as_flattened(), 3, Float8Scale::Row);
        // Numbers from 1/4 to 1/2 have a spacing of 1/32.
        assert_eq!(y[..3], [1.0, -448.0, 0.25]);
        assert_eq!(y[3..6], [2.0, -896.0, 0.5]);
        assert_eq!(y[6..12], [0.0; 6]);
        assert!(y[12..].iter().all(|y| y.is_nan()));
        assert_eq!(row_scale(&[]), 0.0);
    }
}
