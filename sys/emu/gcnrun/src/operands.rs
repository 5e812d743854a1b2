//! Operands: from the disassembler's text to sources that the interpreter fetches.
//!
//! A 64-bit operand is two sources, one for each half. Packed and half-word selections, signs and SDWA's bytes are [`Change`]s
//! made when a source is fetched, so that an operation sees plain values.

use half::{bf16, f16};

use crate::wave::{AGPR, EXEC, M0, VCC};

/// The type of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    F16,
    Bf16,
    F32,
    F64,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    /// Two halves; constants are `f16`.
    PackedF16,
    /// Two halves; constants are integers.
    PackedI16,
    /// Two dwords; constants are `f32` and apply to both.
    PackedF32,
}

impl Type {
    pub(crate) fn is_wide(self) -> bool {
        matches!(self, Self::F64 | Self::U64 | Self::I64 | Self::PackedF32)
    }

    pub(crate) fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::U16 | Self::I16)
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(
            self,
            Self::F16 | Self::Bf16 | Self::F32 | Self::F64 | Self::PackedF16
        )
    }

    fn sign(self) -> u32 {
        if self.is_half() { 0x8000 } else { 0x8000_0000 }
    }
}

/// Source of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Vgpr(u16),
    Sgpr(u8),
    Constant(u32),
    Scc,
    Vccz,
    Execz,
    /// The upper half of the address at which LDS begins in the flat address space.
    SharedBase,
    /// The upper half of the address at which scratch memory begins.
    PrivateBase,
}

/// A modification of the 32 bits before the operation uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// Takes `width` bits from `shift` up, widens them, then clears and flips bits (magnitude and negation).
    Bits {
        shift: u8,
        width: u8,
        signed: bool,
        and: u32,
        xor: u32,
    },
    /// Selects a half for either half, then flips bits.
    Pack {
        low: u8,
        high: u8,
        and: u32,
        xor: u32,
    },
    /// Converts the half at `shift`, an `f16`, to `f32`, then clears and flips bits.
    Widen {
        shift: u8,
        and: u32,
        xor: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) place: Place,
    pub(crate) change: Change,
}

impl Source {
    pub(crate) const ZERO: Self = Self {
        place: Place::Constant(0),
        change: Change::None,
    };

    pub(crate) fn plain(place: Place) -> Self {
        Self {
            place,
            change: Change::None,
        }
    }

    pub(crate) fn vgpr(self) -> Option<usize> {
        match self.place {
            Place::Vgpr(register) => Some(usize::from(register)),
            _ => None,
        }
    }

    pub(crate) fn sgpr(self) -> Option<usize> {
        match self.place {
            Place::Sgpr(register) => Some(usize::from(register)),
            _ => None,
        }
    }
}

/// The first register of an operand, and how many it spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) place: Place,
    pub(crate) count: u16,
}

/// The half that an operand names, as code with 16-bit registers does (since RDNA 3): `v1.l` or, in signs, `-|v1.h|`.
pub(crate) fn named_half(word: &str) -> Option<Part> {
    let (_, bare) = signs(word);
    let shift = match bare.rsplit_once('.')?.1 {
        "l" => 0,
        "h" => 16,
        _ => return None,
    };
    Some(Part { shift, width: 16 })
}

/// `v3`, `s[4:7]`, `a[0:3]`, `vcc`, `ttmp2`, `v1.h` (without its half), …
pub(crate) fn register(word: &str) -> Option<Register> {
    let word = word
        .strip_suffix(".l")
        .or_else(|| word.strip_suffix(".h"))
        .unwrap_or(word);
    let named = |first: usize, count| {
        Some(Register {
            place: Place::Sgpr(first as u8),
            count,
        })
    };
    match word {
        "vcc" => return named(VCC, 2),
        "vcc_lo" => return named(VCC, 1),
        "vcc_hi" => return named(VCC + 1, 1),
        "exec" => return named(EXEC, 2),
        "exec_lo" => return named(EXEC, 1),
        "exec_hi" => return named(EXEC + 1, 1),
        "m0" => return named(M0, 1),
        "flat_scratch" => return named(102, 2),
        "flat_scratch_lo" => return named(102, 1),
        "flat_scratch_hi" => return named(103, 1),
        "xnack_mask" => return named(104, 2),
        "xnack_mask_lo" => return named(104, 1),
        "xnack_mask_hi" => return named(105, 1),
        _ => {}
    }
    let (bank, numbers) = if let Some(rest) = word.strip_prefix("ttmp") {
        ('t', rest)
    } else {
        let bank = word.chars().next().filter(|bank| "vsa".contains(*bank))?;
        (bank, &word[1..])
    };
    let (first, count) =
        if let Some(range) = numbers.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            match range.split_once(':') {
                Some((first, last)) => {
                    let first: u16 = first.parse().ok()?;
                    (first, last.parse::<u16>().ok()?.checked_sub(first)? + 1)
                }
                None => (range.parse().ok()?, 1),
            }
        } else {
            (numbers.parse::<u16>().ok()?, 1)
        };
    let end = first.checked_add(count)?;
    let place = match bank {
        'v' if end <= 256 => Place::Vgpr(first),
        'a' if end <= 256 => Place::Vgpr(first + AGPR as u16),
        's' if end <= 106 => Place::Sgpr(first as u8),
        't' if end <= 16 => Place::Sgpr(first as u8 + 108),
        _ => return None,
    };
    Some(Register { place, count })
}

