//! Shared parts of loads, stores and atomic operations, for every kind of memory.

use super::lanes::{known_lanes, scalar, scalar_known};
use crate::code::{Context, Exit, Instruction, in_lane, uninitialised};
use crate::fault::FaultKind;
use crate::operands::{Place, Source, Type};
use crate::wave::Wave;

/// Number of bytes that an access moves, and their place in the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Width {
    pub(super) bytes: u32,
    pub(super) signed: bool,
    /// The half of the register that is loaded or stored, if it is only one.
    pub(super) half: Option<u32>,
}

impl Width {
    /// After `load_`, `read_`, `store_` or `write_`.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let whole = |bytes| {
            Some(Self {
                bytes,
                signed: false,
                half: None,
            })
        };
        let part = |bytes, signed, half| Some(Self { bytes, signed, half });
        match name {
            "b32" | "dword" => whole(4),
            "b64" | "dwordx2" => whole(8),
            "b96" | "dwordx3" => whole(12),
            "b128" | "dwordx4" => whole(16),
            "u8" | "ubyte" | "b8" | "byte" => part(1, false, None),
            "i8" | "sbyte" => part(1, true, None),
            "u16" | "ushort" | "b16" | "short" => part(2, false, None),
            "i16" | "sshort" => part(2, true, None),
            "d16_u8" | "ubyte_d16" | "u8_d16" => part(1, false, Some(0)),
            "d16_i8" | "sbyte_d16" | "i8_d16" => part(1, true, Some(0)),
            "d16_b16" | "short_d16" | "u16_d16" => part(2, false, Some(0)),
            "d16_hi_u8" | "ubyte_d16_hi" | "u8_d16_hi" | "d16_hi_b8" | "byte_d16_hi" | "b8_d16_hi" => {
                part(1, false, Some(1))
            }
            "d16_hi_i8" | "sbyte_d16_hi" | "i8_d16_hi" => part(1, true, Some(1)),
            "d16_hi_b16" | "short_d16_hi" | "u16_d16_hi" | "b16_d16_hi" => part(2, false, Some(1)),
            _ => None,
        }
    }

    /// In `Instruction::detail[0]`.
    pub(super) fn pack(self) -> u32 {
        self.bytes | u32::from(self.signed) << 8 | self.half.map_or(0, |half| (half + 1) << 9)
    }

    pub(super) fn unpack(bits: u32) -> Self {
        Self {
            bytes: bits & 255,
            signed: bits >> 8 & 1 == 1,
            half: (bits >> 9 & 3).checked_sub(1),
        }
    }
}

