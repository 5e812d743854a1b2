//! WMMA of gfx11: lanes 0 to 15 hold a row of A or B each, and lanes 16 to 31 the same.

use super::operands::{Element, Operand, multiply, multiply_integers, wave_row_known};
use crate::code::{Context, Instruction, Outcome};
use crate::isa::float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::isa::lanes::scalar;
use crate::line::Line;
use crate::operands::Type;
use crate::wave::Wave;

pub(super) fn decode(line: &mut Line<'_>, shape: &str) -> Result<Instruction, String> {
    let signed = line.bits("neg_lo", false)?;
    let select = line.bits("op_sel", false)?;
    let (input, second, output) = match shape {
        "f32_16x16x16_f16" => (Element::F16, Element::F16, Element::F32),
        "f32_16x16x16_bf16" => (Element::Bf16, Element::Bf16, Element::F32),
        "f16_16x16x16_f16" => (Element::F16, Element::F16, Element::F16),
        "bf16_16x16x16_bf16" => (Element::Bf16, Element::Bf16, Element::Bf16),
        "i32_16x16x16_iu8" => (Element::I8(signed[0]), Element::I8(signed[1]), Element::I8(true)),
        "i32_16x16x16_iu4" => (Element::I4(signed[0]), Element::I4(signed[1]), Element::I8(true)),
        _ => return Err(String::new()),
    };
    if signed != [false; 4] && !matches!(input, Element::I8(_) | Element::I4(_)) {
        return Err(format!("neg_lo of {}", line.mnemonic));
    }
    let mut instruction = Instruction::new(wmma);
    let (register, count) = line.vgpr(0)?;
    let (_, inputs) = line.vgpr(1)?;
    if count != 8 || usize::from(inputs) != 16 / input.per_dword() {
        return Err(format!("the registers of {}", line.mnemonic));
    }
    instruction.dst.register = register;
    instruction.src[0] = line.source(1, Type::U32)?;
    instruction.src[1] = line.source(2, Type::U32)?;
    let constants = match output {
        Element::F16 => Type::F16,
        Element::Bf16 => Type::Bf16,
        _ if matches!(input, Element::I8(_) | Element::I4(_)) => Type::U32,
        _ => Type::F32,
    };
    instruction.src[2] = line.source(3, constants)?;
    let half = if select[2] { 16 } else { 0 };
    instruction.detail = [16, half, input.code() | second.code() << 8, output.code()];
    Ok(instruction)
}

/// A or B of a WMMA: lanes 0 to 15 hold a row each.
fn wmma_operand(wave: &Wave, register: usize, element: Element) -> Operand {
    let per_dword = element.per_dword();
    let mut operand = Operand {
        values: vec![0.0; 256],
        known: vec![true; 16],
    };
    for row in 0..16 {
        for k in 0..16 {
            let dword = register + k / per_dword;
            operand.values[16 * row + k] = element.get(wave.vgpr[dword][row], k % per_dword);
            operand.known[row] &= wave_row_known(wave, dword, row);
        }
    }
    operand
}

fn wmma(context: &mut Context<'_, '_>, instruction: &Instruction) -> Outcome {
    let wave = &mut *context.wave;
    let [_, half, inputs, output] = instruction.detail;
    let (first, second, output) = (
        Element::from_code(inputs & 255),
        Element::from_code(inputs >> 8),
        Element::from_code(output),
    );
    let (Some(a), Some(b)) = (instruction.src[0][0].vgpr(), instruction.src[1][0].vgpr()) else {
        return Ok(());
    };
    let (a, b) = (wmma_operand(wave, a, first), wmma_operand(wave, b, second));
    let place = instruction.src[2][0];
    // Register i of lane l holds row 2i + l/16, column l mod 16.
    let mut c = [0_u32; 256];
    let mut known = [true; 256];
    let at = |i: usize, lane: usize| (2 * i + lane / 16) * 16 + lane % 16;
    for i in 0..8 {
        for lane in 0..32 {
            let (row, column) = (2 * i + lane / 16, lane % 16);
            c[at(i, lane)] = match place.vgpr() {
                Some(register) => {
                    known[at(i, lane)] = match output {
                        Element::F32 | Element::I8(_) => wave_row_known(wave, register + i, lane),
                        _ => wave.vgpr_known[register + i][half as usize / 16] >> lane & 1 == 1,
                    };
                    wave.vgpr[register + i][lane] >> half
                }
                None => scalar(wave, place.place),
            };
            known[at(i, lane)] &= a.known[row] && b.known[column];
        }
    }
    if matches!(first, Element::I8(_) | Element::I4(_)) {
        multiply_integers(&a.values, &b.values, &mut c, 16, 16);
    } else {
        let mut sums = c.map(|bits| match output {
            Element::F16 => f16_to_f32(bits),
            Element::Bf16 => bf16_to_f32(bits & 0xffff),
            _ => f32::from_bits(bits),
        });
        multiply(context.has_fma, &a.values, &b.values, &mut sums, 16, 16);
        c = sums.map(|sum| match output {
            Element::F16 => f32_to_f16(sum),
            Element::Bf16 => f32_to_bf16(sum),
            _ => sum.to_bits(),
        });
    }
    let register = usize::from(instruction.dst.register);
    let whole = matches!(output, Element::F32 | Element::I8(_));
    for i in 0..8 {
        for lane in 0..32 {
            let value = c[at(i, lane)];
            let slot = &mut wave.vgpr[register + i][lane];
            *slot = if whole {
                value
            } else {
                *slot & !(0xffff << half) | value << half
            };
            for (side, bits) in wave.vgpr_known[register + i].iter_mut().enumerate() {
                if whole || side == half as usize / 16 {
                    *bits = *bits & !(1 << lane) | u64::from(known[at(i, lane)]) << lane;
                }
            }
        }
    }
    Ok(())
}
