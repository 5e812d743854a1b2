//! Vector loads, stores and atomic operations on global, flat and scratch memory, and through buffer descriptors.

use super::access::{
    Atomic, LoadedLanes, Width, active, addresses, atomic_operand, collect, deliver_old, must_be_known,
    with_bytes,
};
use super::lanes::{scalar, scalar_known};
use crate::code::{Context, Exit, Handler, Instruction, Outcome, in_lane, uninitialised};
use crate::fault::FaultKind;
use crate::line::Line;
use crate::operands::{Source, Type};
use crate::profile::Access;
use crate::space::{PRIVATE_APERTURE, Place as Aperture, aperture};

/// Cache control: no operations, since caches are not modelled.
const NOTHING: &[&str] = &[
    "buffer_gl0_inv",
    "buffer_gl1_inv",
    "buffer_wbinvl1",
    "buffer_wbinvl1_vol",
    "buffer_wbl2",
    "buffer_inv",
    "buffer_invl2",
    "global_inv",
    "global_wb",
    "global_wbinv",
];

/// The kind of memory that an address refers to; in `detail[1]`.
const GLOBAL: u32 = 0;
const FLAT: u32 = 1;
const SCRATCH: u32 = 2;
const BUFFER: u32 = 3;

pub(super) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let name = line.mnemonic;
    if NOTHING.contains(&name) {
        line.ignore_cache_policy();
        return Ok(Instruction::new(|_, _| Ok(())));
    }
    let (kind, operation) = name.split_once('_').ok_or_else(String::new)?;
    let kind = match kind {
        "global" => GLOBAL,
        "flat" => FLAT,
        "scratch" => SCRATCH,
        "buffer" => BUFFER,
        _ => return Err(String::new()),
    };
    if let Some(width) = operation.strip_prefix("load_").and_then(Width::parse) {
        return access(line, kind, width, true);
    }
    if let Some(width) = operation.strip_prefix("store_").and_then(Width::parse) {
        return access(line, kind, width, false);
    }
    if let Some((atomic, wide)) = operation.strip_prefix("atomic_").and_then(Atomic::parse) {
        return decode_atomic(line, kind, atomic, wide);
    }
    Err(String::new())
}

fn access(line: &mut Line<'_>, kind: u32, width: Width, load: bool) -> Result<Instruction, String> {
    let run: Handler = match (kind, load) {
        (BUFFER, true) => |c, i| with_bytes!(Width::unpack(i.detail[0]).bytes, buffer_load(c, i)),
        (BUFFER, false) => |c, i| with_bytes!(Width::unpack(i.detail[0]).bytes, buffer_store(c, i)),
        (_, true) => |c, i| with_bytes!(Width::unpack(i.detail[0]).bytes, load_lanes(c, i)),
        (_, false) => |c, i| with_bytes!(Width::unpack(i.detail[0]).bytes, store_lanes(c, i)),
    };
    let mut instruction = Instruction::new(run);
    // The data register comes first, in loads and stores.
    let (data, address) = if load || kind == BUFFER { (0, 1) } else { (1, 0) };
    let (register, count) = line.vgpr(data)?;
    if u32::from(count) != width.bytes.div_ceil(4) {
        return Err(format!("the registers of {}", line.mnemonic));
    }
    instruction.dst.register = register;
    instruction.detail = [width.pack(), kind, 0, 0];
    address_operands(line, &mut instruction, kind, address, 2)?;
    line.ignore_cache_policy();
    Ok(instruction)
}

