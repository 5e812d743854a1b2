//! Vector instructions that write or read lane masks: comparisons, selections, carries.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::element::*;
use super::lanes::*;
use super::map::compare;
use super::rows::{destination, sources};
use crate::code::{Context, Exit, Handler, Instruction, Outcome, uninitialised};
use crate::line::Line;
use crate::operands::{Source, Type};
use crate::wave::{EXEC, VCC, Wave};

struct Row {
    run: Handler,
    operands: [Type; 2],
}

/// A bit of `offset`.
const WRITES_EXEC: u32 = 1;

macro_rules! comparison {
    ($table:ident, $ty:ident, $suffix:literal; $($($name:literal)|+ |$a:ident, $b:ident| $f:expr;)*) => {$(
        let run: Handler = |c, i| {
            let (holds, known) = compare::<$ty, $ty>(c, i, |$a, $b| $f);
            write_result(c, i, holds, known)
        };
        for name in [$(concat!($name, "_", $suffix)),+] {
            $table.insert(name, Row { run, operands: [<$ty as Element>::TYPE; 2] });
        }
    )*};
}

macro_rules! integer_comparisons {
    ($table:ident: $($ty:ident $suffix:literal),*) => {$(
        comparison! { $table, $ty, $suffix;
            "f" |_a, _b| false;
            "lt" |a, b| a < b;
            "eq" |a, b| a == b;
            "le" |a, b| a <= b;
            "gt" |a, b| a > b;
            "ne" | "lg" |a, b| a != b;
            "ge" |a, b| a >= b;
            "t" |_a, _b| true;
        }
    )*};
}

// `lg` and the negations differ from the simpler forms if an operand is a NaN.
#[allow(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::nonminimal_bool,
    clippy::double_comparisons
)]
fn float_comparisons(table: &mut HashMap<&'static str, Row>) {
    macro_rules! all {
        ($($ty:ident $suffix:literal),*) => {$(
            comparison! { table, $ty, $suffix;
                "f" |_a, _b| false;
                "lt" |a, b| a < b;
                "eq" |a, b| a == b;
                "le" |a, b| a <= b;
                "gt" |a, b| a > b;
                "lg" |a, b| a < b || a > b;
                "ge" |a, b| a >= b;
                "o" |a, b| !a.is_nan() && !b.is_nan();
                "u" |a, b| a.is_nan() || b.is_nan();
                "nge" |a, b| !(a >= b);
                "nlg" |a, b| !(a < b || a > b);
                "ngt" |a, b| !(a > b);
                "nle" |a, b| !(a <= b);
                "neq" |a, b| a != b;
                "nlt" |a, b| !(a < b);
                "t" | "tru" |_a, _b| true;
            }
        )*};
    }
    all!(F16 "f16", F32 "f32", F64 "f64");
}

static TABLE: LazyLock<HashMap<&'static str, Row>> = LazyLock::new(|| {
    let mut table = HashMap::new();
    integer_comparisons!(table: I16 "i16", U16 "u16", I32 "i32", U32 "u32", I64 "i64", U64 "u64");
    float_comparisons(&mut table);
    let class: [(&str, Handler, Type); 3] = [
        (
            "class_f16",
            |c, i| {
                let (holds, known) = compare::<F16, U32>(c, i, |a, mask| {
                    has_class(f64::from(a), a != 0.0 && a.abs() < 6.103_515_6e-5, mask)
                });
                write_result(c, i, holds, known)
            },
            Type::F16,
        ),
        (
            "class_f32",
            |c, i| {
                let (holds, known) =
                    compare::<F32, U32>(c, i, |a, mask| has_class(f64::from(a), a.is_subnormal(), mask));
                write_result(c, i, holds, known)
            },
            Type::F32,
        ),
        (
            "class_f64",
            |c, i| {
                let (holds, known) =
                    compare::<F64, U32>(c, i, |a, mask| has_class(a, a.is_subnormal(), mask));
                write_result(c, i, holds, known)
            },
            Type::F64,
        ),
    ];
    for (name, run, ty) in class {
        table.insert(
            name,
            Row {
                run,
                operands: [ty, Type::U32],
            },
        );
    }
    table
});