/// The register `index` after the first.
fn nth(place: Place, index: u16) -> Option<Place> {
    match place {
        Place::Vgpr(first) => Some(Place::Vgpr(first + index)),
        Place::Sgpr(first) => u8::try_from(index)
            .ok()
            .and_then(|i| first.checked_add(i))
            .filter(|r| *r < 128)
            .map(Place::Sgpr),
        _ => None,
    }
}

/// A whole number as the disassembler writes it, signed or hexadecimal.
pub(crate) fn integer(word: &str) -> Option<i64> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?.cast_signed(),
        None if digits.starts_with(|c: char| c.is_ascii_digit()) => digits.parse().ok()?,
        None => return None,
    };
    Some(if negative { value.wrapping_neg() } else { value })
}

/// The bits of a constant in an operand of this type.
fn constant(word: &str, ty: Type) -> Option<u64> {
    if let Some(value) = integer(word) {
        return Some(match ty {
            // A literal of 32 bits is the upper half of a double.
            Type::F64 if word.starts_with("0x") && value >> 32 == 0 => value.cast_unsigned() << 32,
            Type::F64 | Type::U64 | Type::I64 => value.cast_unsigned(),
            _ => value.cast_unsigned() & 0xffff_ffff,
        });
    }
    if !word.contains('.') {
        return None;
    }
    let value: f64 = match word {
        // 1/(2π), which the disassembler rounds.
        "0.15915494" | "0.15915494309189532" | "0.1592" => 0.159_154_943_091_895_32,
        _ => word.parse().ok()?,
    };
    Some(match ty {
        Type::F16 | Type::PackedF16 | Type::U16 | Type::I16 => u64::from(f16::from_f64(value).to_bits()),
        Type::Bf16 => u64::from(bf16::from_f64(value).to_bits()),
        Type::F64 | Type::U64 | Type::I64 => value.to_bits(),
        _ => u64::from((value as f32).to_bits()),
    })
}

/// SDWA's and `op_sel`'s part of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) shift: u8,
    pub(crate) width: u8,
}

impl Part {
    pub(crate) fn sdwa(word: &str) -> Option<Self> {
        Some(match word {
            "DWORD" => Self { shift: 0, width: 32 },
            "WORD_0" => Self { shift: 0, width: 16 },
            "WORD_1" => Self { shift: 16, width: 16 },
            "BYTE_0" => Self { shift: 0, width: 8 },
            "BYTE_1" => Self { shift: 8, width: 8 },
            "BYTE_2" => Self { shift: 16, width: 8 },
            "BYTE_3" => Self { shift: 24, width: 8 },
            _ => return None,
        })
    }
}

/// An operand without its signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signs {
    pub(crate) negate: bool,
    pub(crate) magnitude: bool,
    pub(crate) extend: bool,
}

