//! Reductions in the order of the ranks, so that a result does not depend on timing. f16, bf16 and the eight-bit types are
//! accumulated in f32 and rounded once. Integers wrap around.

use half::{bf16, f16};
use hipvit_sys::rccl::{ncclDataType_t, ncclRedOp_t};

/// An element type in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    I8,
    U8,
    I32,
    U32,
    I64,
    U64,
    F16,
    Bf16,
    F32,
    F64,
    F8(Float8),
}

/// An eight-bit float: the bits of its mantissa, and its kind. The MI300's kind (FNUZ) has no infinity and no negative zero; the
/// other kind is the Open Compute Project's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Float8 {
    mantissa: u32,
    fnuz: bool,
}

impl Format {
    /// Returns the format of RCCL's type on a GPU of this architecture; `None` if there is no such type.
    pub(super) fn of(datatype: ncclDataType_t, arch: &str) -> Option<Self> {
        let float8 = |mantissa| {
            Self::F8(Float8 {
                mantissa,
                fnuz: arch == "gfx942",
            })
        };
        Some(match datatype {
            ncclDataType_t::ncclInt8 => Self::I8,
            ncclDataType_t::ncclUint8 => Self::U8,
            ncclDataType_t::ncclInt32 => Self::I32,
            ncclDataType_t::ncclUint32 => Self::U32,
            ncclDataType_t::ncclInt64 => Self::I64,
            ncclDataType_t::ncclUint64 => Self::U64,
            ncclDataType_t::ncclFloat16 => Self::F16,
            ncclDataType_t::ncclBfloat16 => Self::Bf16,
            ncclDataType_t::ncclFloat32 => Self::F32,
            ncclDataType_t::ncclFloat64 => Self::F64,
            ncclDataType_t::ncclFloat8e4m3 => float8(3),
            ncclDataType_t::ncclFloat8e5m2 => float8(2),
            _ => return None,
        })
    }

    pub(super) fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::F8(_) => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }
}

/// The reduction of equally long parts, element by element.
pub(super) fn reduce(format: Format, op: ncclRedOp_t, parts: &[&[u8]]) -> Vec<u8> {
    macro_rules! float {
        ($type:ty, $load:expr, $store:expr) => {{
            let combine: fn($type, $type) -> $type = match op {
                ncclRedOp_t::ncclProd => |a, b| a * b,
                ncclRedOp_t::ncclMax => <$type>::max,
                ncclRedOp_t::ncclMin => <$type>::min,
                _ => |a, b| a + b,
            };
            let ranks = parts.len() as $type;
            let finish = |value: $type| {
                if op == ncclRedOp_t::ncclAvg {
                    value / ranks
                } else {
                    value
                }
            };
            fold(parts, $load, combine, |value| $store(finish(value)))
        }};
    }
    macro_rules! integer {
        ($type:ty) => {{
            let combine: fn($type, $type) -> $type = match op {
                ncclRedOp_t::ncclProd => <$type>::wrapping_mul,
                ncclRedOp_t::ncclMax => Ord::max,
                ncclRedOp_t::ncclMin => Ord::min,
                _ => <$type>::wrapping_add,
            };
            // In the type's own width, so that the number of ranks wraps as the sum does.
            let ranks = parts.len() as $type;
            let finish = |value: $type| match op {
                ncclRedOp_t::ncclAvg => value.checked_div(ranks).unwrap_or(value),
                _ => value,
            };
            fold(parts, <$type>::from_le_bytes, combine, |value| {
                finish(value).to_le_bytes()
            })
        }};
    }
    match format {
        Format::I8 => integer!(i8),
        Format::U8 => integer!(u8),
        Format::I32 => integer!(i32),
        Format::U32 => integer!(u32),
        Format::I64 => integer!(i64),
        Format::U64 => integer!(u64),
        Format::F16 => float!(f32, |bytes| f16::from_le_bytes(bytes).to_f32(), |value| {
            f16::from_f32(value).to_le_bytes()
        }),
        Format::Bf16 => float!(f32, |bytes| bf16::from_le_bytes(bytes).to_f32(), |value| {
            bf16::from_f32(value).to_le_bytes()
        }),
        Format::F32 => float!(f32, f32::from_le_bytes, f32::to_le_bytes),
        Format::F64 => float!(f64, f64::from_le_bytes, f64::to_le_bytes),
        Format::F8(float8) => {
            let table = float8.table();
            float!(f32, |[code]: [u8; 1]| table[usize::from(code)], |value| {
                [float8.encode(&table, value)]
            })
        }
    }
}

fn fold<T: Copy, const N: usize>(
    parts: &[&[u8]],
    load: impl Fn([u8; N]) -> T,
    combine: fn(T, T) -> T,
    store: impl Fn(T) -> [u8; N],
) -> Vec<u8> {
    let Some((first, others)) = parts.split_first() else {
        return Vec::new();
    };
    let mut values: Vec<T> = first.as_chunks().0.iter().map(|bytes| load(*bytes)).collect();
    for part in others {
        for (value, bytes) in values.iter_mut().zip(part.as_chunks().0) {
            *value = combine(*value, load(*bytes));
        }
    }
    values.into_iter().flat_map(store).collect()
}

