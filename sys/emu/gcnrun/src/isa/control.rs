//! Branches, calls, barriers, waits, and hardware registers (SOPP and similar).

use super::lanes::{scalar, scalar_known};
use super::salu::write;
use crate::code::{Context, Exit, Handler, Instruction, Outcome, Stop, uninitialised};
use crate::fault::FaultKind;
use crate::line::Line;
use crate::operands::Type;
use crate::wave::VCC;

/// No operations in the emulator: everything is complete and visible when the next instruction begins.
const NO_OPERATIONS: &[&str] = &[
    "s_nop",
    "s_waitcnt",
    "s_waitcnt_vscnt",
    "s_waitcnt_vmcnt",
    "s_waitcnt_expcnt",
    "s_waitcnt_lgkmcnt",
    "s_waitcnt_depctr",
    "s_wait_idle",
    "s_wait_event",
    "s_wait_alu",
    "s_wait_loadcnt",
    "s_wait_storecnt",
    "s_wait_dscnt",
    "s_wait_kmcnt",
    "s_wait_samplecnt",
    "s_wait_bvhcnt",
    "s_wait_expcnt",
    "s_wait_loadcnt_dscnt",
    "s_wait_storecnt_dscnt",
    "s_delay_alu",
    "s_clause",
    "s_sendmsg",
    "s_setprio",
    "s_set_inst_prefetch_distance",
    "s_inst_prefetch",
    "s_sethalt",
    "s_wakeup",
    "s_icache_inv",
    "s_dcache_wb",
    "s_dcache_inv",
    "s_dcache_inv_vol",
    "s_dcache_wb_vol",
    "s_gl1_inv",
    "s_incperflevel",
    "s_decperflevel",
    "s_ttracedata",
    "s_ttracedata_imm",
    "s_code_end",
];

fn no_operation(_: &mut Context<'_, '_>, _: &Instruction) -> Outcome {
    Ok(())
}

/// `None` if `salu` decodes the mnemonic.
pub(super) fn decode(line: &mut Line<'_>) -> Option<Result<Instruction, String>> {
    let name = line.mnemonic;
    if NO_OPERATIONS.contains(&name) {
        line.operands.clear();
        return Some(Ok(Instruction::new(if name == "s_code_end" {
            past_the_end
        } else {
            no_operation
        })));
    }
    if name == "s_sleep" {
        line.operands.clear();
        return Some(Ok(Instruction::new(|_, _| Err(Exit::Stop(Stop::Sleep).into()))));
    }
    let branch: Option<Handler> = match name {
        "s_branch" => Some(|c, i| jump(c, i, true)),
        "s_cbranch_scc0" => Some(|c, i| {
            let taken = !scc(c)?;
            jump(c, i, taken)
        }),
        "s_cbranch_scc1" => Some(|c, i| {
            let taken = scc(c)?;
            jump(c, i, taken)
        }),
        "s_cbranch_vccz" => Some(|c, i| {
            let taken = vccz(c)?;
            jump(c, i, taken)
        }),
        "s_cbranch_vccnz" => Some(|c, i| {
            let taken = !vccz(c)?;
            jump(c, i, taken)
        }),
        "s_cbranch_execz" => Some(|c, i| {
            let taken = c.wave.exec() == 0;
            jump(c, i, taken)
        }),
        "s_cbranch_execnz" => Some(|c, i| {
            let taken = c.wave.exec() != 0;
            jump(c, i, taken)
        }),
        _ => None,
    };
    if let Some(run) = branch {
        line.branches = true;
        return Some(Ok(Instruction::new(run)));
    }
    let plain: Option<Handler> = match name {
        "s_endpgm" | "s_endpgm_saved" | "s_endpgm_ordered_ps_done" => {
            Some(|_, _| Err(Box::new(Exit::Stop(Stop::End))))
        }
        "s_barrier" => Some(|_, _| Err(Box::new(Exit::Stop(Stop::Barrier)))),
        // The block's barrier in two parts: a wave only waits in the second, so that is where all meet.
        "s_barrier_signal" if line.operands == ["-1"] => Some(no_operation),
        "s_barrier_wait" if matches!(line.operands[..], ["-1" | "0xffff"]) => {
            Some(|_, _| Err(Box::new(Exit::Stop(Stop::Barrier))))
        }
        _ => None,
    };
    if let Some(run) = plain {
        return Some(Ok(Instruction::new(run)));
    }
    Some(match name {
        "s_trap" => line.immediate(0).map(|number| {
            let mut instruction = Instruction::new(|_, i| {
                Err(FaultKind::Trap {
                    number: i.offset as u32,
                }
                .into())
            });
            instruction.offset = number;
            instruction
        }),
        "s_getpc_b64" => with_destination(line, |c, i| {
            let next = c.code.address_of(c.next).wrapping_add(c.space.image());
            write_pair(c, i, next)
        }),
        "s_setpc_b64" => line.source(0, Type::U64).map(|source| {
            let mut instruction = Instruction::new(|c, i| {
                let target = address(c, i)?;
                enter(c, target)
            });
            instruction.src[0] = source;
            instruction
        }),
        "s_swappc_b64" => line.source(1, Type::U64).and_then(|source| {
            let mut instruction = with_destination(line, |c, i| {
                let target = address(c, i)?;
                let next = c.code.address_of(c.next).wrapping_add(c.space.image());
                write_pair(c, i, next)?;
                enter(c, target)
            })?;
            instruction.src[0] = source;
            Ok(instruction)
        }),
        "s_call_b64" => {
            line.branches = true;
            with_destination(line, |c, i| {
                let next = c.code.address_of(c.next).wrapping_add(c.space.image());
                write_pair(c, i, next)?;
                jump(c, i, true)
            })
        }
        // Clocks count instructions: they increase, but do not measure time.
        "s_memtime" | "s_memrealtime" | "s_sendmsg_rtn_b64" => with_destination(line, |c, i| {
            let clock = clock(c);
            write_pair(c, i, clock)
        }),
        "s_sendmsg_rtn_b32" => with_destination(line, |c, i| {
            let clock = clock(c);
            write_one(c, i, clock as u32)
        }),
        "s_getreg_b32" => get_register(line),
        "s_setreg_b32" | "s_setreg_imm32_b32" => set_register(line),
        "s_denorm_mode" => mode_immediate(line, 4),
        "s_round_mode" => mode_immediate(line, 0),
        _ => return None,
    })
}