/// Puts the vector part of an address into `src[0]` and the scalar base into `src[1]`. For buffers, puts the descriptor into
/// `src[1]` and `src[2]`, and the scalar offset into `src[3]`.
fn address_operands(
    line: &mut Line<'_>,
    instruction: &mut Instruction,
    kind: u32,
    address: usize,
    scalar: usize,
) -> Result<(), String> {
    instruction.offset = line.number("offset")?;
    let absent = |line: &Line<'_>, index: usize| {
        matches!(line.operands.get(index).copied(), None | Some("off" | "null"))
    };
    if kind == BUFFER {
        let offen = line.flag("offen");
        instruction.src[0] = if offen {
            line.source(address, Type::U32)?
        } else {
            [Source::ZERO; 2]
        };
        instruction.src[1] = line.source(scalar, Type::U64)?;
        let first = instruction.src[1][0]
            .sgpr()
            .ok_or_else(|| format!("the descriptor of {}", line.mnemonic))?;
        if first % 4 != 0 || first > 100 {
            return Err(format!("the descriptor of {}", line.mnemonic));
        }
        let word = |n: usize| Source::plain(crate::operands::Place::Sgpr((first + n) as u8));
        instruction.src[2] = [word(2), word(3)];
        instruction.src[3] = line.source(scalar + 1, Type::U32)?;
        return Ok(());
    }
    let base = !absent(line, scalar);
    if base {
        instruction.src[1] = line.source(scalar, if kind == SCRATCH { Type::U32 } else { Type::U64 })?;
        if kind == SCRATCH {
            instruction.src[1][1] = Source::ZERO;
        }
    }
    // 64 bits of address, or 32 added to a base.
    let wide = !base && kind != SCRATCH;
    if !absent(line, address) {
        instruction.src[0] = line.source(address, if wide { Type::U64 } else { Type::U32 })?;
    }
    instruction.detail[2] = u32::from(wide);
    Ok(())
}

fn lane_addresses(context: &Context<'_, '_>, instruction: &Instruction) -> Result<[u64; 64], Box<Exit>> {
    addresses(
        context,
        instruction,
        [&instruction.src[0], &instruction.src[1]],
        instruction.detail[2] == 1,
    )
}

/// Counts an access of a profiled launch. Generic addresses of LDS and scratch memory count as scratch memory.
#[inline]
fn record(context: &mut Context<'_, '_>, kind: u32, access: Access, addresses: &[u64; 64], bytes: u32) {
    let exec = context.wave.exec();
    if let Some(observer) = &mut context.space.observer {
        let global = |lane: u32| match kind {
            FLAT => aperture(addresses[lane as usize]) == Aperture::Global,
            kind => kind == GLOBAL,
        };
        let global = active(exec)
            .filter(|&lane| global(lane))
            .fold(0, |mask, lane| mask | 1 << lane);
        observer.global(access, addresses, [global, exec & !global], bytes);
    }
}

/// Records an access through a buffer descriptor. See [`record`].
#[inline]
fn record_buffer(
    context: &mut Context<'_, '_>,
    buffer: &Descriptor,
    access: Access,
    offsets: &[u64; 64],
    bytes: u32,
) {
    if context.space.observer.is_none() {
        return;
    }
    let exec = context.wave.exec();
    let (mut addresses, mut global, mut scratch) = ([0; 64], 0, 0);
    for lane in active(exec) {
        match buffer.locate(context, offsets[lane as usize], bytes) {
            Buffer::Scratch(_) => scratch |= 1 << lane,
            Buffer::Global(address) => {
                addresses[lane as usize] = address;
                global |= 1 << lane;
            }
            Buffer::Outside => {}
        }
    }
    if let Some(observer) = &mut context.space.observer {
        observer.global(access, &addresses, [global, scratch], bytes);
    }
}

fn load_lanes<const N: usize>(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let [width, kind, ..] = instruction.detail;
    let width = Width::unpack(width);
    let addresses = lane_addresses(context, instruction)?;
    record(context, kind, Access::Load, &addresses, N as u32);
    let mut delivery = LoadedLanes::new(usize::from(instruction.dst.register), width);
    for lane in active(context.wave.exec()) {
        let address = addresses[lane as usize];
        let loaded = match kind {
            GLOBAL => context.space.global_load::<N>(address),
            FLAT => context.space.flat_load::<N>(lane, address),
            _ => context.space.scratch_load::<N>(lane, address as u32),
        };
        let (bytes, known) = loaded.map_err(|kind| in_lane(kind, lane))?;
        delivery.lane(context.wave, lane, bytes, known);
    }
    delivery.finish(context.wave);
    Ok(())
}

