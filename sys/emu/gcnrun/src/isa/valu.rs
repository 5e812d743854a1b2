//! Vector arithmetic, an operation for each lane (VOP1, VOP2, VOP3, VOPD, with DPP and SDWA).

use std::sync::LazyLock;

use super::rows::{Row, Table, destination, sources};
use super::{arithmetic, compare, convert, cross, division, dpp, matrix, packed};
use crate::arch::Encoding;
use crate::code::Instruction;
use crate::line::Line;
use crate::operands::{Change, Part, Type};

pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::new();
    arithmetic::rows(&mut table);
    convert::rows(&mut table);
    table
});

/// Operations that always flush denormal operands and results: approximations in hardware.
const FLUSHING: &[&str] = &[
    "v_exp_f32",
    "v_log_f32",
    "v_rcp_f32",
    "v_rcp_iflag_f32",
    "v_rsq_f32",
    "v_sqrt_f32",
    "v_mad_f32",
    "v_mac_f32",
    "v_madmk_f32",
    "v_madak_f32",
    "v_mul_legacy_f32",
    "v_mul_dx9_zero_f32",
    "v_mad_mix_f32",
];

/// Operations that ignore MODE, because they only move or select bits.
const IGNORING_MODE: &[&str] = &[
    "v_mov_b32",
    "v_cndmask_b32",
    "v_accvgpr_read_b32",
    "v_accvgpr_write_b32",
    "v_accvgpr_mov_b32",
];

pub(super) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let base = line.base();
    decode_named(line, base)
}

pub(super) fn decode_named(line: &mut Line<'_>, base: &str) -> Result<Instruction, String> {
    let mut instruction = if let Some(row) = TABLE.get(base) {
        decode_row(line, base, row)?
    } else if let Some(decoded) = compare::decode(line, base).or_else(|| division::decode(line, base)) {
        decoded?
    } else if let Some(decoded) = cross::decode(line, base).or_else(|| packed::decode(line, base)) {
        decoded?
    } else if let Some(decoded) = matrix::decode(line, base) {
        decoded?
    } else {
        return Err(String::new());
    };
    instruction.ignores_mode |= IGNORING_MODE.contains(&base);
    instruction.flushes |= FLUSHING.contains(&base);
    if line.mnemonic.contains("_dpp") {
        dpp::decode(line, &mut instruction)?;
    }
    Ok(instruction)
}

fn decode_row(line: &mut Line<'_>, base: &str, row: &'static Row) -> Result<Instruction, String> {
    let float_result = matches!(row.result, Type::F16 | Type::F32 | Type::F64);
    let clamp = line.flag("clamp");
    let mut row = row;
    if base.contains("_fp8") || base.contains("_bf8") {
        match line.arch.float8 {
            Some(Encoding::Fnuz) => {}
            Some(Encoding::Ocp) => {
                let name = format!("{base} ocp");
                row = TABLE.get(name.as_str()).ok_or_else(String::new)?;
            }
            None => return Err(format!("{base} of this architecture")),
        }
    }
    if clamp && !float_result {
        let name = format!("{base} clamp");
        row = TABLE
            .get(name.as_str())
            .ok_or_else(|| format!("{base} with clamp"))?;
    }
    let explicit = row.operands.len() - usize::from(row.accumulates);
    if line.operands.len() != explicit + 1 {
        return Err(format!("{base} with {} operands", line.operands.len()));
    }
    let mut instruction = Instruction::new(row.run);
    if line.has("bitop3") {
        instruction.detail[0] = line.number("bitop3")? as u32;
    }
    let mut op_sel = line.bits("op_sel", false)?;
    let part = float8_part(line, base, &mut op_sel)?;
    sources(line, &mut instruction, 1, &row.operands[..explicit], op_sel)?;
    if let Some(part) = part {
        instruction.src[0][0].change = Change::Bits {
            shift: part.shift,
            width: part.width,
            signed: false,
            and: u32::MAX,
            xor: 0,
        };
    }
    instruction.dst = destination(line, base, row.result, op_sel[explicit])?;
    instruction.dst.clamp = clamp && float_result;
    if row.accumulates {
        instruction.src[explicit] = line.source(0, row.operands[explicit])?;
        if op_sel[explicit] {
            instruction.src[explicit][0].change = Change::Bits {
                shift: 16,
                width: 16,
                signed: false,
                and: u32::MAX,
                xor: 0,
            };
        }
    }
    Ok(instruction)
}

/// The bytes of the operand that gfx12's conversions from 8-bit floats take; older ones have SDWA for it.
fn float8_part(line: &mut Line<'_>, base: &str, op_sel: &mut [bool; 4]) -> Result<Option<Part>, String> {
    if let Some(byte) = line.take("byte_sel") {
        let shift = byte
            .parse()
            .ok()
            .filter(|byte| *byte < 4)
            .map(|byte: u8| 8 * byte);
        let shift = shift.ok_or_else(|| format!("byte_sel:{byte}"))?;
        return Ok(Some(Part { shift, width: 8 }));
    }
    if base.starts_with("v_cvt_pk_f32_") && op_sel[0] {
        op_sel[0] = false;
        return Ok(Some(Part { shift: 16, width: 16 }));
    }
    Ok(None)
}
