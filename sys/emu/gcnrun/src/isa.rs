//! The semantics of AMD's instructions, by the ISA guides of RDNA 2 to 4 and of CDNA 2 to 4.
//!
//! [`decode`](crate::decode) turns the disassembler's text into [`Instruction`]s by the tables here, one file for each kind. Each
//! has the function that executes it for the whole wave. The [`interpreter`](crate::interpreter) executes a wave; instructions
//! access memory through [`Space`](crate::space::Space).

mod access;
mod arithmetic;
mod compare;
mod control;
mod convert;
mod cross;
mod division;
mod dpp;
mod dual;
mod element;
pub(crate) mod float;
mod float8;
mod lanes;
mod lds;
mod map;
mod matrix;
mod packed;
mod rows;
mod salu;
mod smem;
mod unknown;
mod valu;
mod vmem;

use crate::code::Instruction;
use crate::line::Line;

/// Decodes a line of the disassembly.
///
/// # Errors
/// What is not supported.
pub(crate) fn decode(line: &mut Line<'_>) -> Result<Instruction, String> {
    let mnemonic = line.mnemonic;
    let decoded = if line.dual.is_some() {
        dual::decode(line)
    } else if mnemonic.starts_with("v_s_") {
        salu::decode(line)
    } else if mnemonic.starts_with("v_") {
        valu::decode(line)
    } else if mnemonic.starts_with("s_") {
        if mnemonic.starts_with("s_load_") {
            smem::decode(line)
        } else {
            control::decode(line).unwrap_or_else(|| salu::decode(line))
        }
    } else if mnemonic.starts_with("ds_") {
        lds::decode(line)
    } else {
        vmem::decode(line)
    };
    decoded.map_err(|what| {
        if what.is_empty() {
            format!("instruction {mnemonic}")
        } else {
            what
        }
    })
}