pub(super) fn active(lanes: u64) -> impl Iterator<Item = u32> {
    let mut rest = lanes;
    std::iter::from_fn(move || {
        let lane = (rest != 0).then(|| rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(lane)
    })
}

/// Writes the values that the lanes load to registers.
pub(super) struct LoadedLanes {
    register: usize,
    width: Width,
    /// Lanes of each register whose low and high halves are known.
    known: [[u64; 2]; 4],
}

impl LoadedLanes {
    pub(super) fn new(register: usize, width: Width) -> Self {
        Self {
            register,
            width,
            known: [[0; 2]; 4],
        }
    }

    /// Writes a lane's value.
    #[inline(always)]
    pub(super) fn lane<const N: usize>(&mut self, wave: &mut Wave, lane: u32, bytes: [u8; N], known: u16) {
        let at = lane as usize;
        if N >= 4 {
            for (i, dword) in bytes.chunks_exact(4).enumerate() {
                let value = u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
                wave.vgpr[self.register + i][at] = value;
                let known = known >> (4 * i);
                self.known[i][0] |= u64::from(known & 3 == 3) << lane;
                self.known[i][1] |= u64::from(known & 12 == 12) << lane;
            }
            return;
        }
        let value = match (bytes.first(), bytes.get(1)) {
            (Some(low), Some(high)) => u32::from(u16::from_le_bytes([*low, *high])),
            (Some(byte), None) => u32::from(*byte),
            _ => 0,
        };
        let unused = 32 - 8 * self.width.bytes;
        let value = if self.width.signed {
            ((value << unused).cast_signed() >> unused).cast_unsigned()
        } else {
            value
        };
        let all = (1 << self.width.bytes) - 1;
        let known = known & all == all;
        let slot = &mut wave.vgpr[self.register][at];
        // The upper bits are zeros or copies of the sign.
        let [low, high] = match self.width.half {
            None => [known, known || !self.width.signed],
            Some(0) => [known, false],
            Some(_) => [false, known],
        };
        *slot = match self.width.half {
            None => value,
            Some(half) => *slot & !(0xffff << (16 * half)) | (value & 0xffff) << (16 * half),
        };
        self.known[0][0] |= u64::from(low) << lane;
        self.known[0][1] |= u64::from(high) << lane;
    }

    /// Records what is known, after the last lane.
    pub(super) fn finish(self, wave: &mut Wave) {
        let exec = wave.exec();
        for row in 0..self.width.bytes.div_ceil(4) as usize {
            for half in 0..2 {
                if self.width.half.is_none_or(|only| only == half as u32) {
                    let bits = &mut wave.vgpr_known[self.register + row][half];
                    *bits = *bits & !exec | self.known[row][half];
                }
            }
        }
    }
}

/// The bytes that a lane stores, and which are known.
#[inline(always)]
pub(super) fn collect<const N: usize>(
    wave: &Wave,
    register: usize,
    width: Width,
    lane: u32,
) -> ([u8; N], u16) {
    let mut bytes = [0; N];
    let mut known = 0;
    let at = lane as usize;
    if N >= 4 {
        for (i, dword) in bytes.chunks_exact_mut(4).enumerate() {
            dword.copy_from_slice(&wave.vgpr[register + i][at].to_le_bytes());
            let [low, high] = wave.vgpr_known[register + i];
            known |= ((3 * (low >> lane & 1) as u16) | (12 * (high >> lane & 1) as u16)) << (4 * i);
        }
        return (bytes, known);
    }
    let half = width.half.unwrap_or(0);
    let value = wave.vgpr[register][at] >> (16 * half);
    bytes.copy_from_slice(&value.to_le_bytes()[..N]);
    if wave.vgpr_known[register][half as usize] >> lane & 1 == 1 {
        known = (1 << N) - 1;
    }
    (bytes, known)
}

/// An error if unknown bytes are stored to global memory.
#[inline(always)]
pub(super) fn must_be_known<const N: usize>(context: &Context<'_, '_>, known: u16) -> Result<(), FaultKind> {
    if u32::from(known) != (1_u32 << N) - 1 && context.space.checks().uninitialised {
        return Err(uninitialised("the stored value"));
    }
    Ok(())
}

/// All lanes' addresses: the sum of a vector operand (64 bits, or 32 added to a scalar base), and an offset.
pub(super) fn addresses(
    context: &Context<'_, '_>,
    instruction: &Instruction,
    [vector, base]: [&[Source; 2]; 2],
    wide: bool,
) -> Result<[u64; 64], Box<Exit>> {
    let wave = &*context.wave;
    let exec = wave.exec();
    let ty = if wide { Type::U64 } else { Type::U32 };
    if context.space.checks().uninitialised {
        let mut known = known_lanes(wave, &vector[0], ty);
        if wide {
            known &= known_lanes(wave, &vector[1], ty);
        }
        if exec & !known != 0 {
            return Err(in_lane(
                uninitialised("the address"),
                (exec & !known).trailing_zeros(),
            ));
        }
        if scalar_known(wave, base[0].place) & scalar_known(wave, base[1].place) != u32::MAX {
            return Err(uninitialised("the base address").into());
        }
    }
    let base = u64::from(scalar(wave, base[0].place)) | u64::from(scalar(wave, base[1].place)) << 32;
    let base = base.wrapping_add_signed(instruction.offset);
    let mut addresses = [base; 64];
    if let Place::Vgpr(register) = vector[0].place {
        let low = &wave.vgpr[usize::from(register)];
        for (address, low) in addresses.iter_mut().zip(low) {
            *address = address.wrapping_add(u64::from(*low));
        }
    }
    if let (true, Place::Vgpr(register)) = (wide, vector[1].place) {
        let high = &wave.vgpr[usize::from(register)];
        for (address, high) in addresses.iter_mut().zip(high) {
            *address = address.wrapping_add(u64::from(*high) << 32);
        }
    }
    Ok(addresses)
}

/// Calls a function of the number of bytes, known at compile time, that an access moves.
macro_rules! with_bytes {
    ($bytes:expr, $function:ident($($argument:expr),*)) => {
        match $bytes {
            1 => $function::<1>($($argument),*),
            2 => $function::<2>($($argument),*),
            4 => $function::<4>($($argument),*),
            8 => $function::<8>($($argument),*),
            12 => $function::<12>($($argument),*),
            _ => $function::<16>($($argument),*),
        }
    };
}
pub(super) use with_bytes;

/// An atomic operation on 32 or 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atomic {
    Swap,
    CompareSwap,
    Add,
    Subtract,
    ReverseSubtract,
    SignedMin,
    UnsignedMin,
    SignedMax,
    UnsignedMax,
    And,
    Or,
    Xor,
    Increment,
    Decrement,
    FloatAdd,
    FloatMin,
    FloatMax,
    PackedAddF16,
    PackedAddBf16,
}