fn past_the_end(context: &mut Context<'_, '_>, _: &Instruction) -> Outcome {
    let target = context.code.address_of(context.next.saturating_sub(1));
    Err(FaultKind::WildJump { target }.into())
}

fn with_destination(line: &Line<'_>, run: Handler) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(run);
    instruction.sdst = line.sgpr(0)?;
    Ok(instruction)
}

#[inline]
fn jump(context: &mut Context<'_, '_>, instruction: &Instruction, taken: bool) -> Outcome {
    if taken {
        context.next = instruction.offset as u32;
    }
    Ok(())
}

fn scc(context: &Context<'_, '_>) -> Result<bool, Box<Exit>> {
    if !context.wave.scc_known && context.space.checks().uninitialised {
        return Err(uninitialised("SCC, on which a branch depends").into());
    }
    Ok(context.wave.scc)
}

fn vccz(context: &Context<'_, '_>) -> Result<bool, Box<Exit>> {
    let wave = &*context.wave;
    let lanes = wave.all_lanes();
    let known = u64::from(wave.sgpr_known[VCC]) | u64::from(wave.sgpr_known[VCC + 1]) << 32;
    let vcc = wave.mask(VCC);
    if known & lanes != lanes && vcc & known & lanes == 0 && context.space.checks().uninitialised {
        return Err(uninitialised("VCC, on which a branch depends").into());
    }
    Ok(vcc == 0)
}

/// An address in a pair of scalar registers.
fn address(context: &Context<'_, '_>, instruction: &Instruction) -> Result<u64, Box<Exit>> {
    let [low, high] = instruction.src[0].map(|source| source.place);
    let known = scalar_known(context.wave, low) & scalar_known(context.wave, high);
    if known != u32::MAX && context.space.checks().uninitialised {
        return Err(uninitialised("the address to jump to").into());
    }
    Ok(u64::from(scalar(context.wave, low)) | u64::from(scalar(context.wave, high)) << 32)
}

/// Jumps to an address in the loaded code object.
fn enter(context: &mut Context<'_, '_>, target: u64) -> Outcome {
    context.next = context
        .code
        .index_of(target.wrapping_sub(context.space.image()))?;
    Ok(())
}

fn write_pair(context: &mut Context<'_, '_>, instruction: &Instruction, value: u64) -> Outcome {
    match instruction.sdst {
        Some(register) => write(context, usize::from(register), 2, value, u64::MAX),
        None => Ok(()),
    }
}

fn write_one(context: &mut Context<'_, '_>, instruction: &Instruction, value: u32) -> Outcome {
    match instruction.sdst {
        Some(register) => write(context, usize::from(register), 1, u64::from(value), u64::MAX),
        None => Ok(()),
    }
}

