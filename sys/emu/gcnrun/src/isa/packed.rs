//! Packed arithmetic, mixed precision and dot products (VOP3P).

use std::sync::LazyLock;

use super::element::*;
use super::float::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, fma_f16, max_f32, min_f32};
use super::map::*;
use super::rows::{self, Row, Table, accumulate, destination, map};
use crate::code::{Handler, Instruction, Keep};
use crate::line::Line;
use crate::operands::{self, Change, Place, Source, Type};

/// Applies a function of `f16` to either half.
fn f16s(f: impl Fn([f32; 3]) -> f32, operands: [u32; 3]) -> u32 {
    let half = |shift: u32| f32_to_f16(f(operands.map(|bits| f16_to_f32(bits >> shift))));
    half(0) | half(16) << 16
}

fn bf16s(f: impl Fn([f32; 3]) -> f32, operands: [u32; 3]) -> u32 {
    let half = |shift: u32| f32_to_bf16(f(operands.map(|bits| bf16_to_f32(bits >> shift))));
    half(0) | half(16) << 16
}

fn u16s(f: impl Fn([u16; 3]) -> u16, operands: [u32; 3]) -> u32 {
    let half = |shift: u32| u32::from(f(operands.map(|bits| (bits >> shift) as u16)));
    half(0) | half(16) << 16
}

fn i16s(f: impl Fn([i16; 3]) -> i16, operands: [u32; 3]) -> u32 {
    u16s(
        |operands| f(operands.map(u16::cast_signed)).cast_unsigned(),
        operands,
    )
}

/// Σ of the products of bytes (4) or nibbles (8), each operand signed or not.
fn dot<const COUNT: u32>(a: u32, a_signed: bool, b: u32, b_signed: bool, c: u32) -> u32 {
    let width = 32 / COUNT;
    let item = |bits: u32, index: u32, signed: bool| {
        let up = bits << (32 - width - width * index);
        if signed {
            up.cast_signed() >> (32 - width)
        } else {
            (up >> (32 - width)).cast_signed()
        }
    };
    (0..COUNT).fold(c, |sum, index| {
        sum.wrapping_add((item(a, index, a_signed) * item(b, index, b_signed)).cast_unsigned())
    })
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::new();
    let table_ref = &mut table;
    packed(table_ref);
    dots(table_ref);
    table
});

