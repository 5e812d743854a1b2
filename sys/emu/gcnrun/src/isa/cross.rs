//! Vector instructions that read other lanes, or registers chosen at run time.

use super::lanes::*;
use super::rows::{destination, sources};
use super::salu::write;
use crate::code::{Context, Exit, Handler, Instruction, Outcome, uninitialised};
use crate::line::Line;
use crate::operands::{Place, Type, named_half};
use crate::wave::{M0, Wave};

/// `None` if another file decodes the mnemonic.
pub(super) fn decode(line: &mut Line<'_>, base: &str) -> Option<Result<Instruction, String>> {
    Some(match base {
        "v_readfirstlane_b32" => to_scalar(line, read_first_lane),
        "v_readlane_b32" => to_scalar(line, read_lane).and_then(|mut instruction| {
            instruction.src[1] = line.source(2, Type::U32)?;
            Ok(instruction)
        }),
        "v_writelane_b32" => with_sources(line, write_lane, 2),
        "v_mbcnt_lo_u32_b32" => with_sources(line, |c, i| count_below(c, i, 0), 2),
        "v_mbcnt_hi_u32_b32" => with_sources(line, |c, i| count_below(c, i, 32), 2),
        "v_permlane16_b32" => permutation(line, |c, i| permute_rows(c, i, 0)),
        "v_permlanex16_b32" => permutation(line, |c, i| permute_rows(c, i, 16)),
        "v_permlane64_b32" => with_sources(line, swap_halves_of_wave, 1),
        "v_swap_b32" => with_sources(line, swap, 1),
        "v_swap_b16" => decode_swap_of_halves(line),
        "v_movrels_b32" => with_sources(line, |c, i| move_relative(c, i, true, false), 1),
        "v_movreld_b32" => with_sources(line, |c, i| move_relative(c, i, false, true), 1),
        "v_movrelsd_b32" => with_sources(line, |c, i| move_relative(c, i, true, true), 1),
        "v_nop" | "v_pipeflush" => Ok(Instruction::new(|_, _| Ok(()))),
        _ => return None,
    })
}

fn to_scalar(line: &mut Line<'_>, run: Handler) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(run);
    instruction.sdst = line.sgpr(0)?;
    instruction.src[0] = line.source(1, Type::U32)?;
    Ok(instruction)
}

fn with_sources(line: &mut Line<'_>, run: Handler, count: usize) -> Result<Instruction, String> {
    if line.operands.len() != count + 1 {
        return Err(format!("{} with {} operands", line.mnemonic, line.operands.len()));
    }
    let mut instruction = Instruction::new(run);
    sources(line, &mut instruction, 1, &[Type::U32; 2][..count], [false; 4])?;
    instruction.dst = destination(line, "", Type::U32, false)?;
    Ok(instruction)
}

fn permutation(line: &mut Line<'_>, run: Handler) -> Result<Instruction, String> {
    let op_sel = line.bits("op_sel", false)?;
    let mut instruction = Instruction::new(run);
    sources(line, &mut instruction, 1, &[Type::U32; 3], [false; 4])?;
    instruction.dst = destination(line, "", Type::U32, false)?;
    instruction.detail = [u32::from(op_sel[0]), u32::from(op_sel[1]), 0, 0];
    Ok(instruction)
}

/// The known bits of one lane of a register.
fn lane_known(wave: &Wave, place: Place, lane: usize) -> u32 {
    match place {
        Place::Vgpr(register) => {
            let [low, high] = wave.vgpr_known[usize::from(register)];
            ((low >> lane & 1) as u32 * 0xffff) | ((high >> lane & 1) as u32 * 0xffff_0000)
        }
        place => scalar_known(wave, place),
    }
}

fn write_scalar(context: &mut Context<'_, '_>, instruction: &Instruction, lane: usize) -> Outcome {
    let source = &instruction.src[0][0];
    let value = fetch_lane(context.wave, source, lane);
    let known = lane_known(context.wave, source.place, lane);
    match instruction.sdst {
        Some(register) => write(
            context,
            usize::from(register),
            1,
            u64::from(value),
            u64::from(known),
        ),
        None => Ok(()),
    }
}

fn read_first_lane(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let exec = context.wave.exec();
    let lane = if exec == 0 { 0 } else { exec.trailing_zeros() };
    write_scalar(context, instruction, lane as usize)
}

