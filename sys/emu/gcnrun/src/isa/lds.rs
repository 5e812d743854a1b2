//! LDS: loads, stores, atomic operations, and the lane permutations of the LDS hardware.

use super::access::{
    Atomic, LoadedLanes, Width, active, addresses, atomic_operand, collect, deliver_old, with_bytes,
};
use super::cross::gather;
use super::lanes::known_lanes;
use crate::code::{Context, Exit, Handler, Instruction, Outcome, in_lane, uninitialised};
use crate::line::Line;
use crate::operands::{Source, Type};
use crate::profile::Access;

/// Prefixes of instructions with two offsets: elements per unit of offset, and whether it is a load.
const TWO_ADDRESSES: &[(&str, u32, bool)] = &[
    ("load_2addr_stride64_", 64, true),
    ("load_2addr_", 1, true),
    ("read2st64_", 64, true),
    ("read2_", 1, true),
    ("store_2addr_stride64_", 64, false),
    ("store_2addr_", 1, false),
    ("write2st64_", 64, false),
    ("write2_", 1, false),
];

pub(super) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let name = line.mnemonic.strip_prefix("ds_").ok_or_else(String::new)?;
    match name {
        "bpermute_b32" => return permutation(line, pull),
        "permute_b32" => return permutation(line, push),
        "swizzle_b32" => {
            // The text names the pattern; the encoding has its bits.
            line.take("offset");
            let mut instruction = Instruction::new(swizzle);
            instruction.dst.register = line.vgpr(0)?.0;
            instruction.src[0] = line.source(1, Type::U32)?;
            instruction.offset = i64::from(line.word & 0xffff);
            return Ok(instruction);
        }
        "nop" => return Ok(Instruction::new(|_, _| Ok(()))),
        _ => {}
    }
    for (prefix, stride, load) in TWO_ADDRESSES {
        if let Some(element) = name.strip_prefix(prefix) {
            return two_addresses(line, element, *stride, *load);
        }
    }
    for (prefix, load) in [
        ("load_", true),
        ("read_", true),
        ("store_", false),
        ("write_", false),
    ] {
        if let Some(width) = name.strip_prefix(prefix).and_then(Width::parse) {
            let run: Handler = if load {
                |c, i| with_bytes!(Width::unpack(i.detail[0]).bytes, load_lanes(c, i))
            } else {
                |c, i| with_bytes!(Width::unpack(i.detail[0]).bytes, store_lanes(c, i))
            };
            let mut instruction = Instruction::new(run);
            let (data, address) = if load { (0, 1) } else { (1, 0) };
            let (register, count) = line.vgpr(data)?;
            if u32::from(count) != width.bytes.div_ceil(4) {
                return Err(format!("the registers of {}", line.mnemonic));
            }
            instruction.dst.register = register;
            instruction.src[0] = line.source(address, Type::U32)?;
            instruction.offset = line.number("offset")?;
            instruction.detail[0] = width.pack();
            return Ok(instruction);
        }
    }
    let returns = name.contains("_rtn");
    let (atomic, wide) = Atomic::parse(&name.replace("_rtn", "")).ok_or_else(String::new)?;
    let mut instruction = Instruction::new(run_atomic);
    let first = usize::from(returns);
    if returns {
        instruction.dst.register = line.vgpr(0)?.0;
    }
    instruction.src[0] = line.source(first, Type::U32)?;
    let (data, _) = line.vgpr(first + 1)?;
    let second = if atomic == Atomic::CompareSwap {
        line.vgpr(first + 2)?.0
    } else {
        data
    };
    // The first operand of DS_CMPST is the value to compare with, that of DS_CMPSTORE the new value.
    let (operand, compare) = if name.starts_with("cmpst_") {
        (second, data)
    } else {
        (data, second)
    };
    instruction.offset = line.number("offset")?;
    instruction.detail = [
        atomic.code() | u32::from(wide) << 8 | u32::from(returns) << 9,
        u32::from(operand),
        u32::from(compare),
        0,
    ];
    Ok(instruction)
}

/// The lanes' offsets in LDS, 32 bits that wrap.
fn offsets(context: &Context<'_, '_>, instruction: &Instruction) -> Result<[u64; 64], Box<Exit>> {
    addresses(
        context,
        instruction,
        [&instruction.src[0], &[Source::ZERO; 2]],
        false,
    )
}

/// Counts an access of a profiled launch, `offset` bytes beyond the lanes' offsets.
#[inline]
fn record(context: &mut Context<'_, '_>, access: Access, offsets: &[u64; 64], offset: u32, bytes: u32) {
    let exec = context.wave.exec();
    if let Some(observer) = &mut context.space.observer {
        let offsets = offsets.map(|at| at.wrapping_add(u64::from(offset)));
        observer.lds(access, &offsets, exec, bytes);
    }
}

