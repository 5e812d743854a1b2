//! Rows of the tables of vector operations, and the decoding of their operands and results.

use std::collections::HashMap;

use crate::code::{Destination, Handler, Instruction, Keep, Rest};
use crate::line::Line;
use crate::operands::{self, Part, Type};

/// A row of a table: the function that executes an operation, and the types of its result and operands.
pub(super) struct Row {
    pub(super) run: Handler,
    pub(super) result: Type,
    pub(super) operands: &'static [Type],
    /// True if the last operand is the destination's old value.
    pub(super) accumulates: bool,
}

pub(super) type Table = HashMap<&'static str, Row>;

/// `"name" => Result (Type a, Type b) expression;` The types are those of [`element`](super::element).
macro_rules! rows {
    ($table:ident; $($($name:literal)|+ => $result:ident ($($ty:ident $x:ident),+) $f:expr;)*) => {$(
        let run: Handler = |context, instruction| map!($($ty),+ => $result)(context, instruction, |$($x),+| $f);
        for name in [$($name),+] {
            $table.insert(name, Row {
                run,
                result: <$result as $crate::isa::element::Element>::TYPE,
                operands: &[$(<$ty as $crate::isa::element::Element>::TYPE),+],
                accumulates: false,
            });
        }
    )*};
}
pub(super) use rows;

/// The function that maps an operation on operands of these types.
macro_rules! map {
    ($a:ident => $r:ident) => {
        map1::<$a, $r, _>
    };
    ($a:ident, $b:ident => $r:ident) => {
        map2::<$a, $b, $r, _>
    };
    ($a:ident, $b:ident, $c:ident => $r:ident) => {
        map3::<$a, $b, $c, $r, _>
    };
}
pub(super) use map;

/// Marks rows whose last operand is the destination.
pub(super) fn accumulate(table: &mut Table, names: &[&'static str]) {
    for name in names {
        if let Some(row) = table.get_mut(name) {
            row.accumulates = true;
        }
    }
}

/// Decodes operands from `first` on, with their halves (`op_sel`) or SDWA's parts.
pub(super) fn sources(
    line: &mut Line<'_>,
    instruction: &mut Instruction,
    first: usize,
    types: &[Type],
    op_sel: [bool; 4],
) -> Result<(), String> {
    for (index, ty) in types.iter().enumerate() {
        let word = line.operand(first + index)?;
        let name = ["src0_sel", "src1_sel", "src2_sel"]
            .get(index)
            .copied()
            .unwrap_or("");
        let part = match line.take(name) {
            Some(part) => Some(Part::sdwa(part).ok_or_else(|| format!("{name}:{part}"))?),
            // The bit repeats what the operand's name says.
            None if operands::named_half(word).is_some() => None,
            None if op_sel[index] && ty.is_half() => Some(Part { shift: 16, width: 16 }),
            None if op_sel[index] => return Err(format!("op_sel of operand {word} of {}", line.mnemonic)),
            None => None,
        };
        instruction.src[index] = operands::source(word, *ty, part)
            .ok_or_else(|| format!("operand {word} of {}", line.mnemonic))?;
    }
    Ok(())
}

/// On GCN and CDNA results of 16 bits clear the upper half, except these.
const KEEPING_UPPER_HALF: &[&str] = &[
    "v_mad_f16",
    "v_mad_u16",
    "v_mad_i16",
    "v_fma_f16",
    "v_div_fixup_f16",
    "v_min3_f16",
    "v_max3_f16",
    "v_med3_f16",
    "v_min3_u16",
    "v_max3_u16",
    "v_med3_u16",
    "v_min3_i16",
    "v_max3_i16",
    "v_med3_i16",
    "v_add_i16",
    "v_sub_i16",
    "v_cvt_pk_fp8_f32",
    "v_cvt_pk_bf8_f32",
];

/// The vector register that a result goes to, with the modifiers of results.
pub(super) fn destination(
    line: &mut Line<'_>,
    base: &str,
    ty: Type,
    high: bool,
) -> Result<Destination, String> {
    let (register, count) = line.vgpr(0)?;
    if ty.is_wide() && count != 2 {
        return Err(format!("operand {} of {}", line.operand(0)?, line.mnemonic));
    }
    let high = high || line.operand(0)?.ends_with(".h");
    let mut keep = match (ty.is_half(), high) {
        (false, true) => return Err(format!("op_sel of the result of {}", line.mnemonic)),
        (false, false) => Keep::None,
        (true, true) => Keep::Low,
        (true, false) if line.arch.gfx9 && !KEEPING_UPPER_HALF.contains(&base) => Keep::None,
        (true, false) => Keep::High,
    };
    if let Some(part) = line.take("dst_sel") {
        let part = Part::sdwa(part).ok_or_else(|| format!("dst_sel:{part}"))?;
        let rest = match line.take("dst_unused") {
            Some("UNUSED_PAD") | None => Rest::Zero,
            Some("UNUSED_SEXT") => Rest::Sign,
            Some("UNUSED_PRESERVE") => Rest::Preserve,
            Some(other) => return Err(format!("dst_unused:{other}")),
        };
        keep = if part.width == 32 {
            Keep::None
        } else {
            Keep::Sdwa {
                shift: part.shift,
                width: part.width,
                rest,
            }
        };
    }
    let scale = match (line.take("mul"), line.take("div")) {
        (None, None) => 1.0,
        (Some("2"), None) => 2.0,
        (Some("4"), None) => 4.0,
        (None, Some("2")) => 0.5,
        _ => return Err(format!("output modifiers of {}", line.mnemonic)),
    };
    Ok(Destination {
        register,
        keep,
        scale,
        clamp: false,
    })
}