/// The lane that the second operand names.
fn lane_operand(context: &Context<'_, '_>, instruction: &Instruction) -> Result<usize, Box<Exit>> {
    let place = instruction.src[1][0].place;
    if scalar_known(context.wave, place) != u32::MAX && context.space.checks().uninitialised {
        return Err(uninitialised("the lane index").into());
    }
    Ok((scalar(context.wave, place) & (context.wave.lanes - 1)) as usize)
}

fn read_lane(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let lane = lane_operand(context, instruction)?;
    write_scalar(context, instruction, lane)
}

fn write_lane(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let lane = lane_operand(context, instruction)?;
    let place = instruction.src[0][0].place;
    let known = scalar_known(context.wave, place);
    let value = scalar(context.wave, place);
    let register = usize::from(instruction.dst.register);
    context.wave.vgpr[register][lane] = value;
    set_lane_known(context.wave, register, lane, known);
    Ok(())
}

fn set_lane_known(wave: &mut Wave, register: usize, lane: usize, known: u32) {
    for (half, mask) in [0xffff, 0xffff_0000].into_iter().enumerate() {
        let bits = &mut wave.vgpr_known[register][half];
        *bits = *bits & !(1 << lane) | u64::from(known & mask == mask) << lane;
    }
}

/// Counts the mask's bits for lanes below each lane, 32 lanes from `first` up, and adds the second operand.
fn count_below(context: &mut Context<'_, '_>, instruction: &Instruction, first: u32) -> Outcome {
    let wave = &mut *context.wave;
    let exec = wave.exec();
    let mut out = [0; 64];
    for lane in (0..wave.lanes).filter(|lane| exec >> lane & 1 == 1) {
        let below = lane.saturating_sub(first).min(32);
        let mask = ((1_u64 << below) - 1) as u32;
        let bits = fetch_lane(wave, &instruction.src[0][0], lane as usize) & mask;
        let add = fetch_lane(wave, &instruction.src[1][0], lane as usize);
        out[lane as usize] = bits.count_ones().wrapping_add(add);
    }
    let known = known_lanes(wave, &instruction.src[0][0], Type::U32)
        & known_lanes(wave, &instruction.src[1][0], Type::U32);
    write_row(wave, instruction, &out, exec, [known; 2]);
    Ok(())
}

/// Writes a row under a mask, known in these lanes.
pub(super) fn write_row(
    wave: &mut Wave,
    instruction: &Instruction,
    out: &[u32; 64],
    mask: u64,
    known: [u64; 2],
) {
    let register = usize::from(instruction.dst.register);
    for round in 0..(wave.lanes / 32) as usize {
        blend(
            half_of_mut(&mut wave.vgpr[register], round),
            half_of(out, round),
            (mask >> (32 * round)) as u32,
        );
    }
    for (half, known) in known.into_iter().enumerate() {
        let bits = &mut wave.vgpr_known[register][half];
        *bits = *bits & !mask | known & mask;
    }
}

/// Permutes lanes: `from` gives the lane whose value each active lane takes; `None` gives zero.
pub(super) fn gather(
    wave: &mut Wave,
    instruction: &Instruction,
    source: usize,
    mask: u64,
    from: impl Fn(&Wave, u32) -> Option<u32>,
) {
    let place = instruction.src[source][0].place;
    let mut out = [0; 64];
    let mut known = [u64::MAX; 2];
    for lane in (0..wave.lanes).filter(|lane| mask >> lane & 1 == 1) {
        if let Some(other) = from(wave, lane) {
            out[lane as usize] = fetch_lane(wave, &instruction.src[source][0], other as usize);
            let bits = lane_known(wave, place, other as usize);
            for (half, mask) in [0xffff, 0xffff_0000].into_iter().enumerate() {
                if bits & mask != mask {
                    known[half] &= !(1 << lane);
                }
            }
        }
    }
    write_row(wave, instruction, &out, mask, known);
}

/// V_PERMLANE16 and V_PERMLANEX16: within a row of 16 lanes, or from the adjacent row.
fn permute_rows(context: &mut Context<'_, '_>, instruction: &Instruction, flip: u32) -> Outcome {
    let [fetch_inactive, bound, ..] = instruction.detail;
    let places = [instruction.src[1][0].place, instruction.src[2][0].place];
    if places
        .iter()
        .any(|place| scalar_known(context.wave, *place) != u32::MAX)
        && context.space.checks().uninitialised
    {
        return Err(uninitialised("the lane selector").into());
    }
    let wave = &mut *context.wave;
    let selector = u64::from(scalar(wave, places[0])) | u64::from(scalar(wave, places[1])) << 32;
    let exec = wave.exec();
    let from = |lane: u32| (lane & !15 ^ flip) | (selector >> (4 * (lane & 15)) & 15) as u32;
    let valid = |lane: u32| fetch_inactive != 0 || exec >> from(lane) & 1 == 1;
    let mask = (0..wave.lanes)
        .filter(|lane| exec >> lane & 1 == 1 && (bound != 0 || valid(*lane)))
        .fold(0, |mask, lane| mask | 1 << lane);
    gather(wave, instruction, 0, mask, |_, lane| {
        valid(lane).then(|| from(lane))
    });
    Ok(())
}