fn store_lanes<const N: usize>(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let [width, kind, ..] = instruction.detail;
    let width = Width::unpack(width);
    let addresses = lane_addresses(context, instruction)?;
    record(context, kind, Access::Store, &addresses, N as u32);
    let register = usize::from(instruction.dst.register);
    for lane in active(context.wave.exec()) {
        let address = addresses[lane as usize];
        let (bytes, known) = collect::<N>(context.wave, register, width, lane);
        let stored = match kind {
            GLOBAL => must_be_known::<N>(context, known)
                .and_then(|()| context.space.global_store(address, bytes, known)),
            FLAT if aperture(address) == Aperture::Global => must_be_known::<N>(context, known)
                .and_then(|()| context.space.global_store(address, bytes, known)),
            FLAT => context.space.flat_store(lane, address, bytes, known),
            _ => context.space.scratch_store(lane, address as u32, bytes, known),
        };
        stored.map_err(|kind| in_lane(kind, lane))?;
    }
    Ok(())
}

fn decode_atomic(line: &mut Line<'_>, kind: u32, atomic: Atomic, wide: bool) -> Result<Instruction, String> {
    if kind == BUFFER || kind == SCRATCH {
        return Err(String::new());
    }
    let temporal = line.take("th").unwrap_or_default();
    let returns = line.has("glc") || line.has("sc0") || temporal.contains("RETURN");
    let mut instruction = Instruction::new(run_atomic);
    let first = usize::from(returns);
    if returns {
        instruction.dst.register = line.vgpr(0)?.0;
    }
    let (data, count) = line.vgpr(first + 1)?;
    let rows = if wide { 2 } else { 1 } * if atomic == Atomic::CompareSwap { 2 } else { 1 };
    if count != rows {
        return Err(format!("the registers of {}", line.mnemonic));
    }
    instruction.detail = [
        atomic.code() | u32::from(wide) << 8 | u32::from(returns) << 9,
        kind,
        0,
        u32::from(data),
    ];
    address_operands(line, &mut instruction, kind, first, first + 2)?;
    line.ignore_cache_policy();
    Ok(instruction)
}