/// Counts an exchange between lanes of a profiled launch.
#[inline]
fn record_permutation(context: &mut Context<'_, '_>) {
    if let Some(observer) = &mut context.space.observer {
        observer.permutation();
    }
}

fn load_lanes<const N: usize>(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let width = Width::unpack(instruction.detail[0]);
    let offsets = offsets(context, instruction)?;
    record(context, Access::Load, &offsets, 0, N as u32);
    let mut delivery = LoadedLanes::new(usize::from(instruction.dst.register), width);
    for lane in active(context.wave.exec()) {
        let (bytes, known) = context
            .space
            .lds_load::<N>(offsets[lane as usize] as u32)
            .map_err(|kind| in_lane(kind, lane))?;
        delivery.lane(context.wave, lane, bytes, known);
    }
    delivery.finish(context.wave);
    Ok(())
}

fn store_lanes<const N: usize>(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let width = Width::unpack(instruction.detail[0]);
    let offsets = offsets(context, instruction)?;
    record(context, Access::Store, &offsets, 0, N as u32);
    for lane in active(context.wave.exec()) {
        let (bytes, known) = collect::<N>(context.wave, usize::from(instruction.dst.register), width, lane);
        context
            .space
            .lds_store(offsets[lane as usize] as u32, bytes, known)
            .map_err(|kind| in_lane(kind, lane))?;
    }
    Ok(())
}

/// `read2`, `write2st64` and the like: two offsets counted in elements, or in 64 elements.
fn two_addresses(line: &mut Line<'_>, element: &str, stride: u32, load: bool) -> Result<Instruction, String> {
    let bytes: u32 = match element {
        "b32" => 4,
        "b64" => 8,
        _ => return Err(String::new()),
    };
    let run: Handler = match (load, bytes) {
        (true, 4) => load_two::<4>,
        (true, _) => load_two::<8>,
        (false, 4) => store_two::<4>,
        (false, _) => store_two::<8>,
    };
    let mut instruction = Instruction::new(run);
    let width = Width {
        bytes,
        signed: false,
        half: None,
    };
    let scale = bytes * stride;
    let first = line.number("offset0")? as u32 * scale;
    let second = line.number("offset1")? as u32 * scale;
    let (data, other) = if load {
        instruction.src[0] = line.source(1, Type::U32)?;
        let (register, _) = line.vgpr(0)?;
        (register, register + (bytes / 4) as u16)
    } else {
        instruction.src[0] = line.source(0, Type::U32)?;
        (line.vgpr(1)?.0, line.vgpr(2)?.0)
    };
    instruction.dst.register = data;
    instruction.detail = [width.pack(), first, second, u32::from(other)];
    Ok(instruction)
}

fn load_two<const N: usize>(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let [width, first, second, other] = instruction.detail;
    let offsets = offsets(context, instruction)?;
    for (offset, register) in [
        (first, usize::from(instruction.dst.register)),
        (second, other as usize),
    ] {
        record(context, Access::Load, &offsets, offset, N as u32);
        let mut delivery = LoadedLanes::new(register, Width::unpack(width));
        for lane in active(context.wave.exec()) {
            let at = (offsets[lane as usize] as u32).wrapping_add(offset);
            let (bytes, known) = context
                .space
                .lds_load::<N>(at)
                .map_err(|kind| in_lane(kind, lane))?;
            delivery.lane(context.wave, lane, bytes, known);
        }
        delivery.finish(context.wave);
    }
    Ok(())
}

fn store_two<const N: usize>(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let [width, first, second, other] = instruction.detail;
    let offsets = offsets(context, instruction)?;
    for offset in [first, second] {
        record(context, Access::Store, &offsets, offset, N as u32);
    }
    for lane in active(context.wave.exec()) {
        for (offset, register) in [
            (first, usize::from(instruction.dst.register)),
            (second, other as usize),
        ] {
            let (bytes, known) = collect::<N>(context.wave, register, Width::unpack(width), lane);
            let at = (offsets[lane as usize] as u32).wrapping_add(offset);
            context
                .space
                .lds_store(at, bytes, known)
                .map_err(|kind| in_lane(kind, lane))?;
        }
    }
    Ok(())
}

