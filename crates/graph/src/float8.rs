//! 8-bit floating point: E4M3 and E5M2, in OCP's encoding (gfx950, gfx12, NVIDIA; safetensors' `F8_E4M3`, `F8_E5M2`) and in the
//! FNUZ encoding of gfx942, which has one NaN, no infinity and no negative zero, and an exponent bias that is larger by one.
//! <https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1>
//!
//! # Rounding
//!
//! The rounding to FP8 (E4M3) of what linear layers multiply.
//!
//! By a scale for all elements, found by calibration: the largest magnitude over some images becomes 448, and what is larger
//! saturates. Or by a scale for each row (token), whose largest magnitude becomes 448: nothing is calibrated, and results do not
//! depend on the batch. GPUs multiply a GEMM's result by the scales. The CPU rounds and multiplies in f32, to the same numbers that a GPU's
//! FP8 multiplies; only the order of the sums differs.

use rayon::prelude::*;

use crate::op::Float8Scale;

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float8 {
    /// OCP E4M3: to ±448, NaN, no infinity.
    E4M3,
    /// OCP E5M2: to ±57344, NaN and infinity as IEEE 754 has them.
    E5M2,
    /// E4M3 FNUZ: to ±240.
    E4M3Fnuz,
    /// E5M2 FNUZ: to ±57344.
    E5M2Fnuz,
}

/// What is written for a number whose magnitude is above the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The largest of its sign, for infinity too.
    Saturate,
    /// Infinity where the format has it, NaN elsewhere.
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

    /// The bits of the largest number.
    const fn largest_bits(self) -> u8 {
        match self {
            Self::E4M3 => 0x7e,
            Self::E5M2 => 0x7b,
            Self::E4M3Fnuz | Self::E5M2Fnuz => 0x7f,
        }
    }

    /// Whether there is one zero, whose sign bit alone is NaN.
    const fn is_fnuz(self) -> bool {
        matches!(self, Self::E4M3Fnuz | Self::E5M2Fnuz)
    }

    /// The largest number.
    pub fn largest(self) -> f32 {
        self.to_f32(self.largest_bits())
    }

    /// The value of `bits`, exactly.
    pub fn to_f32(self, bits: u8) -> f32 {
        if self.is_fnuz() && bits == 0x80 {
            return f32::NAN;
        }
        let magnitude = bits & 0x7f;
        let sign = if bits == magnitude { 1.0 } else { -1.0 };
        if magnitude > self.largest_bits() {
            // E5M2's infinity follows its largest number, NaNs follow that.
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

    /// `value` rounded to nearest, ties to even. NaN stays NaN.
    pub fn from_f32(self, value: f32, overflow: Overflow) -> u8 {
        let sign = (value.to_bits() >> 24) as u8 & 0x80;
        if value.is_nan() {
            return if self.is_fnuz() { 0x80 } else { sign | 0x7f };
        }
        let mantissa_bits = self.mantissa_bits().cast_signed();
        // In units of the last place; below the smallest normal number there is one unit for all.
        let exponent = ((value.to_bits() >> 23 & 0xff).cast_signed() - 127).max(1 - self.bias());
        // Dividing by a power of two is exact, unless it underflows, which is far below half a unit; infinity is above the largest.
        let units = (value.abs() / power_of_two(exponent - mantissa_bits)).round_ties_even();
        // Where rounding carries, the sum carries into the exponent.
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

    /// The values of all bits.
    pub fn table(self) -> [f32; 256] {
        std::array::from_fn(|bits| self.to_f32(bits as u8))
    }
}

/// 2^exponent, for exponents of normal f32.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent + 127).cast_unsigned() << 23)
}

/// Elements of a task.
const PIECE: usize = 1 << 14;

/// The scale by which the largest magnitude of a row becomes E4M3's, 448: 0 for a row of zeros, or of numbers so small that there is
/// no normal scale; they become 0. NaN for a row with an infinite number or NaN, all of whose results are NaN.
pub fn row_scale(row: &[f32]) -> f32 {
    // `max` leaves NaN out.
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

/// The number nearest to `x` that E4M3 represents with this scale. NaN stays NaN; with scale 0 all is 0.
pub fn round(x: f32, scale: f32) -> f32 {
    if scale == 0.0 {
        return 0.0;
    }
    // As GPUs do it: a multiplication by the reciprocal.
    let bits = Float8::E4M3.from_f32(x * (1.0 / scale), Overflow::Saturate);
    Float8::E4M3.to_f32(bits) * scale
}

/// All of `x`, rows of `channels`, [rounded](round).
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

    /// `tests/data/float8.safetensors`: what the Python package `ml_dtypes` converts, by `scripts/float8_table.py`.
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
                // Saturation differs where the reference has no number, and there alone.
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
    fn values_are_rounded_to_steps_and_saturate() {
        let x = [0.0, 1.0, -1.06, 1.07, 2000.0, -2000.0, f32::INFINITY];
        let scale = 2.0;
        // Between 0.5 and 1 the unit is 1/16.
        let fixed = Float8Scale::Fixed(scale);
        assert_eq!(
            rounded(&x, x.len(), fixed),
            [0.0, 1.0, -1.0, 1.125, 896.0, -896.0, 896.0]
        );
        assert!(round(f32::NAN, scale).is_nan());
        // Below 2^-6 there is one unit, 2^-9.
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
        // Between 1/4 and 1/2 the unit is 1/32.
        assert_eq!(y[..3], [1.0, -448.0, 0.25]);
        assert_eq!(y[3..6], [2.0, -896.0, 0.5]);
        assert_eq!(y[6..12], [0.0; 6]);
        assert!(y[12..].iter().all(|y| y.is_nan()));
        assert_eq!(row_scale(&[]), 0.0);
    }
}
