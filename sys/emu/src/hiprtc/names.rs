//! Name expressions: C++ expressions that name a kernel or a variable, and their symbols in the code object.
//!
//! A pointer to each expression is added to the program, which also instantiates templates, as in ROCm's hipRTC. The symbol is
//! found by the pointer's relocation.

use std::fmt::Write as _;

use object::read::elf::ElfFile64;
use object::{LittleEndian, Object, ObjectSymbol, ObjectSymbolTable as _, RelocationTarget};

/// The prefix of the pointers' symbols, before their number.
const POINTER: &str = "__hip_emu_name_expression_";

/// The declarations that are appended to the program's source.
pub(super) fn declarations(expressions: &[String]) -> String {
    if expressions.is_empty() {
        return String::new();
    }
    // In the compiler's log the line is the number of the expression.
    let mut text = String::from("\n#line 1 \"name_expressions\"\n");
    for (index, expression) in expressions.iter().enumerate() {
        let named = expression.trim().trim_start_matches('&');
        let named = named.replace(['\n', '\r'], " ");
        // Writing to a `String` does not fail.
        let _ = writeln!(
            text,
            "extern \"C\" {{ __device__ const void* {POINTER}{index} = (const void*)&{named}; }}"
        );
    }
    text
}

/// The symbols of `count` expressions in a code object; `None` if one is missing.
pub(super) fn lowered(code: &[u8], count: usize) -> Option<Vec<String>> {
    if count == 0 {
        return Some(Vec::new());
    }
    let file = ElfFile64::<LittleEndian>::parse(code).ok()?;
    (0..count)
        .map(|index| target(&file, &format!("{POINTER}{index}")))
        .collect()
}

/// The symbol to which the variable `pointer` points.
fn target(file: &ElfFile64<'_, LittleEndian>, pointer: &str) -> Option<String> {
    let place = file
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok(pointer))?
        .address();
    let (_, relocation) = file.dynamic_relocations()?.find(|&(at, _)| at == place)?;
    let name = match relocation.target() {
        RelocationTarget::Symbol(index) => {
            let table = file.dynamic_symbol_table()?;
            table.symbol_by_index(index).ok()?.name().ok()?
        }
        // Relative to the image: the addend is the symbol's address.
        _ => file
            .dynamic_symbols()
            .find(|symbol| {
                symbol.is_definition() && i64::try_from(symbol.address()) == Ok(relocation.addend())
            })?
            .name()
            .ok()?,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::declarations;

    #[test]
    fn each_expression_gets_a_pointer() {
        assert_eq!(declarations(&[]), "");
        let text = declarations(&["axpy<float, 4>".into(), " &ns::scale".into()]);
        let lines: Vec<_> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "extern \"C\" { __device__ const void* __hip_emu_name_expression_0 = (const void*)&axpy<float, 4>; }",
                "extern \"C\" { __device__ const void* __hip_emu_name_expression_1 = (const void*)&ns::scale; }",
            ]
        );
    }
}
