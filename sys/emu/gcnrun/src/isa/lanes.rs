//! Operands and results of all lanes: fetch a source, store under a mask, tell which lanes are known.
//!
//! Loops run over 32 lanes; a wave of 64 makes two rounds.

use super::element::{Element, F16, F32, F64};
use super::float::{f16_to_f32, f32_to_f16};
use crate::code::{Destination, Keep, Rest};
use crate::operands::{Change, Place, Source, Type};
use crate::wave::{EXEC, VCC, Wave};

/// One round's lanes of one register.
pub(crate) type Half = [u32; 32];

/// The 32 lanes of a register in one round.
#[inline(always)]
pub(crate) fn half_of(row: &[u32; 64], round: usize) -> &Half {
    let (low, high) = row.split_at(32);
    let half = if round == 0 { low } else { high };
    // The split's halves are 32 long.
    half.first_chunk().unwrap_or(&[0; 32])
}

#[inline(always)]
pub(crate) fn half_of_mut(row: &mut [u32; 64], round: usize) -> &mut [u32] {
    &mut row[32 * round..32 * round + 32]
}

/// The scalar that all lanes see.
#[inline(always)]
pub(crate) fn scalar(wave: &Wave, place: Place) -> u32 {
    match place {
        Place::Vgpr(_) => 0,
        Place::Sgpr(register) => wave.sgpr[usize::from(register)],
        Place::Constant(bits) => bits,
        Place::Scc => u32::from(wave.scc),
        Place::Vccz => u32::from(wave.mask(VCC) == 0),
        Place::Execz => u32::from(wave.mask(EXEC) == 0),
        Place::SharedBase => crate::space::SHARED_APERTURE,
        Place::PrivateBase => crate::space::PRIVATE_APERTURE,
    }
}

/// The known bits of a scalar.
#[inline(always)]
pub(crate) fn scalar_known(wave: &Wave, place: Place) -> u32 {
    match place {
        Place::Sgpr(register) => wave.sgpr_known[usize::from(register)],
        Place::Scc if !wave.scc_known => 0,
        _ => u32::MAX,
    }
}

#[inline(always)]
fn changed(bits: u32, change: Change) -> u32 {
    match change {
        Change::None => bits,
        Change::Bits {
            shift,
            width,
            signed,
            and,
            xor,
        } => {
            let unused = 32 - u32::from(width);
            let up = bits >> shift << unused;
            let part = if signed {
                (up.cast_signed() >> unused).cast_unsigned()
            } else {
                up >> unused
            };
            part & and ^ xor
        }
        Change::Pack { low, high, and, xor } => ((bits >> low) & 0xffff | (bits >> high) << 16) & and ^ xor,
        Change::Widen { shift, and, xor } => f16_to_f32(bits >> shift).to_bits() & and ^ xor,
    }
}

/// The lanes of a source in one round: the register itself where nothing changes it, or `buffer` filled.
#[inline(always)]
pub(crate) fn fetch<'a>(wave: &'a Wave, source: &Source, round: usize, buffer: &'a mut Half) -> &'a Half {
    if let (Place::Vgpr(register), Change::None) = (source.place, source.change) {
        return half_of(&wave.vgpr[usize::from(register)], round);
    }
    fetch_changed(wave, source, round, buffer);
    buffer
}

#[inline(never)]
fn fetch_changed(wave: &Wave, source: &Source, round: usize, buffer: &mut Half) {
    let Place::Vgpr(register) = source.place else {
        buffer.fill(changed(scalar(wave, source.place), source.change));
        return;
    };
    let row = half_of(&wave.vgpr[usize::from(register)], round);
    // Signs alone, the most frequent change, in a loop of their own that vectorises.
    if let Change::Bits {
        shift: 0,
        width: 32,
        and,
        xor,
        ..
    } = source.change
    {
        for (out, bits) in buffer.iter_mut().zip(row) {
            *out = bits & and ^ xor;
        }
        return;
    }
    for (out, bits) in buffer.iter_mut().zip(row) {
        *out = changed(*bits, source.change);
    }
}

/// One lane of a source.
#[inline]
pub(crate) fn fetch_lane(wave: &Wave, source: &Source, lane: usize) -> u32 {
    match source.place {
        Place::Vgpr(register) => changed(wave.vgpr[usize::from(register)][lane], source.change),
        place => changed(scalar(wave, place), source.change),
    }
}

/// The lanes in which everything that the operation sees of a source is known.
#[inline(always)]
pub(crate) fn known_lanes(wave: &Wave, source: &Source, ty: Type) -> u64 {
    let need: u32 = match source.change {
        Change::None if ty.is_half() => 0xffff,
        Change::None => u32::MAX,
        Change::Bits { shift, width, .. } => {
            let width = if ty.is_half() { width.min(16) } else { width };
            (u32::MAX >> (32 - u32::from(width))) << shift
        }
        Change::Pack { low, high, .. } => 0xffff << low | 0xffff << high,
        Change::Widen { shift, .. } => 0xffff << shift,
    };
    match source.place {
        Place::Vgpr(register) => {
            let [low, high] = wave.vgpr_known[usize::from(register)];
            let low = if need & 0xffff != 0 { low } else { u64::MAX };
            let high = if need >> 16 != 0 { high } else { u64::MAX };
            low & high
        }
        place => {
            if scalar_known(wave, place) & need == need {
                u64::MAX
            } else {
                0
            }
        }
    }
}