const ATOMICS: [Atomic; 19] = [
    Atomic::Swap,
    Atomic::CompareSwap,
    Atomic::Add,
    Atomic::Subtract,
    Atomic::ReverseSubtract,
    Atomic::SignedMin,
    Atomic::UnsignedMin,
    Atomic::SignedMax,
    Atomic::UnsignedMax,
    Atomic::And,
    Atomic::Or,
    Atomic::Xor,
    Atomic::Increment,
    Atomic::Decrement,
    Atomic::FloatAdd,
    Atomic::FloatMin,
    Atomic::FloatMax,
    Atomic::PackedAddF16,
    Atomic::PackedAddBf16,
];

/// Defines the operations on integers of one width; operations on floats only are swaps there.
macro_rules! on_integers {
    ($name:ident, $word:ty) => {
        fn $name(self, old: $word, operand: $word, compare: $word) -> $word {
            match self {
                Self::Swap
                | Self::FloatAdd
                | Self::FloatMin
                | Self::FloatMax
                | Self::PackedAddF16
                | Self::PackedAddBf16 => operand,
                Self::CompareSwap => {
                    if old == compare {
                        operand
                    } else {
                        old
                    }
                }
                Self::Add => old.wrapping_add(operand),
                Self::Subtract => old.wrapping_sub(operand),
                Self::ReverseSubtract => operand.wrapping_sub(old),
                Self::SignedMin => old.cast_signed().min(operand.cast_signed()).cast_unsigned(),
                Self::SignedMax => old.cast_signed().max(operand.cast_signed()).cast_unsigned(),
                Self::UnsignedMin => old.min(operand),
                Self::UnsignedMax => old.max(operand),
                Self::And => old & operand,
                Self::Or => old | operand,
                Self::Xor => old ^ operand,
                Self::Increment => {
                    if old >= operand {
                        0
                    } else {
                        old + 1
                    }
                }
                Self::Decrement => {
                    if old == 0 || old > operand {
                        operand
                    } else {
                        old - 1
                    }
                }
            }
        }
    };
}