/// V_CMP_CLASS: bit 0 signalling NaN, 1 quiet NaN, 2 −∞, 3 −normal, 4 −denormal, 5 −0, 6 +0, 7 +denormal, 8 +normal, 9 +∞.
/// A NaN matches both bits of NaNs: the two are not told apart.
fn has_class(a: f64, denormal: bool, mask: u32) -> bool {
    if a.is_nan() {
        return mask & 3 != 0;
    }
    let positive = if a.is_infinite() {
        9
    } else if a == 0.0 {
        6
    } else if denormal {
        7
    } else {
        8
    };
    let class = if a.is_sign_negative() {
        11 - positive
    } else {
        positive
    };
    mask >> class & 1 == 1
}

/// Writes a lane mask to one scalar register (32 lanes) or two (64).
fn write_mask(wave: &mut Wave, register: usize, mask: u64, known: u64) {
    wave.sgpr[register] = mask as u32;
    wave.sgpr_known[register] = known as u32;
    if wave.lanes == 64 {
        wave.sgpr[register + 1] = (mask >> 32) as u32;
        wave.sgpr_known[register + 1] = (known >> 32) as u32;
    }
}

/// The known lanes of a lane mask.
fn mask_known(wave: &Wave, register: usize) -> u64 {
    u64::from(wave.sgpr_known[register]) | u64::from(wave.sgpr_known[register + 1]) << 32
}

fn write_result(context: &mut Context<'_, '_>, instruction: &Instruction, holds: u64, known: u64) -> Outcome {
    let wave = &mut *context.wave;
    let exec = wave.exec();
    let known = known | !exec;
    if let Some(register) = instruction.sdst {
        write_mask(wave, usize::from(register), holds, known);
    }
    if instruction.detail_exec() {
        if known & wave.all_lanes() != wave.all_lanes() && context.space.checks().uninitialised {
            return Err(uninitialised("an operand of the comparison that sets EXEC").into());
        }
        wave.set_exec(holds);
    }
    Ok(())
}

impl Instruction {
    /// True if a comparison sets EXEC (in `offset`, because DPP uses `detail`).
    fn detail_exec(&self) -> bool {
        self.offset as u32 & WRITES_EXEC != 0
    }
}

/// `None` if another file decodes the mnemonic.
pub(super) fn decode(line: &mut Line<'_>, base: &str) -> Option<Result<Instruction, String>> {
    if let Some(name) = base.strip_prefix("v_cmpx_") {
        return Some(decode_comparison(line, name, true));
    }
    if let Some(name) = base.strip_prefix("v_cmp_") {
        return Some(decode_comparison(line, name, false));
    }
    Some(match base {
        "v_cndmask_b32" => decode_select(line, base, Type::F32, |c, i| select(c, i, Type::F32)),
        "v_cndmask_b16" => decode_select(line, base, Type::F16, |c, i| select(c, i, Type::F16)),
        "v_add_co_u32" | "v_add_co_ci_u32" | "v_addc_co_u32" => {
            decode_carry(line, base, |c, i| carry(c, i, add_with_carry))
        }
        "v_sub_co_u32" | "v_sub_co_ci_u32" | "v_subb_co_u32" => {
            decode_carry(line, base, |c, i| carry(c, i, subtract_with_borrow))
        }
        "v_subrev_co_u32" | "v_subrev_co_ci_u32" | "v_subbrev_co_u32" => decode_carry(line, base, |c, i| {
            carry(c, i, |a, b, borrow| subtract_with_borrow(b, a, borrow))
        }),
        "v_mad_u64_u32" | "v_mad_co_u64_u32" => {
            decode_wide_mad(line, |c, i| wide_mad(c, i, |a, b| u128::from(a) * u128::from(b)))
        }
        "v_mad_i64_i32" | "v_mad_co_i64_i32" => decode_wide_mad(line, |c, i| {
            wide_mad(c, i, |a, b| {
                u128::from((i64::from(a.cast_signed()) * i64::from(b.cast_signed())).cast_unsigned())
            })
        }),
        _ => return None,
    })
}

