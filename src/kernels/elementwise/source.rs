//! Code generation: a formula as a C++ function.

use std::fmt::Write as _;

use hipvit_graph::op::Elementwise;
use hipvit_graph::pattern::{Instruction, Step, Type};

use crate::kernels::generated_source::{float, list, type_name};

/// Returns the program that instantiates the kernel of the op. It depends on the formula and on which operands are integers.
pub(super) fn source(op: &Elementwise) -> String {
    let formula = op.formula();
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
    static HIPVIT_DEVICE float value(const float (&x)[OPERANDS]) {{
",
        op.integer_operands().len().max(1),
        op.is_integer(),
    );
    for (index, step) in formula.steps().iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "        const {} v{index} = {};",
            type_name(step),
            value(step)
        );
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
}