impl Float8 {
    /// The value of each code.
    fn table(self) -> Vec<f32> {
        (0..=u8::MAX).map(|code| self.decode(code)).collect()
    }

    fn decode(self, code: u8) -> f32 {
        let magnitude = u32::from(code & 0x7f);
        let sign = if code < 0x80 { 1.0 } else { -1.0 };
        let exponents = 7 - self.mantissa;
        let (exponent, mantissa) = (magnitude >> self.mantissa, magnitude & ((1 << self.mantissa) - 1));
        if self.fnuz {
            if code == 0x80 {
                return f32::NAN;
            }
        } else if self.mantissa == 3 && magnitude == 0x7f {
            return f32::NAN;
        } else if self.mantissa == 2 && exponent == 0x1f {
            return if mantissa == 0 {
                sign * f32::INFINITY
            } else {
                f32::NAN
            };
        }
        let bias = (1 << (exponents - 1)) - i32::from(!self.fnuz);
        let unit = 2.0_f32.powi(-(self.mantissa as i32));
        let fraction = mantissa as f32 * unit;
        match exponent {
            0 => sign * fraction * 2.0_f32.powi(1 - bias),
            _ => sign * (1.0 + fraction) * 2.0_f32.powi(exponent as i32 - bias),
        }
    }

    /// The nearest code, ties to even; beyond the largest finite value that value, as RCCL's conversion saturates.
    fn encode(self, table: &[f32], value: f32) -> u8 {
        let nan = if self.fnuz { 0x80 } else { 0x7f };
        if value.is_nan() {
            return nan;
        }
        let finite = |code: &u8| table[usize::from(*code)].is_finite();
        let distance = |code: u8| (f64::from(table[usize::from(code)]) - f64::from(value.abs())).abs();
        let nearest = (0..0x80_u8).filter(finite).min_by(|&a, &b| {
            let even = (a & 1).cmp(&(b & 1));
            distance(a).total_cmp(&distance(b)).then(even)
        });
        let code = nearest.unwrap_or(nan);
        let negative = value.is_sign_negative() && !(self.fnuz && code == 0);
        if negative { code | 0x80 } else { code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_summed_in_f32_and_rounded_once() {
        // In f16 each 0.5 would be lost when added to 2048.
        let parts: Vec<[u8; 2]> = [2048.0, 0.5, 0.5, 1.0]
            .map(|v| f16::from_f32(v).to_le_bytes())
            .into();
        let parts: Vec<&[u8]> = parts.iter().map(<[u8; 2]>::as_slice).collect();
        let sum = reduce(Format::F16, ncclRedOp_t::ncclSum, &parts);
        assert_eq!(sum, f16::from_f32(2050.0).to_le_bytes());
    }

    #[test]
    fn integers_wrap_and_averages_truncate() {
        let parts: [&[u8]; 3] = [&[200, 1], &[100, 1], &[0, 3]];
        assert_eq!(reduce(Format::U8, ncclRedOp_t::ncclSum, &parts), [44, 5]);
        assert_eq!(reduce(Format::U8, ncclRedOp_t::ncclMax, &parts), [200, 3]);
        assert_eq!(reduce(Format::U8, ncclRedOp_t::ncclAvg, &parts), [14, 1]);
        assert_eq!(reduce(Format::I8, ncclRedOp_t::ncclMin, &parts), [200, 1], "-56");
    }

    #[test]
    fn sums_are_in_the_order_of_the_ranks() {
        let parts: Vec<[u8; 4]> = [1e8_f32, 1.0, -1e8].map(f32::to_le_bytes).into();
        let in_order: Vec<&[u8]> = parts.iter().map(<[u8; 4]>::as_slice).collect();
        assert_eq!(
            reduce(Format::F32, ncclRedOp_t::ncclSum, &in_order),
            0.0_f32.to_le_bytes()
        );
        let other = [in_order[0], in_order[2], in_order[1]];
        assert_eq!(
            reduce(Format::F32, ncclRedOp_t::ncclSum, &other),
            1.0_f32.to_le_bytes()
        );
    }

    #[test]
    fn eight_bit_floats_round_trip_and_have_the_limits_of_their_kind() {
        for (mantissa, fnuz, largest) in [
            (3, false, 448.0),
            (3, true, 240.0),
            (2, false, 57344.0),
            (2, true, 57344.0),
        ] {
            let float8 = Float8 { mantissa, fnuz };
            let table = float8.table();
            for code in 0..=u8::MAX {
                let value = table[usize::from(code)];
                if value.is_finite() {
                    assert_eq!(float8.encode(&table, value), code, "{float8:?} {value}");
                }
            }
            let finite = table.iter().copied().filter(|value| value.is_finite());
            assert_eq!(finite.fold(0.0, f32::max), largest, "{float8:?}");
            assert_eq!(table[usize::from(float8.encode(&table, 1e9))], largest);
            assert!(table[usize::from(float8.encode(&table, f32::NAN))].is_nan());
        }
    }
}