fn decode_comparison(line: &mut Line<'_>, name: &str, exec: bool) -> Result<Instruction, String> {
    let row = TABLE.get(name).ok_or_else(String::new)?;
    let mut instruction = Instruction::new(row.run);
    // Since RDNA, v_cmpx writes EXEC alone.
    let first = if exec && !line.arch.gfx9 {
        instruction.sdst = Some(EXEC as u8);
        usize::from(line.operands.len() == 3)
    } else {
        instruction.sdst = line.sgpr(0)?;
        1
    };
    let op_sel = line.bits("op_sel", false)?;
    if line.operands.len() != first + 2 {
        return Err(format!("{} with {} operands", line.mnemonic, line.operands.len()));
    }
    sources(line, &mut instruction, first, &row.operands, op_sel)?;
    // For class tests the sign modifiers' flushing does not apply.
    instruction.ignores_mode = name.starts_with("class");
    instruction.offset = if exec { i64::from(WRITES_EXEC) } else { 0 };
    Ok(instruction)
}

/// A selection by a lane mask, of bits that may have the signs of a float of this type.
fn decode_select(line: &mut Line<'_>, base: &str, ty: Type, run: Handler) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(run);
    sources(line, &mut instruction, 1, &[ty; 2], [false; 4])?;
    instruction.src[2] = match line.operands.len() {
        3 => [
            Source::plain(crate::operands::Place::Sgpr(VCC as u8)),
            Source::ZERO,
        ],
        4 => line.source(3, Type::U32)?,
        count => return Err(format!("{} with {count} operands", line.mnemonic)),
    };
    if instruction.src[2][0].sgpr().is_none() {
        return Err(format!("operand {} of {}", line.operand(3)?, line.mnemonic));
    }
    instruction.dst = destination(line, base, ty, false)?;
    Ok(instruction)
}

/// The lanes in which each half of a source is known; of a half, those in which it is.
fn known_halves(wave: &Wave, source: &Source, ty: Type) -> [u64; 2] {
    match (source.vgpr(), source.change) {
        (Some(register), crate::operands::Change::None) if !ty.is_half() => wave.vgpr_known[register],
        _ => [known_lanes(wave, source, ty); 2],
    }
}

#[inline(always)]
fn select(context: &mut Context<'_, '_>, instruction: &Instruction, ty: Type) -> Outcome {
    let wave = &mut *context.wave;
    let exec = wave.exec();
    let Some(register) = instruction.src[2][0].sgpr() else {
        return Ok(());
    };
    let (chosen, chosen_known) = (wave.mask(register), mask_known(wave, register));
    let (a, b) = (
        known_halves(wave, &instruction.src[0][0], ty),
        known_halves(wave, &instruction.src[1][0], ty),
    );
    for round in 0..(wave.lanes / 32) as usize {
        let mask = (exec >> (32 * round)) as u32;
        if mask == 0 {
            continue;
        }
        let chosen = (chosen >> (32 * round)) as u32;
        let (mut out, mut high, mut buffer) = ([0; 32], [0; 32], [0; 32]);
        out.copy_from_slice(fetch(wave, &instruction.src[0][0], round, &mut buffer));
        let b = fetch(wave, &instruction.src[1][0], round, &mut buffer);
        blend(&mut out, b, chosen);
        store(wave, &instruction.dst, ty, round, mask, &mut out, &mut high);
    }
    mark_known(wave, &instruction.dst, ty, exec);
    let target = usize::from(instruction.dst.register);
    for half in (0..2).filter(|half| written_halves(instruction.dst.keep)[*half]) {
        let known = (chosen & b[half] | !chosen & a[half]) & chosen_known;
        wave.vgpr_known[target][half] &= known | !exec;
    }
    Ok(())
}

fn add_with_carry(a: u32, b: u32, carry: bool) -> (u32, bool) {
    let sum = u64::from(a) + u64::from(b) + u64::from(carry);
    (sum as u32, sum >> 32 != 0)
}

