//! E4M3, in OCP's encoding and in gfx942's, FNUZ: the same bits are half the number there, and −0 is the only NaN.
//! <https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1>

const NAN: u8 = 0x7f;
const FNUZ_NAN: u8 = 0x80;
const MANTISSA_BITS: i32 = 3;

/// The encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Ocp,
    Fnuz,
}

impl Encoding {
    fn bias(self) -> i32 {
        match self {
            Self::Ocp => 7,
            Self::Fnuz => 8,
        }
    }

    fn largest(self) -> u8 {
        match self {
            Self::Ocp => 0x7e,
            Self::Fnuz => 0x7f,
        }
    }

    pub(crate) fn decode(self, bits: u8) -> f32 {
        let magnitude = bits & 0x7f;
        let is_nan = match self {
            Self::Ocp => magnitude == NAN,
            Self::Fnuz => bits == FNUZ_NAN,
        };
        if is_nan {
            return f32::NAN;
        }
        let (exponent, mantissa) = (magnitude >> MANTISSA_BITS, f32::from(magnitude & 7));
        let value = match exponent {
            0 => mantissa * 2f32.powi(1 - self.bias() - MANTISSA_BITS),
            _ => (8.0 + mantissa) * 2f32.powi(i32::from(exponent) - self.bias() - MANTISSA_BITS),
        };
        if bits == magnitude { value } else { -value }
    }

    /// Rounded to nearest, ties to even; beyond the largest it saturates, as hipBLASLt and cuBLASLt do.
    pub(crate) fn encode(self, value: f32) -> u8 {
        if value.is_nan() {
            return match self {
                Self::Ocp => NAN,
                Self::Fnuz => FNUZ_NAN,
            };
        }
        let magnitude = f64::from(value.abs());
        // In units of the last place: those of the exponent, or of the subnormal numbers.
        let exponent = (value.abs().to_bits() >> 23).cast_signed() - 127;
        let exponent = exponent.max(1 - self.bias());
        let units = (magnitude * 2f64.powi(MANTISSA_BITS - exponent)).round_ties_even();
        // Where rounding carries, it carries into the exponent.
        let bits = f64::from((exponent + self.bias() - 1) << MANTISSA_BITS) + units;
        let bits = bits.min(self.largest().into()) as u8;
        match self {
            Self::Fnuz if bits == 0 => 0,
            _ => bits | u8::from(value.is_sign_negative()) << 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_its_own() {
        for encoding in [Encoding::Ocp, Encoding::Fnuz] {
            for bits in 0..=255 {
                let value = encoding.decode(bits);
                assert!(
                    value.is_nan() || encoding.encode(value) == bits,
                    "{encoding:?} {bits:#x}"
                );
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_the_largest_saturates() {
        let ocp = |value| Encoding::Ocp.decode(Encoding::Ocp.encode(value));
        assert_eq!([ocp(17.0), ocp(19.0), ocp(-17.1)], [16.0, 20.0, -18.0]);
        assert_eq!([ocp(500.0), ocp(f32::NEG_INFINITY)], [448.0, -448.0]);
        let fnuz = |value| Encoding::Fnuz.decode(Encoding::Fnuz.encode(value));
        assert_eq!([fnuz(300.0), fnuz(-1e-9)], [240.0, 0.0]);
        assert_eq!(ocp(1.0 / 1024.0), 0.0, "half of the smallest, to even");
        assert_eq!(Encoding::Ocp.decode(0x38), 2.0 * Encoding::Fnuz.decode(0x38));
    }
}
