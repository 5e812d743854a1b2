//! E4M3 and E5M2, in OCP's encoding and in gfx942's, FNUZ: the same bits are half the number there, and −0 is the only NaN.
//! <https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1>

const NAN: u8 = 0x7f;
const FNUZ_NAN: u8 = 0x80;

/// The encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Ocp,
    Fnuz,
}

/// A format: bits of the mantissa, and the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Float8 {
    mantissa_bits: i32,
    pub(crate) encoding: Encoding,
}

impl Float8 {
    pub(crate) const fn e4m3(encoding: Encoding) -> Self {
        Self {
            mantissa_bits: 3,
            encoding,
        }
    }

    pub(crate) const fn e5m2(encoding: Encoding) -> Self {
        Self {
            mantissa_bits: 2,
            encoding,
        }
    }

    fn bias(self) -> i32 {
        let of_ocp = if self.mantissa_bits == 3 { 7 } else { 15 };
        match self.encoding {
            Encoding::Ocp => of_ocp,
            Encoding::Fnuz => of_ocp + 1,
        }
    }

    fn largest(self) -> u8 {
        match (self.encoding, self.mantissa_bits) {
            (Encoding::Ocp, 3) => 0x7e,
            // Infinity follows, then NaN.
            (Encoding::Ocp, _) => 0x7b,
            (Encoding::Fnuz, _) => 0x7f,
        }
    }

    pub(crate) fn decode(self, bits: u8) -> f32 {
        let magnitude = bits & 0x7f;
        let sign = if bits == magnitude { 1.0 } else { -1.0 };
        if self.encoding == Encoding::Fnuz && bits == FNUZ_NAN {
            return f32::NAN;
        }
        if magnitude > self.largest() {
            let is_infinite = self.mantissa_bits == 2 && magnitude == self.largest() + 1;
            return if is_infinite {
                sign * f32::INFINITY
            } else {
                f32::NAN
            };
        }
        let (exponent, mantissa) = (
            magnitude >> self.mantissa_bits,
            f32::from(magnitude & ((1 << self.mantissa_bits) - 1)),
        );
        let hidden = f32::from(1_u8 << self.mantissa_bits);
        let value = match exponent {
            0 => mantissa * 2f32.powi(1 - self.bias() - self.mantissa_bits),
            _ => (hidden + mantissa) * 2f32.powi(i32::from(exponent) - self.bias() - self.mantissa_bits),
        };
        sign * value
    }

    /// Rounded to nearest, ties to even; beyond the largest it saturates, as hipBLASLt and cuBLASLt do.
    pub(crate) fn encode(self, value: f32) -> u8 {
        if value.is_nan() {
            return match self.encoding {
                Encoding::Ocp => NAN,
                Encoding::Fnuz => FNUZ_NAN,
            };
        }
        let magnitude = f64::from(value.abs());
        // In units of the last place: those of the exponent, or of the subnormal numbers.
        let exponent = (value.abs().to_bits() >> 23).cast_signed() - 127;
        let exponent = exponent.max(1 - self.bias());
        let units = (magnitude * 2f64.powi(self.mantissa_bits - exponent)).round_ties_even();
        // Where rounding carries, it carries into the exponent.
        let bits = f64::from((exponent + self.bias() - 1) << self.mantissa_bits) + units;
        let bits = bits.min(self.largest().into()) as u8;
        match self.encoding {
            Encoding::Fnuz if bits == 0 => 0,
            _ => bits | u8::from(value.is_sign_negative()) << 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Float8; 4] = [
        Float8::e4m3(Encoding::Ocp),
        Float8::e4m3(Encoding::Fnuz),
        Float8::e5m2(Encoding::Ocp),
        Float8::e5m2(Encoding::Fnuz),
    ];

    #[test]
    fn every_number_is_its_own() {
        for format in ALL {
            for bits in 0..=255 {
                let value = format.decode(bits);
                assert!(
                    !value.is_finite() || format.encode(value) == bits,
                    "{format:?} {bits:#x}"
                );
            }
        }
    }

    #[test]
    fn ties_go_to_even_and_the_largest_saturates() {
        let [ocp, fnuz, e5m2, _] = ALL.map(|format| move |value| format.decode(format.encode(value)));
        assert_eq!([ocp(17.0), ocp(19.0), ocp(-17.1)], [16.0, 20.0, -18.0]);
        assert_eq!([ocp(500.0), ocp(f32::NEG_INFINITY)], [448.0, -448.0]);
        assert_eq!([fnuz(300.0), fnuz(-1e-9)], [240.0, 0.0]);
        assert_eq!(ocp(1.0 / 1024.0), 0.0, "half of the smallest, to even");
        assert_eq!([e5m2(9.0), e5m2(11.0), e5m2(1e6)], [8.0, 12.0, 57344.0]);
        assert_eq!(ALL[0].decode(0x38), 2.0 * ALL[1].decode(0x38));
        assert_eq!(ALL[2].decode(0x38), 2.0 * ALL[3].decode(0x38));
        assert_eq!(ALL[2].decode(0xfc), f32::NEG_INFINITY);
    }
}