fn swap_halves_of_wave(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let wave = &mut *context.wave;
    let (exec, flip) = (wave.exec(), wave.lanes & 64);
    gather(wave, instruction, 0, exec, |_, lane| Some(lane ^ (flip / 2)));
    Ok(())
}

fn swap(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let wave = &mut *context.wave;
    let Some(other) = instruction.src[0][0].vgpr() else {
        return Ok(());
    };
    let register = usize::from(instruction.dst.register);
    let exec = wave.exec();
    for lane in (0..64).filter(|lane| exec >> lane & 1 == 1) {
        let known = [register, other].map(|register| lane_known(wave, Place::Vgpr(register as u16), lane));
        let values = [wave.vgpr[register][lane], wave.vgpr[other][lane]];
        wave.vgpr[register][lane] = values[1];
        wave.vgpr[other][lane] = values[0];
        set_lane_known(wave, register, lane, known[1]);
        set_lane_known(wave, other, lane, known[0]);
    }
    Ok(())
}

fn decode_swap_of_halves(line: &mut Line<'_>) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(swap_halves_of_registers);
    sources(line, &mut instruction, 1, &[Type::U16], [false; 4])?;
    instruction.dst = destination(line, "", Type::U16, false)?;
    for index in 0..2 {
        let word = line.operand(index)?;
        let half = named_half(word).ok_or_else(|| format!("operand {word} of {}", line.mnemonic))?;
        instruction.detail[index] = u32::from(half.shift);
    }
    Ok(instruction)
}

/// The halves may be those of one register.
fn swap_halves_of_registers(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let wave = &mut *context.wave;
    let Some(other) = instruction.src[0][0].vgpr() else {
        return Ok(());
    };
    let registers = [usize::from(instruction.dst.register), other];
    let shifts = [instruction.detail[0], instruction.detail[1]];
    let exec = wave.exec();
    let known = [0, 1].map(|at| wave.vgpr_known[registers[at]][usize::from(shifts[at] != 0)]);
    for at in 0..2 {
        let lanes = &mut wave.vgpr_known[registers[at]][usize::from(shifts[at] != 0)];
        *lanes = *lanes & !exec | known[1 - at] & exec;
    }
    for lane in (0..64).filter(|lane| exec >> lane & 1 == 1) {
        let values = [0, 1].map(|at| wave.vgpr[registers[at]][lane] >> shifts[at] & 0xffff);
        for at in 0..2 {
            let bits = &mut wave.vgpr[registers[at]][lane];
            *bits = *bits & !(0xffff << shifts[at]) | values[1 - at] << shifts[at];
        }
    }
    Ok(())
}

/// V_MOVREL…: M0 is added to the number of the source register, of the destination, or of both.
fn move_relative(
    context: &mut Context<'_, '_>,
    instruction: &Instruction,
    source: bool,
    destination: bool,
) -> Outcome {
    if context.wave.sgpr_known[M0] != u32::MAX && context.space.checks().uninitialised {
        return Err(uninitialised("M0, a register index").into());
    }
    let wave = &mut *context.wave;
    let rows = wave.vgpr.len() as u64 - 1;
    let m0 = u64::from(wave.sgpr[M0]);
    let move_by = |register: u64, moves: bool| if moves { register + m0 } else { register };
    let mut other = instruction.clone();
    if let Some(register) = instruction.src[0][0].vgpr() {
        let register = move_by(register as u64, source);
        if register >= rows {
            return Err(uninitialised(format!("v{register}, beyond the wave's registers")).into());
        }
        other.src[0][0].place = Place::Vgpr(register as u16);
    }
    let register = move_by(u64::from(instruction.dst.register), destination);
    if register >= rows {
        return Err(uninitialised(format!("v{register}, beyond the wave's registers")).into());
    }
    other.dst.register = register as u16;
    let exec = wave.exec();
    gather(wave, &other, 0, exec, |_, lane| Some(lane));
    Ok(())
}