/// Splits `-|v1|`, `neg(v1)`, `abs(v1)`, `sext(v1)` into signs and the word within.
pub(crate) fn signs(word: &str) -> (Signs, &str) {
    let mut signs = Signs {
        negate: false,
        magnitude: false,
        extend: false,
    };
    let mut word = word;
    loop {
        let within = |name: &str| word.strip_prefix(name).and_then(|rest| rest.strip_suffix(')'));
        if let Some(rest) = within("neg(") {
            (signs.negate, word) = (true, rest);
        } else if let Some(rest) = within("abs(") {
            (signs.magnitude, word) = (true, rest);
        } else if let Some(rest) = within("sext(") {
            (signs.extend, word) = (true, rest);
        } else if let Some(rest) = word.strip_prefix('|').and_then(|rest| rest.strip_suffix('|')) {
            (signs.magnitude, word) = (true, rest);
        } else if let Some(rest) = word
            .strip_prefix('-')
            .filter(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
        {
            (signs.negate, word) = (true, rest);
        } else {
            return (signs, word);
        }
    }
}

/// The place of an operand's low and high 32 bits, before any change.
fn places(word: &str, ty: Type) -> Option<[Place; 2]> {
    if let Some(register) = register(word) {
        let high = if register.count > 1 {
            nth(register.place, 1)?
        } else {
            Place::Constant(0)
        };
        if ty.is_wide() && register.count < 2 {
            return None;
        }
        return Some([register.place, high]);
    }
    let low = |place| Some([place, Place::Constant(0)]);
    match word {
        "null" | "off" => return low(Place::Constant(0)),
        "scc" | "src_scc" => return low(Place::Scc),
        "vccz" | "src_vccz" => return low(Place::Vccz),
        "execz" | "src_execz" => return low(Place::Execz),
        // The aperture's base is a multiple of 2^32; as one word it is the upper half.
        "src_shared_base" if ty.is_wide() => return Some([Place::Constant(0), Place::SharedBase]),
        "src_private_base" if ty.is_wide() => return Some([Place::Constant(0), Place::PrivateBase]),
        "src_shared_base" => return low(Place::SharedBase),
        "src_private_base" => return low(Place::PrivateBase),
        _ => {}
    }
    let word = word
        .strip_prefix("lit(")
        .and_then(|rest| rest.strip_suffix(')'))
        .unwrap_or(word);
    let bits = constant(word, ty)?;
    let high = if ty.is_wide() && ty != Type::PackedF32 {
        (bits >> 32) as u32
    } else {
        bits as u32
    };
    Some([Place::Constant(bits as u32), Place::Constant(high)])
}

/// The two sources of an operand, with its signs and its part applied.
pub(crate) fn source(word: &str, ty: Type, part: Option<Part>) -> Option<[Source; 2]> {
    let (signs, bare) = signs(word);
    let [low, high] = places(bare, ty)?;
    let and = if signs.magnitude { !ty.sign() } else { u32::MAX };
    let xor = if signs.negate { ty.sign() } else { 0 };
    if (signs.negate || signs.magnitude) && !ty.is_float() {
        return None;
    }
    let whole = Part { shift: 0, width: 32 };
    let part = match named_half(bare) {
        // Operations on halves take the lower one by themselves.
        Some(Part { shift: 0, .. }) if ty.is_half() => whole,
        Some(half) => half,
        None => part.unwrap_or(whole),
    };
    let change = |and, xor| {
        if part.shift == 0 && part.width == 32 && and == u32::MAX && xor == 0 {
            Change::None
        } else {
            Change::Bits {
                shift: part.shift,
                width: part.width,
                signed: signs.extend,
                and,
                xor,
            }
        }
    };
    if ty.is_wide() {
        if part.shift != 0 || part.width != 32 {
            return None;
        }
        return Some([
            Source::plain(low),
            Source {
                place: high,
                change: change(and, xor),
            },
        ]);
    }
    Some([
        Source {
            place: low,
            change: change(and, xor),
        },
        Source::plain(high),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers() {
        assert_eq!(
            register("v3"),
            Some(Register {
                place: Place::Vgpr(3),
                count: 1
            })
        );
        assert_eq!(
            register("a[4:7]"),
            Some(Register {
                place: Place::Vgpr(260),
                count: 4
            })
        );
        assert_eq!(
            register("s[100:101]"),
            Some(Register {
                place: Place::Sgpr(100),
                count: 2
            })
        );
        assert_eq!(
            register("vcc"),
            Some(Register {
                place: Place::Sgpr(106),
                count: 2
            })
        );
        assert_eq!(register("s106"), None);
        assert_eq!(register("v[250:257]"), None);
        assert_eq!(register("1.0"), None);
    }

    #[test]
    fn constants() {
        assert_eq!(constant("1.0", Type::F32), Some(0x3f80_0000));
        assert_eq!(constant("-4.0", Type::F16), Some(0xc400));
        assert_eq!(constant("0.5", Type::F64), Some(0x3fe0_0000_0000_0000));
        assert_eq!(constant("0x40080000", Type::F64), Some(0x4008_0000_0000_0000));
        assert_eq!(constant("-1", Type::U64), Some(u64::MAX));
        assert_eq!(constant("-16", Type::U32), Some(0xffff_fff0));
        assert_eq!(constant("0.15915494", Type::F32), Some(0x3e22_f983));
    }

    #[test]
    fn signs_of_operands() {
        let negated = source("-|v1|", Type::F32, None).unwrap()[0];
        assert_eq!(
            negated.change,
            Change::Bits {
                shift: 0,
                width: 32,
                signed: false,
                and: 0x7fff_ffff,
                xor: 0x8000_0000
            }
        );
        assert_eq!(
            source("-1.0", Type::F32, None).unwrap()[0].place,
            Place::Constant(0xbf80_0000)
        );
        assert_eq!(
            source("-v[2:3]", Type::F64, None).unwrap()[0],
            Source::plain(Place::Vgpr(2))
        );
        assert!(
            source("-v1", Type::U32, None).is_none(),
            "integers have no sign modifier"
        );
    }
}