fn packed(table: &mut Table) {
    rows::rows! { table;
        "v_pk_add_f16" => PairF16 (PairF16 a, PairF16 b) f16s(|[a, b, _]| a + b, [a, b, 0]);
        "v_pk_mul_f16" => PairF16 (PairF16 a, PairF16 b) f16s(|[a, b, _]| a * b, [a, b, 0]);
        "v_pk_min_f16" | "v_pk_min_num_f16" => PairF16 (PairF16 a, PairF16 b) f16s(|[a, b, _]| min_f32(a, b), [a, b, 0]);
        "v_pk_max_f16" | "v_pk_max_num_f16" => PairF16 (PairF16 a, PairF16 b) f16s(|[a, b, _]| max_f32(a, b), [a, b, 0]);
        "v_pk_fma_f16" | "v_pk_fmac_f16" => PairF16 (PairF16 a, PairF16 b, PairF16 c) f16s(|[a, b, c]| fma_f16(a, b, c), [a, b, c]);
        "v_pk_add_bf16" => Pair (Pair a, Pair b) bf16s(|[a, b, _]| a + b, [a, b, 0]);
        "v_pk_mul_bf16" => Pair (Pair a, Pair b) bf16s(|[a, b, _]| a * b, [a, b, 0]);
        "v_pk_add_u16" | "v_pk_add_i16" => Pair (Pair a, Pair b) u16s(|[a, b, _]| a.wrapping_add(b), [a, b, 0]);
        "v_pk_sub_u16" | "v_pk_sub_i16" => Pair (Pair a, Pair b) u16s(|[a, b, _]| a.wrapping_sub(b), [a, b, 0]);
        "v_pk_add_u16 clamp" => Pair (Pair a, Pair b) u16s(|[a, b, _]| a.saturating_add(b), [a, b, 0]);
        "v_pk_sub_u16 clamp" => Pair (Pair a, Pair b) u16s(|[a, b, _]| a.saturating_sub(b), [a, b, 0]);
        "v_pk_add_i16 clamp" => Pair (Pair a, Pair b) i16s(|[a, b, _]| a.saturating_add(b), [a, b, 0]);
        "v_pk_sub_i16 clamp" => Pair (Pair a, Pair b) i16s(|[a, b, _]| a.saturating_sub(b), [a, b, 0]);
        "v_pk_mul_lo_u16" => Pair (Pair a, Pair b) u16s(|[a, b, _]| a.wrapping_mul(b), [a, b, 0]);
        "v_pk_mad_u16" | "v_pk_mad_i16" => Pair (Pair a, Pair b, Pair c) u16s(|[a, b, c]| a.wrapping_mul(b).wrapping_add(c), [a, b, c]);
        "v_pk_min_u16" => Pair (Pair a, Pair b) u16s(|[a, b, _]| a.min(b), [a, b, 0]);
        "v_pk_max_u16" => Pair (Pair a, Pair b) u16s(|[a, b, _]| a.max(b), [a, b, 0]);
        "v_pk_min_i16" => Pair (Pair a, Pair b) i16s(|[a, b, _]| a.min(b), [a, b, 0]);
        "v_pk_max_i16" => Pair (Pair a, Pair b) i16s(|[a, b, _]| a.max(b), [a, b, 0]);
        "v_pk_lshlrev_b16" => Pair (Pair a, Pair b) u16s(|[a, b, _]| b << (a & 15), [a, b, 0]);
        "v_pk_lshrrev_b16" => Pair (Pair a, Pair b) u16s(|[a, b, _]| b >> (a & 15), [a, b, 0]);
        "v_pk_ashrrev_i16" => Pair (Pair a, Pair b) i16s(|[a, b, _]| b >> (a & 15), [a, b, 0]);
        "v_pk_add_f32" => PairF32 (PairF32 a, PairF32 b) [a[0] + b[0], a[1] + b[1]];
        "v_pk_mul_f32" => PairF32 (PairF32 a, PairF32 b) [a[0] * b[0], a[1] * b[1]];
        "v_pk_fma_f32" => PairF32 (PairF32 a, PairF32 b, PairF32 c) [a[0].mul_add(b[0], c[0]), a[1].mul_add(b[1], c[1])];
        // The second operand is the upper dword.
        "v_pk_mov_b32" => PairF32 (PairF32 a, PairF32 b) [a[0], b[1]];
    }
    accumulate(table, &["v_pk_fmac_f16"]);
}