fn subtract_with_borrow(a: u32, b: u32, borrow: bool) -> (u32, bool) {
    let take = u64::from(b) + u64::from(borrow);
    (u64::from(a).wrapping_sub(take) as u32, take > u64::from(a))
}

fn decode_carry(line: &mut Line<'_>, base: &str, run: Handler) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(run);
    instruction.sdst = line.sgpr(1)?;
    sources(line, &mut instruction, 2, &[Type::U32; 2], [false; 4])?;
    let takes_carry = base.contains("_ci_") || base.starts_with("v_addc") || base.starts_with("v_subb");
    if takes_carry {
        instruction.src[2] = line.source(4, Type::U32)?;
        if instruction.src[2][0].sgpr().is_none() {
            return Err(format!("operand {} of {}", line.operand(4)?, line.mnemonic));
        }
    }
    if line.operands.len() != 4 + usize::from(takes_carry) {
        return Err(format!("{} with {} operands", line.mnemonic, line.operands.len()));
    }
    instruction.dst = destination(line, base, Type::U32, false)?;
    Ok(instruction)
}

#[inline(always)]
fn carry(
    context: &mut Context<'_, '_>,
    instruction: &Instruction,
    f: impl Fn(u32, u32, bool) -> (u32, bool),
) -> Outcome {
    let wave = &mut *context.wave;
    let exec = wave.exec();
    let (carries, carries_known) = match instruction.src[2][0].sgpr() {
        Some(register) => (wave.mask(register), mask_known(wave, register)),
        None => (0, u64::MAX),
    };
    let known = carries_known
        & known_lanes(wave, &instruction.src[0][0], Type::U32)
        & known_lanes(wave, &instruction.src[1][0], Type::U32);
    let mut out_carries = 0;
    for round in 0..(wave.lanes / 32) as usize {
        let mask = (exec >> (32 * round)) as u32;
        if mask == 0 {
            continue;
        }
        let carries = (carries >> (32 * round)) as u32;
        let (mut low, mut high, mut buffers) = ([0; 32], [0; 32], [[0; 32]; 2]);
        let [a, b] = &mut buffers;
        let a = fetch(wave, &instruction.src[0][0], round, a);
        let b = fetch(wave, &instruction.src[1][0], round, b);
        let mut bits = 0_u32;
        for lane in 0..32 {
            let (value, carry) = f(a[lane], b[lane], carries >> lane & 1 == 1);
            low[lane] = value;
            bits |= u32::from(carry) << lane;
        }
        out_carries |= u64::from(bits & mask) << (32 * round);
        store(
            wave,
            &instruction.dst,
            Type::U32,
            round,
            mask,
            &mut low,
            &mut high,
        );
    }
    mark_known(wave, &instruction.dst, Type::U32, exec);
    forget(wave, instruction, Type::U32, exec & !known);
    if let Some(register) = instruction.sdst {
        write_mask(wave, usize::from(register), out_carries, known | !exec);
    }
    Ok(())
}

/// Marks the result as unknown in these lanes.
fn forget(wave: &mut Wave, instruction: &Instruction, ty: Type, lanes: u64) {
    let register = usize::from(instruction.dst.register);
    for row in 0..if ty.is_wide() { 2 } else { 1 } {
        wave.vgpr_known[register + row] = wave.vgpr_known[register + row].map(|known| known & !lanes);
    }
}

fn decode_wide_mad(line: &mut Line<'_>, run: Handler) -> Result<Instruction, String> {
    let mut instruction = Instruction::new(run);
    instruction.sdst = line.sgpr(1)?;
    sources(
        line,
        &mut instruction,
        2,
        &[Type::U32, Type::U32, Type::U64],
        [false; 4],
    )?;
    instruction.dst = destination(line, "", Type::U64, false)?;
    Ok(instruction)
}