fn run_atomic(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let [operation, kind, _, data] = instruction.detail;
    let (atomic, wide, returns) = (
        Atomic::from_code(operation & 255),
        operation >> 8 & 1 == 1,
        operation >> 9 & 1 == 1,
    );
    let data = data as usize;
    let addresses = lane_addresses(context, instruction)?;
    record(
        context,
        kind,
        Access::Atomic,
        &addresses,
        if wide { 8 } else { 4 },
    );
    for lane in active(context.wave.exec()) {
        let address = addresses[lane as usize];
        let operand = atomic_operand(context, data, wide, lane)?;
        let compare = match atomic {
            Atomic::CompareSwap => atomic_operand(context, data + if wide { 2 } else { 1 }, wide, lane)?,
            _ => 0,
        };
        let old = match (kind, wide) {
            (GLOBAL, false) => context
                .space
                .global_update32(address, |old| atomic.apply32(old, operand as u32, compare as u32))
                .map(u64::from),
            (GLOBAL, true) => context
                .space
                .global_update64(address, |old| atomic.apply64(old, operand, compare)),
            (_, false) => context
                .space
                .flat_update32(lane, address, |old| {
                    atomic.apply32(old, operand as u32, compare as u32)
                })
                .map(u64::from),
            (_, true) => context
                .space
                .flat_update64(lane, address, |old| atomic.apply64(old, operand, compare)),
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

/// The target of a lane's buffer access.
enum Buffer {
    Scratch(u32),
    Global(u64),
    /// Beyond the buffer: loads give zeros, stores do nothing.
    Outside,
}

struct Descriptor {
    base: u64,
    scratch: bool,
    records: u32,
    /// The scalar offset: for scratch memory in bytes of the wave, otherwise in bytes.
    offset: u32,
}

fn descriptor(context: &Context<'_, '_>, instruction: &Instruction) -> Result<Descriptor, Box<Exit>> {
    let wave = &*context.wave;
    let [low, high] = instruction.src[1].map(|source| source.place);
    let [records, flags] = instruction.src[2].map(|source| source.place);
    let offset = instruction.src[3][0].place;
    let known = [low, high, records, flags, offset]
        .into_iter()
        .fold(u32::MAX, |known, place| known & scalar_known(wave, place));
    if known != u32::MAX && context.space.checks().uninitialised {
        return Err(uninitialised("the buffer descriptor").into());
    }
    let (low, high, records) = (scalar(wave, low), scalar(wave, high), scalar(wave, records));
    let scratch = high == PRIVATE_APERTURE;
    // Only descriptors of plain bytes are supported: no stride, no swizzling, no addition of thread ids.
    if !scratch && (high >> 16 != 0 || scalar(wave, flags) & 1 << 23 != 0) {
        return Err(FaultKind::UnknownInstruction {
            what: "a buffer descriptor with a stride".to_owned(),
        }
        .into());
    }
    Ok(Descriptor {
        base: u64::from(low) | u64::from(high & 0xffff) << 32,
        scratch,
        records,
        offset: scalar(wave, offset),
    })
}

impl Descriptor {
    fn locate(&self, context: &Context<'_, '_>, lane_offset: u64, bytes: u32) -> Buffer {
        if self.scratch {
            // Scratch memory of lanes is interleaved, so a wave's offset is the lane's times the number of lanes.
            return Buffer::Scratch((lane_offset as u32).wrapping_add(self.offset / context.wave.lanes));
        }
        if lane_offset + u64::from(bytes) > u64::from(self.records) {
            return Buffer::Outside;
        }
        Buffer::Global(self.base + u64::from(self.offset) + lane_offset)
    }
}

fn buffer_load<const N: usize>(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let width = Width::unpack(instruction.detail[0]);
    let buffer = descriptor(context, instruction)?;
    let offsets = addresses(
        context,
        instruction,
        [&instruction.src[0], &[Source::ZERO; 2]],
        false,
    )?;
    record_buffer(context, &buffer, Access::Load, &offsets, N as u32);
    let mut delivery = LoadedLanes::new(usize::from(instruction.dst.register), width);
    for lane in active(context.wave.exec()) {
        let loaded = match buffer.locate(context, offsets[lane as usize], N as u32) {
            Buffer::Scratch(offset) => context.space.scratch_load::<N>(lane, offset),
            Buffer::Global(address) => context.space.global_load::<N>(address),
            Buffer::Outside => Ok(([0; N], u16::MAX)),
        };
        let (bytes, known) = loaded.map_err(|kind| in_lane(kind, lane))?;
        delivery.lane(context.wave, lane, bytes, known);
    }
    delivery.finish(context.wave);
    Ok(())
}

fn buffer_store<const N: usize>(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let width = Width::unpack(instruction.detail[0]);
    let buffer = descriptor(context, instruction)?;
    let offsets = addresses(
        context,
        instruction,
        [&instruction.src[0], &[Source::ZERO; 2]],
        false,
    )?;
    record_buffer(context, &buffer, Access::Store, &offsets, N as u32);
    for lane in active(context.wave.exec()) {
        let (bytes, known) = collect::<N>(context.wave, usize::from(instruction.dst.register), width, lane);
        let stored = match buffer.locate(context, offsets[lane as usize], N as u32) {
            Buffer::Scratch(offset) => context.space.scratch_store(lane, offset, bytes, known),
            Buffer::Global(address) => must_be_known::<N>(context, known)
                .and_then(|()| context.space.global_store(address, bytes, known)),
            Buffer::Outside => Ok(()),
        };
        stored.map_err(|kind| in_lane(kind, lane))?;
    }
    Ok(())
}
