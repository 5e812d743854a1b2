//! Operations on operands that are only partly known.

use super::lanes::written_halves;
use crate::code::{Context, Instruction, Outcome};
use crate::operands::{Place, Type};
use crate::wave::Wave;

/// Executes an operation whose operands are partly unknown. It is tried with the unknown bits as zeros and as ones. A half of the
/// result that is the same each time is known nevertheless (a mask, a shift, a packing). A float result is wholly known or wholly
/// unknown.
#[cold]
#[inline(never)]
pub(super) fn with_unknown(
    context: &mut Context<'_, '_>,
    instruction: &Instruction,
    ty: Type,
    operands: usize,
    floats: bool,
    unknown: u64,
) -> Outcome {
    let lanes = context.wave.exec() & unknown;
    let dst = instruction.dst;
    let count = if ty.is_wide() { 2 } else { 1 };
    let register = usize::from(dst.register);
    let mut differs = [[u32::MAX; 64]; 2];
    if !floats {
        let before = Registers::save(context.wave, instruction, operands, register..register + count);
        differs = [[0; 64]; 2];
        let mut first = [[0; 64]; 2];
        for choice in 0..(1_u32 << operands) + 2 {
            for index in 0..operands {
                for source in instruction.src[index] {
                    before.fill_unknown(context.wave, source.place, unknown_as(choice, operands, index));
                }
            }
            run_assuming_known(context, instruction)?;
            for row in 0..count {
                let result = &context.wave.vgpr[register + row];
                if choice == 0 {
                    first[row] = *result;
                }
                for lane in 0..64 {
                    differs[row][lane] |= result[lane] ^ first[row][lane];
                }
            }
            before.restore(context.wave);
        }
    }
    run_assuming_known(context, instruction)?;
    for (row, differs) in differs.iter().enumerate().take(count) {
        let halves = if row == 0 {
            written_halves(dst.keep)
        } else {
            [true; 2]
        };
        for lane in (0..64).filter(|lane| lanes >> lane & 1 == 1) {
            for (half, mask) in [0xffff, 0xffff_0000].into_iter().enumerate() {
                if halves[half] && differs[lane] & mask != 0 {
                    context.wave.vgpr_known[register + row][half] &= !(1 << lane);
                }
            }
        }
    }
    Ok(())
}

/// Returns the value of unknown bits of operand `index` in the `choice`th trial. The trials are zeros and ones in every
/// combination, and two alternating patterns, because sums may only differ between those.
pub(super) fn unknown_as(choice: u32, operands: usize, index: usize) -> u32 {
    match choice.checked_sub(1 << operands) {
        None => 0_u32.wrapping_sub(choice >> index & 1),
        Some(0) => 0x5555_5555,
        Some(_) => 0xaaaa_aaaa,
    }
}

fn run_assuming_known(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    context.assume_known = true;
    let outcome = (instruction.inner)(context, instruction);
    context.assume_known = false;
    outcome
}

/// The saved registers that an instruction reads and writes.
struct Registers {
    rows: Vec<(usize, [u32; 64], [u64; 2])>,
    scalars: [u32; 128],
    scalars_known: [u32; 128],
}

impl Registers {
    fn save(
        wave: &Wave,
        instruction: &Instruction,
        operands: usize,
        results: std::ops::Range<usize>,
    ) -> Self {
        let sources = instruction.src[..operands]
            .iter()
            .flatten()
            .filter_map(|source| source.vgpr());
        let mut registers: Vec<_> = sources.chain(results).collect();
        registers.sort_unstable();
        registers.dedup();
        let rows = registers
            .into_iter()
            .map(|r| (r, wave.vgpr[r], wave.vgpr_known[r]))
            .collect();
        Self {
            rows,
            scalars: wave.sgpr,
            scalars_known: wave.sgpr_known,
        }
    }

    fn restore(&self, wave: &mut Wave) {
        for (register, row, known) in &self.rows {
            wave.vgpr[*register] = *row;
            wave.vgpr_known[*register] = *known;
        }
        wave.sgpr = self.scalars;
        wave.sgpr_known = self.scalars_known;
    }

    /// Replaces the unknown bits of a register by those of a pattern.
    fn fill_unknown(&self, wave: &mut Wave, place: Place, pattern: u32) {
        let fill = |bits: u32, known: u32| bits & known | pattern & !known;
        match place {
            Place::Vgpr(register) => {
                let register = usize::from(register);
                let Some((_, row, [low, high])) = self.rows.iter().find(|saved| saved.0 == register) else {
                    return;
                };
                for (lane, bits) in row.iter().enumerate() {
                    let known =
                        ((low >> lane & 1) as u32 * 0xffff) | ((high >> lane & 1) as u32 * 0xffff_0000);
                    wave.vgpr[register][lane] = fill(*bits, known);
                }
            }
            Place::Sgpr(register) => {
                let register = usize::from(register);
                wave.sgpr[register] = fill(self.scalars[register], self.scalars_known[register]);
            }
            _ => {}
        }
    }
}
