//! From the disassembler's text to instructions that can be executed.
//!
//! [`line`](crate::line) splits a line into mnemonic, operands and modifiers; [`isa`] decodes each kind of instruction from them.
//! A modifier that no decoder takes makes the instruction unsupported. An unsupported instruction faults when it is executed, so
//! that none silently computes a wrong result.

use crate::arch::{Arch, Encoding};
use crate::code::{Code, Instruction, NOWHERE};
use crate::isa;
use crate::line::Line;

/// Decodes what `llvm-objdump -d` writes about a code object for this architecture and wave size.
pub(crate) fn decode(text: String, arch: &str, lanes: u32) -> Code {
    let mut code = Code::of_listing(text);
    let arch = Arch {
        gfx9: arch.starts_with("gfx9"),
        gfx11: arch.starts_with("gfx11"),
        gfx12: arch.starts_with("gfx12"),
        float8: Encoding::of(arch),
        lanes,
    };
    for number in 0..code.line_count() {
        match decode_line(&code, number, arch) {
            Ok((instruction, registers)) => code.push(instruction, registers),
            Err(what) => code.push_unsupported(what),
        }
    }
    code
}

/// An instruction, and one more than the highest vector and accumulation register that it names.
fn decode_line(code: &Code, number: usize, arch: Arch) -> Result<(Instruction, [usize; 2]), String> {
    let (address, text) = code.line(number);
    let mut line = Line::parse(text, address, arch).ok_or_else(|| "a line of the disassembly".to_owned())?;
    if number + 1 < code.line_count() {
        line.end = code.line(number + 1).0;
    }
    let registers = line.registers();
    let mut instruction = isa::decode(&mut line)?;
    line.finish()?;
    if line.branches {
        let target = address
            .wrapping_add(4)
            .wrapping_add_signed(4 * i64::from(line.word as i16));
        instruction.offset = i64::from(code.index_of(target).unwrap_or(NOWHERE));
    }
    Ok((instruction, registers))
}
