//! Dual instructions of RDNA 3.

use super::valu;
use crate::code::{Context, Handler, Instruction, Outcome};
use crate::line::Line;

/// Two operations that read before either writes.
pub(super) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let mut second = line.dual.take().ok_or_else(String::new)?;
    let half = |line: &mut Line<'_>| {
        let name = line
            .mnemonic
            .strip_prefix("v_dual_")
            .ok_or_else(|| format!("instruction {}", line.mnemonic))?;
        let name = match format!("v_{name}") {
            plain if valu::TABLE.contains_key(plain.as_str()) || plain == "v_cndmask_b32" => plain,
            other => return Err(format!("dual instruction {other}")),
        };
        valu::decode_named(line, &name)
    };
    let halves = [half(line)?, half(&mut second)?];
    line.dual = Some(second);
    let reads = |reader: &Instruction, writer: &Instruction| {
        reader
            .src
            .iter()
            .flatten()
            .any(|source| source.vgpr() == Some(usize::from(writer.dst.register)))
    };
    let run: Handler = if !reads(&halves[1], &halves[0]) {
        |c, i| dual(c, i, 0, 1)
    } else if !reads(&halves[0], &halves[1]) {
        |c, i| dual(c, i, 1, 0)
    } else {
        dual_crossed
    };
    let mut instruction = Instruction::new(run);
    instruction.dual = Some(Box::new(halves));
    Ok(instruction)
}

fn dual(context: &mut Context<'_, '_>, instruction: &Instruction, first: usize, second: usize) -> Outcome {
    if let Some(halves) = &instruction.dual {
        (halves[first].run)(context, &halves[first])?;
        (halves[second].run)(context, &halves[second])?;
    }
    Ok(())
}

/// Each reads what the other writes.
fn dual_crossed(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let Some(halves) = &instruction.dual else {
        return Ok(());
    };
    let register = usize::from(halves[0].dst.register);
    let before = (context.wave.vgpr[register], context.wave.vgpr_known[register]);
    (halves[0].run)(context, &halves[0])?;
    let after = (context.wave.vgpr[register], context.wave.vgpr_known[register]);
    (context.wave.vgpr[register], context.wave.vgpr_known[register]) = before;
    (halves[1].run)(context, &halves[1])?;
    (context.wave.vgpr[register], context.wave.vgpr_known[register]) = after;
    Ok(())
}