fn dots(table: &mut Table) {
    rows::rows! { table;
        "v_fma_mix_f32" | "v_fma_mixlo_f16" | "v_fma_mixhi_f16" => F32 (F32 a, F32 b, F32 c) a.mul_add(b, c);
        "v_mad_mix_f32" | "v_mad_mixlo_f16" | "v_mad_mixhi_f16" => F32 (F32 a, F32 b, F32 c) a * b + c;
        "v_dot2_f32_f16" | "v_dot2c_f32_f16" | "v_dot2acc_f32_f16" => F32 (PairF16 a, PairF16 b, F32 c)
            f16_to_f32(a >> 16).mul_add(f16_to_f32(b >> 16), f16_to_f32(a).mul_add(f16_to_f32(b), c));
        "v_dot2_f32_bf16" | "v_dot2c_f32_bf16" | "v_dot2acc_f32_bf16" => F32 (Pair a, Pair b, F32 c)
            bf16_to_f32(a >> 16).mul_add(bf16_to_f32(b >> 16), bf16_to_f32(a).mul_add(bf16_to_f32(b), c));
        "v_dot2_i32_i16" | "v_dot2c_i32_i16" => U32 (Pair a, Pair b, U32 c) dot::<2>(a, true, b, true, c);
        "v_dot2_u32_u16" => U32 (Pair a, Pair b, U32 c) dot::<2>(a, false, b, false, c);
        "v_dot4_i32_i8" | "v_dot4c_i32_i8" | "v_dot4_i32_iu8 ss" => U32 (U32 a, U32 b, U32 c) dot::<4>(a, true, b, true, c);
        "v_dot4_i32_iu8 su" => U32 (U32 a, U32 b, U32 c) dot::<4>(a, true, b, false, c);
        "v_dot4_i32_iu8 us" => U32 (U32 a, U32 b, U32 c) dot::<4>(a, false, b, true, c);
        "v_dot4_u32_u8" | "v_dot4_i32_iu8 uu" => U32 (U32 a, U32 b, U32 c) dot::<4>(a, false, b, false, c);
        "v_dot8_i32_i4" | "v_dot8c_i32_i4" | "v_dot8_i32_iu4 ss" => U32 (U32 a, U32 b, U32 c) dot::<8>(a, true, b, true, c);
        "v_dot8_i32_iu4 su" => U32 (U32 a, U32 b, U32 c) dot::<8>(a, true, b, false, c);
        "v_dot8_i32_iu4 us" => U32 (U32 a, U32 b, U32 c) dot::<8>(a, false, b, true, c);
        "v_dot8_u32_u4" | "v_dot8_i32_iu4 uu" => U32 (U32 a, U32 b, U32 c) dot::<8>(a, false, b, false, c);
    }
    accumulate(
        table,
        &[
            "v_dot2c_f32_f16",
            "v_dot2acc_f32_f16",
            "v_dot2c_f32_bf16",
            "v_dot2acc_f32_bf16",
            "v_dot2c_i32_i16",
            "v_dot4c_i32_i8",
            "v_dot8c_i32_i4",
        ],
    );
}

/// `None` if another file decodes the mnemonic.
pub(super) fn decode(line: &mut Line<'_>, base: &str) -> Option<Result<Instruction, String>> {
    if base.contains("_mix") && TABLE.contains_key(base) {
        return Some(decode_mix(line, base));
    }
    if base.ends_with("_iu8") || base.ends_with("_iu4") {
        if !base.starts_with("v_dot") {
            return None;
        }
        // neg_lo says which operands are signed.
        let name = match line.bits("neg_lo", false) {
            Ok([a, b, ..]) => format!(
                "{base} {}{}",
                if a { 's' } else { 'u' },
                if b { 's' } else { 'u' }
            ),
            Err(what) => return Some(Err(what)),
        };
        return Some(
            TABLE
                .get(name.as_str())
                .ok_or_else(String::new)
                .and_then(|row| decode_packed(line, base, row)),
        );
    }
    TABLE.get(base).map(|row| decode_packed(line, base, row))
}