/// Instructions executed up to the last barrier, and four per clock read.
fn clock(context: &mut Context<'_, '_>) -> u64 {
    context.wave.clock += 4;
    context.wave.executed + context.wave.clock
}

/// `hwreg(NAME, offset, size)`.
fn hardware_register(word: &str) -> Result<(&str, u32, u32), String> {
    let unknown = || format!("operand {word}");
    let inner = word
        .strip_prefix("hwreg(")
        .and_then(|rest| rest.strip_suffix(')'))
        .ok_or_else(unknown)?;
    let mut parts = inner.split(',').map(str::trim);
    let name = parts.next().ok_or_else(unknown)?;
    let mut number = |default| parts.next().map_or(Some(default), |part| part.parse().ok());
    let (offset, size) = (number(0).ok_or_else(unknown)?, number(32).ok_or_else(unknown)?);
    Ok((name, offset, size))
}

fn get_register(line: &Line<'_>) -> Result<Instruction, String> {
    let (name, offset, size) = hardware_register(line.operand(1)?)?;
    let mut instruction = match name {
        "HW_REG_MODE" => with_destination(line, |c, i| {
            let mode = u32::from(c.wave.mode.denormals_f32) << 4
                | u32::from(c.wave.mode.denormals_f16_f64) << 6
                | 0x300;
            write_field(c, i, mode)
        }),
        "HW_REG_SHADER_CYCLES" | "HW_REG_SHADER_CYCLES_LO" => with_destination(line, |c, i| {
            let clock = clock(c);
            write_field(c, i, clock as u32)
        }),
        "HW_REG_SHADER_CYCLES_HI" => with_destination(line, |c, i| {
            let clock = clock(c);
            write_field(c, i, (clock >> 32) as u32)
        }),
        // Everything runs on compute unit 0.
        "HW_REG_HW_ID" | "HW_REG_HW_ID1" | "HW_REG_HW_ID2" | "HW_REG_XCC_ID" => {
            with_destination(line, |c, i| write_field(c, i, 0))
        }
        _ => Err(format!("register {name}")),
    }?;
    instruction.detail = [offset, size, 0, 0];
    Ok(instruction)
}

fn write_field(context: &mut Context<'_, '_>, instruction: &Instruction, value: u32) -> Outcome {
    let [offset, size, ..] = instruction.detail;
    write_one(
        context,
        instruction,
        value >> offset & u32::MAX >> (32 - size.clamp(1, 32)),
    )
}

fn set_register(line: &Line<'_>) -> Result<Instruction, String> {
    let (name, offset, size) = hardware_register(line.operand(0)?)?;
    if name != "HW_REG_MODE" {
        return Err(format!("setting register {name}"));
    }
    let mut instruction = Instruction::new(|c, i| {
        let value = scalar(c.wave, i.src[0][0].place);
        if scalar_known(c.wave, i.src[0][0].place) != u32::MAX && c.space.checks().uninitialised {
            return Err(uninitialised("the new value of MODE").into());
        }
        set_mode(c, value, i.detail[0], i.detail[1])
    });
    instruction.src[0] = line.source(1, Type::U32)?;
    instruction.detail = [offset, size, 0, 0];
    Ok(instruction)
}

fn mode_immediate(line: &Line<'_>, offset: u32) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(|c, i| set_mode(c, i.offset as u32, i.detail[0], i.detail[1]));
    instruction.offset = line.immediate(0)?;
    instruction.detail = [offset, 4, 0, 0];
    Ok(instruction)
}

/// Sets `size` bits of MODE from `offset` up: rounding in bits 0 to 3, denormals in 4 to 7.
fn set_mode(context: &mut Context<'_, '_>, value: u32, offset: u32, size: u32) -> Outcome {
    let old =
        u32::from(context.wave.mode.denormals_f32) << 4 | u32::from(context.wave.mode.denormals_f16_f64) << 6;
    let mask = (u32::MAX >> (32 - size.clamp(1, 32))) << offset;
    let new = old & !mask | value << offset & mask;
    let unsupported = |what: &str| {
        Err(FaultKind::UnknownInstruction {
            what: what.to_owned(),
        }
        .into())
    };
    if new & 0xf != 0 {
        return unsupported("rounding other than to nearest");
    }
    let (single, other) = ((new >> 4 & 3) as u8, (new >> 6 & 3) as u8);
    if single == 1 || single == 2 {
        return unsupported("flushing only the inputs or only the results");
    }
    if other != 3 {
        return unsupported("flushing denormals of f16 and f64");
    }
    context.wave.mode.denormals_f32 = single;
    context.wave.mode.denormals_f16_f64 = other;
    Ok(())
}
