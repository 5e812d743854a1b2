//! Scalar loads.

use super::lanes::{scalar, scalar_known};
use super::salu::write;
use crate::code::{Context, Exit, Instruction, Outcome, uninitialised};
use crate::line::Line;
use crate::operands::Type;

pub(super) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let size = line.mnemonic.strip_prefix("s_load_").ok_or_else(String::new)?;
    let load = match size {
        "u8" => load_u8,
        "i8" => load_i8,
        "u16" => load_u16,
        "i16" => load_i16,
        _ => load,
    };
    let dwords = match size {
        "u8" | "i8" | "u16" | "i16" => 1,
        "b32" | "dword" => 1,
        "b64" | "dwordx2" => 2,
        "b96" | "dwordx3" => 3,
        "b128" | "dwordx4" => 4,
        "b256" | "dwordx8" => 8,
        "b512" | "dwordx16" => 16,
        _ => return Err(String::new()),
    };
    let mut instruction = Instruction::new(load);
    instruction.sdst = line.sgpr(0)?;
    instruction.src[0] = line.source(1, Type::U64)?;
    instruction.src[1] = line.source(2, Type::U32)?;
    instruction.offset = line.number("offset")?;
    if let Ok(offset) = line.immediate(2) {
        instruction.src[1] = line.source(2, Type::U32)?;
        instruction.src[1][0] = crate::operands::Source::ZERO;
        instruction.offset += offset;
    }
    instruction.detail[0] = dwords;
    line.ignore_cache_policy();
    Ok(instruction)
}

/// Returns the address of a load.
fn address(context: &Context<'_, '_>, instruction: &Instruction) -> Result<u64, Box<Exit>> {
    let [low, high] = instruction.src[0].map(|source| source.place);
    let offset = instruction.src[1][0].place;
    let wave = &*context.wave;
    let known = scalar_known(wave, low) & scalar_known(wave, high) & scalar_known(wave, offset);
    if known != u32::MAX && context.space.checks().uninitialised {
        return Err(uninitialised("the address of a scalar load").into());
    }
    let base = u64::from(scalar(wave, low)) | u64::from(scalar(wave, high)) << 32;
    Ok(base
        .wrapping_add(u64::from(scalar(wave, offset)))
        .wrapping_add_signed(instruction.offset))
}

fn load(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let address = address(context, instruction)?;
    let mut dwords = [0; 16];
    let count = instruction.detail[0] as usize;
    let known = context.space.constant_load(address, &mut dwords[..count])?;
    if let Some(register) = instruction.sdst {
        for (i, dword) in dwords[..count].iter().enumerate() {
            let known = if known >> i & 1 == 1 { u64::MAX } else { 0 };
            write(context, usize::from(register) + i, 1, u64::from(*dword), known)?;
        }
    }
    Ok(())
}

fn load_u8(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    load_narrow(context, instruction, |[byte]| u32::from(byte))
}

fn load_i8(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    load_narrow(context, instruction, |[byte]| {
        i32::from(byte.cast_signed()).cast_unsigned()
    })
}

fn load_u16(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    load_narrow(context, instruction, |bytes| u32::from(u16::from_le_bytes(bytes)))
}

fn load_i16(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    load_narrow(context, instruction, |bytes| {
        i32::from(i16::from_le_bytes(bytes)).cast_unsigned()
    })
}

/// Loads `N` bytes, which `extend` extends to a dword. RDNA 4 has these loads.
fn load_narrow<const N: usize>(
    context: &mut Context<'_, '_>,
    instruction: &Instruction,
    extend: impl Fn([u8; N]) -> u32,
) -> Outcome {
    let address = address(context, instruction)?;
    let (bytes, known) = context.space.narrow_constant_load(address)?;
    if let Some(register) = instruction.sdst {
        let known = if known { u64::MAX } else { 0 };
        write(context, usize::from(register), 1, u64::from(extend(bytes)), known)?;
    }
    Ok(())
}