/// The lanes that an operation with these operands knows.
#[inline(always)]
pub(super) fn operand_lanes(wave: &Wave, operand: &[Source; 2], ty: Type) -> u64 {
    let low = known_lanes(wave, &operand[0], ty);
    if ty.is_wide() {
        low & known_lanes(wave, &operand[1], ty)
    } else {
        low
    }
}

/// Writes the lanes of a mask.
#[inline(always)]
pub(crate) fn blend(to: &mut [u32], from: &Half, mask: u32) {
    if mask == u32::MAX {
        to.copy_from_slice(from);
        return;
    }
    for (lane, (to, from)) in to.iter_mut().zip(from).enumerate() {
        *to = if mask & (1 << lane) == 0 { *to } else { *from };
    }
}

#[inline(never)]
fn scale_and_clamp(ty: Type, low: &mut Half, high: &mut Half, dst: &Destination) {
    for lane in 0..32 {
        (low[lane], high[lane]) = match ty {
            Type::F64 => {
                let value = F64::get(low[lane], high[lane]) * f64::from(dst.scale);
                F64::put(if dst.clamp { clamp_f64(value) } else { value })
            }
            Type::PackedF16 => {
                let clamped = |bits: u32| f32_to_f16(clamp_f32(f16_to_f32(bits)));
                (clamped(low[lane]) | clamped(low[lane] >> 16) << 16, 0)
            }
            Type::PackedF32 => {
                let clamped = |bits: u32| clamp_f32(f32::from_bits(bits)).to_bits();
                (clamped(low[lane]), clamped(high[lane]))
            }
            Type::F16 => {
                let value = f16_to_f32(low[lane]) * dst.scale;
                F16::put(if dst.clamp { clamp_f32(value) } else { value })
            }
            _ => {
                let value = f32::from_bits(low[lane]) * dst.scale;
                F32::put(if dst.clamp { clamp_f32(value) } else { value })
            }
        };
    }
}

/// Between 0 and 1; a NaN is 0 (DX10_CLAMP, which HIP sets).
pub(crate) fn clamp_f32(value: f32) -> f32 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

fn clamp_f64(value: f64) -> f64 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

#[inline(never)]
fn merge(keep: Keep, old: &Half, out: &mut Half) {
    for (out, old) in out.iter_mut().zip(old) {
        *out = match keep {
            Keep::None => *out,
            Keep::High => old & 0xffff_0000 | *out & 0xffff,
            Keep::Low => old & 0xffff | *out << 16,
            Keep::Sdwa { shift, width, rest } => {
                let mask = (u32::MAX >> (32 - u32::from(width))) << shift;
                let part = *out << shift & mask;
                match rest {
                    Rest::Zero => part,
                    Rest::Preserve => part | old & !mask,
                    Rest::Sign => {
                        let unused = 32 - u32::from(shift) - u32::from(width);
                        ((part << unused).cast_signed() >> unused).cast_unsigned()
                    }
                }
            }
        };
    }
}

/// Stores one round's results.
#[inline(always)]
pub(crate) fn store(
    wave: &mut Wave,
    dst: &Destination,
    ty: Type,
    round: usize,
    mask: u32,
    low: &mut Half,
    high: &mut Half,
) {
    let register = usize::from(dst.register);
    if dst.scale != 1.0 || dst.clamp {
        scale_and_clamp(ty, low, high, dst);
    }
    if dst.keep != Keep::None {
        merge(dst.keep, half_of(&wave.vgpr[register], round), low);
    }
    blend(half_of_mut(&mut wave.vgpr[register], round), low, mask);
    if ty.is_wide() {
        blend(half_of_mut(&mut wave.vgpr[register + 1], round), high, mask);
    }
}

/// Marks the lanes of a result as known.
#[inline(always)]
pub(crate) fn mark_known(wave: &mut Wave, dst: &Destination, ty: Type, lanes: u64) {
    let register = usize::from(dst.register);
    let [low, high] = written_halves(dst.keep);
    if low {
        wave.vgpr_known[register][0] |= lanes;
    }
    if high {
        wave.vgpr_known[register][1] |= lanes;
    }
    if ty.is_wide() {
        wave.vgpr_known[register + 1] = wave.vgpr_known[register + 1].map(|known| known | lanes);
    }
}

pub(super) fn written_halves(keep: Keep) -> [bool; 2] {
    match keep {
        Keep::None => [true, true],
        Keep::High => [true, false],
        Keep::Low => [false, true],
        Keep::Sdwa {
            rest: Rest::Preserve,
            shift,
            width,
        } => [shift < 16, shift + width > 16],
        Keep::Sdwa { .. } => [true, true],
    }
}
