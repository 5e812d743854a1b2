//! Code generation: a formula as a C++ function.

use std::fmt::Write as _;

use hipvit_graph::op::{Elementwise, Formula};
use hipvit_graph::pattern::{Instruction, Step, Type};

use crate::kernels::bindings::FORMULA_CONSTANTS;
use crate::kernels::generated_source::{float, list, type_name};

/// Constants that are part of the program, where the compiler can simplify what it does with them.
const SIMPLE: [f32; 7] = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5];

/// Returns the constants that are arguments of the kernel, in the order of their steps, at most as many as it takes.
pub(super) fn constants(formula: &Formula) -> impl Iterator<Item = (usize, f32)> + '_ {
    let constant = |(index, step): (usize, &Step)| match step.instruction {
        Instruction::Float(bits) => Some((index, f32::from_bits(bits))),
        _ => None,
    };
    let all = formula.steps().iter().enumerate().filter_map(constant);
    all.filter(|(_, value)| value.is_finite() && !SIMPLE.contains(value))
        .take(FORMULA_CONSTANTS as usize)
}

/// Returns the program that instantiates the kernel of the op. It depends on the formula without its [constants], and on which operands are
/// integers.
pub(super) fn source(op: &Elementwise) -> String {
    let formula = op.formula();
    let arguments: Vec<usize> = constants(formula).map(|(step, _)| step).collect();
    let integers = op.integer_operands().iter().enumerate();
    let integers = integers.fold(0, |bits, (index, &is_integer)| {
        bits | u64::from(is_integer) << index.min(63)
    });
    let mut text = format!(
        "#include \"elementwise/formula.hpp\"

namespace hipvit {{

struct Formula {{
    static constexpr u32 OPERANDS = {};
    static constexpr u32 INTEGERS = {integers};
    static constexpr bool INTEGER_RESULT = {};
    static HIPVIT_DEVICE float value(const float (&x)[OPERANDS], const float (&c)[FORMULA_CONSTANTS]) {{
",
        op.integer_operands().len().max(1),
        op.is_integer(),
    );
    for (index, step) in formula.steps().iter().enumerate() {
        let value = match arguments.iter().position(|&argument| argument == index) {
            Some(argument) => format!("c[{argument}]"),
            None => value(step),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "        const {} v{index} = {value};", type_name(step));
    }
    let result = formula.result();
    let returned = match formula.steps()[result].ty {
        Type::Bool => format!("v{result} ? 1.0f : 0.0f"),
        _ => format!("v{result}"),
    };
    let _ = write!(
        text,
        "        return {returned};
    }}
}};

}} // namespace hipvit

HIPVIT_FOR_DTYPES(HIPVIT_ELEMENTWISE, elementwise)
"
    );
    text
}

/// Returns a step's value as an expression of earlier steps.
fn value(step: &Step) -> String {
    match &step.instruction {
        Instruction::Operand(index) => format!("x[{index}]"),
        Instruction::Bool(value) => value.to_string(),
        Instruction::Float(bits) => float(*bits),
        Instruction::Apply(op, operands) => format!("fn_{}({})", op.name(), list(operands)),
        // A formula has no other steps.
        _ => "0.0f".into(),
    }
}

#[cfg(test)]
mod tests {
    use hipvit_graph::pattern::Float;

    use super::*;

    #[test]
    fn the_program_has_the_formula_and_its_dtypes() {
        let op = Elementwise::ternary(|x, y, z| Float::select(&x.less(y.clone()), z.sigmoid(), y)).unwrap();
        let text = source(&op.with_integer_operands(&[0, 2]).into_integers());
        for expected in [
            "OPERANDS = 3;",
            "INTEGERS = 5;",
            "INTEGER_RESULT = true;",
            "const bool v2 = fn_less(v0, v1);",
            "const float v4 = fn_sigmoid(v3);",
            "HIPVIT_FOR_DTYPES(HIPVIT_ELEMENTWISE, elementwise)",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        let truth = source(&Elementwise::binary(|x, y| x.less(y)).unwrap());
        assert!(truth.contains("return v2 ? 1.0f : 0.0f;"), "{truth}");
    }

    #[test]
    fn formulas_that_differ_in_constants_share_a_program() {
        let affine = |factor: f32, shift: f32| Elementwise::unary(|x| (x * factor + shift).max(0.0)).unwrap();
        let text = source(&affine(1.25, -0.75));
        assert_eq!(text, source(&affine(0.1, 7.0)));
        assert!(text.contains("const float v1 = c[0];"), "{text}");
        let found: Vec<(usize, f32)> = constants(affine(1.25, -0.75).formula()).collect();
        assert_eq!(found, [(1, 1.25), (3, -0.75)]);
        assert_ne!(text, source(&affine(1.0, 7.0)));
        // More constants than the kernel takes.
        let long = |last: f32| {
            Elementwise::unary(|x| (0..20).fold(x, |sum, index| (sum + (3.25 + index as f32)).sin()) + last)
                .unwrap()
        };
        assert_ne!(source(&long(0.3)), source(&long(0.4)));
    }
}