fn run_atomic(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let [operation, operand, compare, _] = instruction.detail;
    let (atomic, wide, returns) = (
        Atomic::from_code(operation & 255),
        operation >> 8 & 1 == 1,
        operation >> 9 & 1 == 1,
    );
    let offsets = offsets(context, instruction)?;
    record(context, Access::Atomic, &offsets, 0, if wide { 8 } else { 4 });
    for lane in active(context.wave.exec()) {
        let at = offsets[lane as usize] as u32;
        let operand = atomic_operand(context, operand as usize, wide, lane)?;
        let compare = atomic_operand(context, compare as usize, wide, lane)?;
        let old = if wide {
            context
                .space
                .lds_update64(at, |old| atomic.apply64(old, operand, compare))
        } else {
            context
                .space
                .lds_update32(at, |old| atomic.apply32(old, operand as u32, compare as u32))
                .map(u64::from)
        };
        let old = old.map_err(|kind| in_lane(kind, lane))?;
        if returns {
            deliver_old(
                context.wave,
                usize::from(instruction.dst.register),
                wide,
                lane,
                old,
            );
        }
    }
    Ok(())
}

/// `ds_bpermute_b32` and `ds_permute_b32`: `src[0]` is the data, `src[1]` the byte offset of the lane.
fn permutation(line: &mut Line<'_>, run: Handler) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(run);
    instruction.dst.register = line.vgpr(0)?.0;
    instruction.src[1] = line.source(1, Type::U32)?;
    instruction.src[0] = line.source(2, Type::U32)?;
    instruction.offset = line.number("offset")?;
    Ok(instruction)
}

/// The lane that each active lane selects.
fn named_lanes(context: &Context<'_, '_>, instruction: &Instruction) -> Result<[u32; 64], Box<Exit>> {
    let wave = &*context.wave;
    let exec = wave.exec();
    let unknown = exec & !known_lanes(wave, &instruction.src[1][0], Type::U32);
    if unknown != 0 && context.space.checks().uninitialised {
        return Err(in_lane(
            uninitialised("the lane to exchange with"),
            unknown.trailing_zeros(),
        ));
    }
    let mut lanes = [0; 64];
    for lane in active(exec) {
        let at = super::lanes::fetch_lane(wave, &instruction.src[1][0], lane as usize)
            .wrapping_add(instruction.offset as u32);
        lanes[lane as usize] = at >> 2 & (wave.lanes - 1);
    }
    Ok(lanes)
}

/// DS_BPERMUTE: each lane reads the selected lane; 0 if that is inactive.
fn pull(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    record_permutation(context);
    let lanes = named_lanes(context, instruction)?;
    let exec = context.wave.exec();
    gather(context.wave, instruction, 0, exec, |_, lane| {
        let from = lanes[lane as usize];
        (exec >> from & 1 == 1).then_some(from)
    });
    Ok(())
}

/// DS_PERMUTE: each lane writes to the selected lane; the last one wins, and lanes that none selects get 0.
fn push(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    record_permutation(context);
    let lanes = named_lanes(context, instruction)?;
    let exec = context.wave.exec();
    let mut giver = [None; 64];
    for lane in active(exec) {
        giver[lanes[lane as usize] as usize] = Some(lane);
    }
    gather(context.wave, instruction, 0, exec, |_, lane| giver[lane as usize]);
    Ok(())
}

/// DS_SWIZZLE: a pattern within 4 or 32 lanes.
fn swizzle(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    record_permutation(context);
    let pattern = instruction.offset as u32;
    let exec = context.wave.exec();
    let rotates = pattern >= 0xc000;
    gather(context.wave, instruction, 0, exec, |_, lane| {
        let within = lane & 31;
        let from = if rotates {
            // Rotation within groups: mask in bits 0 to 4, distance in 5 to 9, direction in 10.
            let (mask, distance) = (pattern & 31, pattern >> 5 & 31);
            let turned = if pattern >> 10 & 1 == 1 {
                within.wrapping_sub(distance)
            } else {
                within + distance
            };
            within & mask | turned & !mask & 31
        } else if pattern & 0x8000 != 0 {
            within & !3 | pattern >> (2 * (within & 3)) & 3
        } else {
            (within & pattern | pattern >> 5) & 31 ^ pattern >> 10 & 31
        };
        let from = lane & !31 | from;
        (exec >> from & 1 == 1).then_some(from)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::cross::write_row;

    #[test]
    fn rows_are_written_under_a_mask() {
        let mut wave = crate::wave::Wave::new(32, 4, 0);
        let mut instruction = Instruction::new(|_, _| Ok(()));
        instruction.dst.register = 2;
        write_row(&mut wave, &instruction, &[7; 64], 0b101, [u64::MAX, 0]);
        assert_eq!(wave.vgpr[2][..3], [7, crate::wave::POISON, 7]);
        assert_eq!(wave.vgpr_known[2], [0b101, 0]);
    }
}