impl Atomic {
    /// The operation and whether it is on 64 bits, from a mnemonic's end: `add_u32`, `smax_x2`, `cmpswap_b64`, `add`.
    pub(super) fn parse(name: &str) -> Option<(Self, bool)> {
        let (operation, ty) = match name.rsplit_once('_') {
            Some((operation, ty))
                if matches!(
                    ty,
                    "u32" | "i32" | "b32" | "f32" | "u64" | "i64" | "b64" | "f64" | "f16" | "bf16" | "x2"
                ) =>
            {
                (operation, ty)
            }
            _ => (name, ""),
        };
        let wide = matches!(ty, "u64" | "i64" | "b64" | "f64" | "x2");
        let float = ty.starts_with('f');
        Some((
            match operation {
                "swap" | "wrxchg" | "storexchg" => Self::Swap,
                "cmpswap" | "cmpst" | "cmpstore" => Self::CompareSwap,
                "pk_add" if ty == "f16" => Self::PackedAddF16,
                "pk_add" if ty == "bf16" => Self::PackedAddBf16,
                "add" if float => Self::FloatAdd,
                "min" | "min_num" if float => Self::FloatMin,
                "max" | "max_num" if float => Self::FloatMax,
                "fmin" => Self::FloatMin,
                "fmax" => Self::FloatMax,
                "add" => Self::Add,
                "sub" => Self::Subtract,
                "rsub" => Self::ReverseSubtract,
                "smin" => Self::SignedMin,
                "umin" => Self::UnsignedMin,
                "smax" => Self::SignedMax,
                "umax" => Self::UnsignedMax,
                "min" if ty.starts_with('i') => Self::SignedMin,
                "min" if ty.starts_with('u') => Self::UnsignedMin,
                "max" if ty.starts_with('i') => Self::SignedMax,
                "max" if ty.starts_with('u') => Self::UnsignedMax,
                "and" => Self::And,
                "or" => Self::Or,
                "xor" => Self::Xor,
                "inc" => Self::Increment,
                "dec" => Self::Decrement,
                _ => return None,
            },
            wide,
        ))
    }

    pub(super) fn code(self) -> u32 {
        ATOMICS
            .iter()
            .position(|operation| *operation == self)
            .unwrap_or(0) as u32
    }

    pub(super) fn from_code(code: u32) -> Self {
        ATOMICS.get(code as usize).copied().unwrap_or(Self::Swap)
    }

    /// The new value of 32 bits.
    pub(super) fn apply32(self, old: u32, operand: u32, compare: u32) -> u32 {
        use super::float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, max_f32, min_f32};
        let (float, operand_float) = (f32::from_bits(old), f32::from_bits(operand));
        match self {
            Self::FloatAdd => (float + operand_float).to_bits(),
            Self::FloatMin => min_f32(float, operand_float).to_bits(),
            Self::FloatMax => max_f32(float, operand_float).to_bits(),
            Self::PackedAddF16 => {
                let half = |shift: u32| f32_to_f16(f16_to_f32(old >> shift) + f16_to_f32(operand >> shift));
                half(0) | half(16) << 16
            }
            Self::PackedAddBf16 => {
                let half = |shift: u32| {
                    f32_to_bf16(bf16_to_f32(old >> shift & 0xffff) + bf16_to_f32(operand >> shift & 0xffff))
                };
                half(0) | half(16) << 16
            }
            _ => self.apply_to_u32(old, operand, compare),
        }
    }

    /// The new value of 64 bits.
    pub(super) fn apply64(self, old: u64, operand: u64, compare: u64) -> u64 {
        match self {
            Self::FloatAdd => (f64::from_bits(old) + f64::from_bits(operand)).to_bits(),
            Self::FloatMin => f64::from_bits(old).min(f64::from_bits(operand)).to_bits(),
            Self::FloatMax => f64::from_bits(old).max(f64::from_bits(operand)).to_bits(),
            _ => self.apply_to_u64(old, operand, compare),
        }
    }

    on_integers!(apply_to_u32, u32);
    on_integers!(apply_to_u64, u64);
}

/// A lane's operand of an atomic operation, from registers `register` up.
pub(super) fn atomic_operand(
    context: &Context<'_, '_>,
    register: usize,
    wide: bool,
    lane: u32,
) -> Result<u64, Box<Exit>> {
    let wave = &*context.wave;
    let rows = if wide { 2 } else { 1 };
    let mut value = 0;
    for row in 0..rows {
        let [low, high] = wave.vgpr_known[register + row];
        if low & high & 1 << lane == 0 && context.space.checks().uninitialised {
            return Err(in_lane(uninitialised("the operand of an atomic operation"), lane));
        }
        value |= u64::from(wave.vgpr[register + row][lane as usize]) << (32 * row);
    }
    Ok(value)
}

/// Writes the old value that an atomic operation returns.
pub(super) fn deliver_old(wave: &mut Wave, register: usize, wide: bool, lane: u32, old: u64) {
    wave.set_vgpr(register, lane, old as u32);
    if wide {
        wave.set_vgpr(register + 1, lane, (old >> 32) as u32);
    }
}