fn decode_packed(line: &mut Line<'_>, base: &str, row: &'static Row) -> Result<Instruction, String> {
    let mut row = row;
    let clamp = line.flag("clamp");
    let float_result =
        matches!(row.result, Type::PackedF16 | Type::PackedF32 | Type::F32) && base != "v_pk_mov_b32";
    if clamp && !float_result {
        let name = format!("{base} clamp");
        row = TABLE
            .get(name.as_str())
            .ok_or_else(|| format!("{base} with clamp"))?;
    }
    let mut instruction = Instruction::new(row.run);
    let low = line.bits("op_sel", false)?;
    let high = line.bits("op_sel_hi", true)?;
    let negate_low = line.bits("neg_lo", false)?;
    let negate_high = line.bits("neg_hi", false)?;
    let explicit = row.operands.len() - usize::from(row.accumulates);
    if line.operands.len() != explicit + 1 {
        return Err(format!("{base} with {} operands", line.operands.len()));
    }
    for (index, ty) in row.operands.iter().enumerate() {
        let at = if index < explicit { index + 1 } else { 0 };
        let mut operand = line.source(at, *ty)?;
        let flip = |half: bool, bit: u32| if half { bit } else { 0 };
        match ty {
            Type::PackedF32 => {
                let pick = |select: bool, negate: bool| Source {
                    place: operand[usize::from(select)].place,
                    change: if negate {
                        Change::Bits {
                            shift: 0,
                            width: 32,
                            signed: false,
                            and: u32::MAX,
                            xor: 0x8000_0000,
                        }
                    } else {
                        Change::None
                    },
                };
                // v_pk_mov_b32 selects the upper dword of its second operand by op_sel too.
                let high = if base == "v_pk_mov_b32" {
                    low[index]
                } else {
                    high[index]
                };
                operand = [
                    pick(low[index], negate_low[index]),
                    pick(high, negate_high[index]),
                ];
            }
            Type::PackedF16 | Type::PackedI16 => {
                let xor = flip(negate_low[index], 0x8000) | flip(negate_high[index], 0x8000_0000);
                if low[index] || !high[index] || xor != 0 {
                    operand[0].change = Change::Pack {
                        low: 16 * u8::from(low[index]),
                        high: 16 * u8::from(high[index]),
                        and: u32::MAX,
                        xor,
                    };
                }
            }
            _ if low[index] || negate_low[index] || negate_high[index] => {
                return Err(format!("modifiers of {base}"));
            }
            _ => {}
        }
        instruction.src[index] = operand;
    }
    instruction.dst = destination(line, base, row.result, false)?;
    instruction.dst.clamp = clamp && float_result;
    Ok(instruction)
}

/// V_FMA_MIX: each operand is an `f32`, or one half of an `f16` pair.
fn decode_mix(line: &mut Line<'_>, base: &str) -> Result<Instruction, String> {
    let row = TABLE.get(base).ok_or_else(String::new)?;
    let run: Handler = match base {
        "v_fma_mixlo_f16" | "v_fma_mixhi_f16" => |c, i| map3::<F32, F32, F32, F16, _>(c, i, f32::mul_add),
        "v_mad_mixlo_f16" | "v_mad_mixhi_f16" => {
            |c, i| map3::<F32, F32, F32, F16, _>(c, i, |a, b, c| a * b + c)
        }
        _ => row.run,
    };
    let mut instruction = Instruction::new(run);
    let select = line.bits("op_sel", false)?;
    let half = line.bits("op_sel_hi", false)?;
    for index in 0..3 {
        let word = line.operand(index + 1)?;
        if half[index] {
            let (signs, bare) = operands::signs(word);
            let mut operand =
                operands::source(bare, Type::F16, None).ok_or_else(|| format!("operand {word} of {base}"))?;
            operand[0].change = Change::Widen {
                shift: if select[index] { 16 } else { 0 },
                and: if signs.magnitude { 0x7fff_ffff } else { u32::MAX },
                xor: if signs.negate { 0x8000_0000 } else { 0 },
            };
            instruction.src[index] = operand;
        } else {
            instruction.src[index] = line.source(index + 1, Type::F32)?;
        }
    }
    let (register, _) = line.vgpr(0)?;
    instruction.dst.register = register;
    instruction.dst.keep = match base {
        "v_fma_mixlo_f16" | "v_mad_mixlo_f16" => Keep::High,
        "v_fma_mixhi_f16" | "v_mad_mixhi_f16" => Keep::Low,
        _ => Keep::None,
    };
    instruction.dst.clamp = line.flag("clamp");
    debug_assert!(!matches!(instruction.src[3][0].place, Place::Vgpr(_)));
    Ok(instruction)
}