fn wide_mad(
    context: &mut Context<'_, '_>,
    instruction: &Instruction,
    product: impl Fn(u32, u32) -> u128,
) -> Outcome {
    let known =
        |wave: &Wave, index: usize, word: usize| known_lanes(wave, &instruction.src[index][word], Type::U32);
    let wave = &*context.wave;
    // The lower half of the sum depends on the lower half of the addend alone.
    let low = known(wave, 0, 0) & known(wave, 1, 0) & known(wave, 2, 0);
    let high = low & known(wave, 2, 1);
    three_operands(
        context,
        instruction,
        [Type::U32, Type::U32, Type::U64],
        Type::U64,
        |[a, b, c], _| {
            let c = u64::from(c[0]) | u64::from(c[1]) << 32;
            let (sum, carry) = (product(a[0], b[0]) as u64).overflowing_add(c);
            ([sum as u32, (sum >> 32) as u32], carry)
        },
    )?;
    let wave = &mut *context.wave;
    let exec = wave.exec();
    let register = usize::from(instruction.dst.register);
    for (row, known) in [low, high].into_iter().enumerate() {
        wave.vgpr_known[register + row] =
            wave.vgpr_known[register + row].map(|bits| bits & !exec | known & exec);
    }
    Ok(())
}

/// An instruction of three operands, with a flag in and a flag out.
pub(super) fn three_operands(
    context: &mut Context<'_, '_>,
    instruction: &Instruction,
    types: [Type; 3],
    result: Type,
    f: impl Fn([[u32; 2]; 3], bool) -> ([u32; 2], bool),
) -> Result<(), Box<Exit>> {
    let wave = &mut *context.wave;
    let exec = wave.exec();
    let (flags, mut known) = match instruction.src[3][0].sgpr() {
        Some(register) => (wave.mask(register), mask_known(wave, register)),
        None => (0, u64::MAX),
    };
    for (source, ty) in instruction.src.iter().zip(types) {
        known &= known_lanes(wave, &source[0], ty);
        if ty.is_wide() {
            known &= known_lanes(wave, &source[1], ty);
        }
    }
    let mut out_flags = 0;
    for round in 0..(wave.lanes / 32) as usize {
        let mask = (exec >> (32 * round)) as u32;
        let (mut low, mut high) = ([0; 32], [0; 32]);
        for lane in (0..32).filter(|lane| mask >> lane & 1 == 1) {
            let at = 32 * round + lane;
            let operands = [0, 1, 2].map(|index| {
                let [low, high] = &instruction.src[index];
                [
                    fetch_lane(wave, low, at),
                    if types[index].is_wide() {
                        fetch_lane(wave, high, at)
                    } else {
                        0
                    },
                ]
            });
            let (value, flag) = f(operands, flags >> at & 1 == 1);
            [low[lane], high[lane]] = value;
            out_flags |= u64::from(flag) << at;
        }
        store(wave, &instruction.dst, result, round, mask, &mut low, &mut high);
    }
    mark_known(wave, &instruction.dst, result, exec);
    forget(wave, instruction, result, exec & !known);
    if let Some(register) = instruction.sdst {
        write_mask(wave, usize::from(register), out_flags, known | !exec);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes() {
        assert!(has_class(f64::NEG_INFINITY, false, 1 << 2));
        assert!(has_class(-1.0, false, 1 << 3));
        assert!(has_class(-1e-40, true, 1 << 4));
        assert!(has_class(-0.0, false, 1 << 5));
        assert!(has_class(0.0, false, 1 << 6));
        assert!(has_class(1e-40, true, 1 << 7));
        assert!(has_class(1.0, false, 1 << 8));
        assert!(has_class(f64::INFINITY, false, 1 << 9));
        assert!(!has_class(f64::NAN, false, 0x3fc));
    }

    #[test]
    fn carries() {
        assert_eq!(add_with_carry(u32::MAX, 0, true), (0, true));
        assert_eq!(add_with_carry(1, 2, false), (3, false));
        assert_eq!(subtract_with_borrow(0, u32::MAX, true), (0, true));
        assert_eq!(subtract_with_borrow(5, 3, true), (1, false));
    }
}
