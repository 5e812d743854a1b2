//! MFMA of doubles.

use super::operands::wave_row_known;
use crate::code::{Context, Instruction, Outcome};
use crate::isa::lanes::scalar;
use crate::line::Line;
use crate::operands::Type;
use crate::wave::Wave;

pub(super) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(mfma_f64);
    let (register, results) = line.vgpr(0)?;
    let ((_, a), (_, b)) = (line.vgpr(1)?, line.vgpr(2)?);
    if (results, a, b) != (8, 2, 2) || line.arch.lanes != 64 {
        return Err(format!("the registers of {}", line.mnemonic));
    }
    instruction.dst.register = register;
    for index in 0..3 {
        instruction.src[index] = line.source(index + 1, Type::F64)?;
    }
    Ok(instruction)
}

/// 16×16×4 doubles. Lane l holds element k = l/16 of row l mod 16. In the results it holds row 4i + l/16, column l mod 16.
fn mfma_f64(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let wave = &mut *context.wave;
    let (Some(a), Some(b)) = (instruction.src[0][0].vgpr(), instruction.src[1][0].vgpr()) else {
        return Ok(());
    };
    let double = |wave: &Wave, register: usize, lane: usize| {
        f64::from_bits(u64::from(wave.vgpr[register][lane]) | u64::from(wave.vgpr[register + 1][lane]) << 32)
    };
    let known = |wave: &Wave, register: usize, lane: usize| {
        wave_row_known(wave, register, lane) && wave_row_known(wave, register + 1, lane)
    };
    let [low, high] = instruction.src[2];
    let constant =
        f64::from_bits(u64::from(scalar(wave, low.place)) | u64::from(scalar(wave, high.place)) << 32);
    let mut results = [[(0.0, true); 64]; 4];
    for (i, row) in results.iter_mut().enumerate() {
        for (lane, (sum, all_known)) in row.iter_mut().enumerate() {
            *sum = constant;
            if let Some(register) = low.vgpr() {
                *sum = double(wave, register + 2 * i, lane);
                *all_known = known(wave, register + 2 * i, lane);
            }
            for k in 0..4 {
                let (left, right) = (16 * k + 4 * i + lane / 16, 16 * k + lane % 16);
                *sum = double(wave, a, left).mul_add(double(wave, b, right), *sum);
                *all_known &= known(wave, a, left) && known(wave, b, right);
            }
        }
    }
    let register = usize::from(instruction.dst.register);
    for (i, row) in results.iter().enumerate() {
        for word in 0..2 {
            let at = register + 2 * i + word;
            let mut bits = 0;
            for (lane, (sum, known)) in row.iter().enumerate() {
                wave.vgpr[at][lane] = (sum.to_bits() >> (32 * word)) as u32;
                bits |= u64::from(*known) << lane;
            }
            wave.vgpr_known[at] = [bits; 2];
        }
    }
    Ok(())
}
