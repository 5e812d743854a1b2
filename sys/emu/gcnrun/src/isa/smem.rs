//! Scalar loads.

use super::lanes::{scalar, scalar_known};
use super::salu::write;
use crate::code::{Context, Instruction, Outcome, uninitialised};
use crate::line::Line;
use crate::operands::Type;

pub(super) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let size = line.mnemonic.strip_prefix("s_load_").ok_or_else(String::new)?;
    let dwords = match size {
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

fn load(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let [low, high] = instruction.src[0].map(|source| source.place);
    let offset = instruction.src[1][0].place;
    let wave = &*context.wave;
    let known = scalar_known(wave, low) & scalar_known(wave, high) & scalar_known(wave, offset);
    if known != u32::MAX && context.space.checks().uninitialised {
        return Err(uninitialised("the address of a scalar load").into());
    }
    let base = u64::from(scalar(wave, low)) | u64::from(scalar(wave, high)) << 32;
    let address = base
        .wrapping_add(u64::from(scalar(wave, offset)))
        .wrapping_add_signed(instruction.offset);
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
