//! Code generation: a pattern's steps as C++ functions.

use std::fmt::Write as _;

use hipvit_graph::pattern::{
    Dependencies, Derivative, Index, Instruction, MAX_TOKENS, Operator, Program, Step, Type,
};

use crate::kernels::generated_source::{float, list, type_name};

/// Returns the program that instantiates the kernels of attention with this pattern, for heads padded to `head_dim` channels.
///
/// The program depends on the expressions alone: tensors, scalars and extents are arguments of the kernels.
pub fn source(program: &Program, head_dim: u32) -> String {
    let addend = addend(program);
    let score = program.score().filter(|_| addend.is_none());
    let mut text = String::from("#include \"attention/pattern.hpp\"\n\n");
    let results = [program.score(), program.mask(), addend];
    let results: Vec<usize> = results.into_iter().flatten().collect();
    begin(&mut text, program, &results);
    flag(&mut text, "SCORES", score);
    flag(&mut text, "ADDS", addend);
    flag(&mut text, "MASKS", program.mask());
    function(&mut text, program, SCORE, score);
    function(&mut text, program, "float addend(u32 query, u32 key)", addend);
    function(&mut text, program, VISIBLE, program.mask());
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "}};\n\n}} // namespace hipvit\n\nHIPVIT_PATTERN_ENTRIES({head_dim})\n"
    );
    text
}

/// Returns the program that instantiates the kernels of attention over pages with this pattern, as [`source`] does for attention.
pub(crate) fn paged_source(program: &Program) -> String {
    let mut text = String::from("#include \"attention/paged_pattern.hpp\"\n\n");
    let results: Vec<usize> = program.score().into_iter().chain(program.mask()).collect();
    begin(&mut text, program, &results);
    flag(&mut text, "SCORES", program.score());
    flag(&mut text, "MASKS", program.mask());
    function(&mut text, program, SCORE, program.score());
    function(&mut text, program, VISIBLE, program.mask());
    text + "};\n\n} // namespace hipvit\n\nHIPVIT_PAGED_PATTERN_ENTRIES()\n"
}

/// Returns the program that instantiates the kernels of the derivative of attention with a pattern, as [`source`] does for attention.
pub(crate) fn backward_source(derivative: &Derivative, head_dim: u32) -> String {
    let program = &derivative.program;
    let mut text = format!(
        "#define HIPVIT_PATTERN_HEAD_DIM {head_dim}\n#include \"attention/pattern_backward.hpp\"\n\n"
    );
    let results = [program.score(), program.mask(), derivative.score];
    let loads = derivative.loads.iter().flat_map(|&(load, factor)| [load, factor]);
    let results: Vec<usize> = results.into_iter().flatten().chain(loads).collect();
    begin(&mut text, program, &results);
    flag(&mut text, "SCORES", program.score());
    flag(&mut text, "MASKS", program.mask());
    function(&mut text, program, SCORE, program.score());
    function(
        &mut text,
        program,
        "float derivative(float s, u32 query, u32 key)",
        derivative.score,
    );
    function(&mut text, program, VISIBLE, program.mask());
    for (number, &(load, factor)) in derivative.loads.iter().enumerate() {
        let signature = format!("float factor(Load<{number}>, float s, u32 query, u32 key)");
        function(&mut text, program, &signature, Some(factor));
        let signature = format!("u32 offset_of(Load<{number}>, u32 query, u32 key)");
        if let Instruction::Load { tensor, index } = &program.steps()[load].instruction {
            let offset = format!("this->template offset<{tensor}>({})", list(index));
            body(&mut text, program, &signature, index, &offset);
        }
    }
    text += "};\n\n} // namespace hipvit\n\nHIPVIT_FOR_DTYPES(HIPVIT_PATTERN_BACKWARD, )\n";
    for number in 0..derivative.loads.len() {
        let _ = writeln!(text, "HIPVIT_FOR_DTYPES(HIPVIT_PATTERN_LOAD, {number})");
    }
    text
}

const SCORE: &str = "float score(float s, u32 query, u32 key)";
const VISIBLE: &str = "bool visible(u32 query, u32 key)";

/// Writes the tables, and the structure of the pattern up to its members. `results` are the steps that its functions return.
fn begin(text: &mut String, program: &Program, results: &[usize]) {
    *text += "namespace hipvit {\n\n";
    for (index, step) in program.steps().iter().enumerate() {
        match &step.instruction {
            Instruction::IntTable { values, .. } => {
                table(text, index, "int", values.iter().map(i32::to_string));
            }
            Instruction::FloatTable { values, .. } => {
                table(text, index, "float", values.iter().map(|&bits| float(bits)));
            }
            _ => {}
        }
    }
    *text += "template <class T> struct Pattern : PatternInputs<T> {\n";
    members(text, program, results);
}

fn flag(text: &mut String, name: &str, step: Option<usize>) {
    let _ = writeln!(text, "    static constexpr bool {name} = {};", step.is_some());
}

fn table(text: &mut String, index: usize, ty: &str, values: impl Iterator<Item = String>) {
    let values: Vec<String> = values.collect();
    let _ = writeln!(
        text,
        "HIPVIT_CONSTANT {ty} TABLE_{index}[{}] = {{{}}};\n",
        values.len(),
        values.join(", ")
    );
}

/// Returns the step that the score adds to the score before the pattern, if it can be evaluated once for all images: an element of a
/// captured tensor, which has the kernels' dtype, so that storing it loses nothing.
pub(crate) fn addend(program: &Program) -> Option<usize> {
    let steps = program.steps();
    let Instruction::Apply(Operator::Add, operands) = &steps[program.score()?].instruction else {
        return None;
    };
    let is_score = |step: usize| steps[step].instruction == Instruction::Score;
    let other = match **operands {
        [score, other] | [other, score] if is_score(score) => other,
        _ => return None,
    };
    let of_images = Dependencies::SCORE.union(Dependencies::BATCH);
    let is_load = matches!(steps[other].instruction, Instruction::Load { .. });
    (is_load && !steps[other].dependencies.intersects(of_images)).then_some(other)
}

/// What differs among the scores of a head.
const OF_SCORES: Dependencies = Dependencies::SCORE
    .union(Dependencies::QUERY)
    .union(Dependencies::KEY);

/// Returns true for a step that is computed once per block and kept: it is the same for all scores of a head, and no mere constant.
fn is_member(step: &Step) -> bool {
    let is_work = matches!(
        step.instruction,
        Instruction::Apply(..) | Instruction::Load { .. }
    );
    is_work && !step.dependencies.intersects(OF_SCORES)
}

/// Writes the members, those which other steps read, and the constructor that computes them.
fn members(text: &mut String, program: &Program, results: &[usize]) {
    let steps = program.steps();
    let is_read = |index: usize| {
        let is_operand = steps
            .iter()
            .any(|step| !is_member(step) && step.operands().contains(&index));
        is_operand || results.contains(&index)
    };
    let members: Vec<usize> = (0..steps.len())
        .filter(|&index| is_member(&steps[index]) && is_read(index))
        .collect();
    for &index in &members {
        let _ = writeln!(text, "    {} m{index};", type_name(&steps[index]));
    }
    *text += "    HIPVIT_DEVICE Pattern(const AttentionPattern &a, u32 image, u32 head) : PatternInputs<T>(a, image, head) {\n";
    for (index, step) in steps
        .iter()
        .enumerate()
        .filter(|(_, step)| !step.dependencies.intersects(OF_SCORES))
    {
        let _ = writeln!(
            text,
            "        const {} v{index} = {};",
            type_name(step),
            value(program, index, step)
        );
    }
    for index in members {
        let _ = writeln!(text, "        m{index} = v{index};");
    }
    *text += "    }\n";
}

/// Writes a function that returns the step `result`, or one whose result has no effect.
fn function(text: &mut String, program: &Program, signature: &str, result: Option<usize>) {
    let (results, value) = match result {
        Some(result) => (vec![result], format!("v{result}")),
        None if signature.starts_with("bool") => (Vec::new(), "true".into()),
        None => (Vec::new(), "0.0f".into()),
    };
    body(text, program, signature, &results, &value);
}

/// Writes a function that computes the steps `results`, and returns an expression of them.
fn body(text: &mut String, program: &Program, signature: &str, results: &[usize], returned: &str) {
    let _ = writeln!(text, "    HIPVIT_DEVICE {signature} const {{");
    let mut needed = vec![false; program.steps().len()];
    results.iter().for_each(|&result| needed[result] = true);
    for (index, step) in program.steps().iter().enumerate().rev() {
        if needed[index] && !is_member(step) && distance(program, step).is_none() {
            step.operands().iter().for_each(|&operand| needed[operand] = true);
        }
    }
    let steps = program.steps().iter().enumerate();
    for (index, step) in steps.filter(|(index, _)| needed[*index]) {
        let value = if is_member(step) {
            format!("this->m{index}")
        } else {
            value(program, index, step)
        };
        let _ = writeln!(text, "        const {} v{index} = {value};", type_name(step));
    }
    let _ = writeln!(text, "        return {returned};\n    }}");
}

/// Returns a step's value as an expression of earlier steps.
fn value(program: &Program, index: usize, step: &Step) -> String {
    if let Some(distance) = distance(program, step) {
        return distance;
    }
    match &step.instruction {
        Instruction::Score => "s".into(),
        Instruction::Index(index) => match index {
            Index::Batch => "int(this->image)",
            Index::Head => "int(this->head)",
            Index::Query => "int(query)",
            Index::Key => "int(key)",
            Index::Heads => "int(this->a.heads)",
            Index::Queries => "int(this->a.queries)",
            Index::Keys => "int(this->a.keys)",
        }
        .into(),
        Instruction::Bool(value) => value.to_string(),
        // The smallest integer is no literal of C++.
        Instruction::Int(i32::MIN) => "int(0x80000000u)".into(),
        Instruction::Int(value) => value.to_string(),
        Instruction::Float(bits) => float(*bits),
        Instruction::Scalar(scalar) => match program.scalars()[*scalar].ty {
            Type::Float => format!("float_of(this->a.scalars[{scalar}])"),
            Type::Int | Type::Bool => format!("int(this->a.scalars[{scalar}])"),
        },
        Instruction::Load { tensor, index } => {
            let ty = match program.tensors()[*tensor].ty {
                Type::Float => "float",
                Type::Int | Type::Bool => "int",
            };
            format!("this->template load_{ty}<{tensor}>({})", list(index))
        }
        Instruction::IntTable { values, index: at } => {
            format!("TABLE_{index}[this->clamped(v{at}, {})]", values.len())
        }
        Instruction::FloatTable { values, index: at } => {
            format!("TABLE_{index}[this->clamped(v{at}, {})]", values.len())
        }
        // A pattern has no operands.
        Instruction::Operand(_) => "0.0f".into(),
        Instruction::Apply(op, operands) => format!("op_{}({})", op.name(), list(operands)),
    }
}

/// Integers up to this magnitude are exact floats.
const EXACT: u32 = 1 << 24;

/// Bytes of a distance at most: it repeats what steps share.
const LONGEST: usize = 256;

/// Returns the float of a distance of queries and keys, computed by floats. Then the scores of a key share its conversion, and an absolute value
/// is free. `None` for other steps.
fn distance(program: &Program, step: &Step) -> Option<String> {
    let Instruction::Apply(Operator::ToFloat, operands) = &step.instruction else {
        return None;
    };
    exact_float(program.steps(), operands[0]).map(|(value, _)| value)
}

/// Returns the float of an integer step and a bound of its magnitude, if floats compute it exactly.
fn exact_float(steps: &[Step], step: usize) -> Option<(String, u32)> {
    let (value, bound) = match &steps[step].instruction {
        Instruction::Index(Index::Query) => ("op_to_float(int(query))".into(), MAX_TOKENS as u32),
        Instruction::Index(Index::Key) => ("op_to_float(int(key))".into(), MAX_TOKENS as u32),
        Instruction::Int(value) if value.unsigned_abs() <= EXACT => {
            (float((*value as f32).to_bits()), value.unsigned_abs())
        }
        // Without products and negations, which make −0 of 0.
        Instruction::Apply(op @ (Operator::Add | Operator::Sub | Operator::Abs), operands) => {
            let operands = operands.iter().map(|&operand| exact_float(steps, operand));
            let (values, bounds): (Vec<_>, Vec<_>) =
                operands.collect::<Option<Vec<_>>>()?.into_iter().unzip();
            (
                format!("op_{}({})", op.name(), values.join(", ")),
                bounds.iter().sum(),
            )
        }
        _ => return None,
    };
    (bound <= EXACT && value.len() <= LONGEST).then_some((value, bound))
}

#[cfg(test)]
mod tests {
    use hipvit_graph::pattern::{Float, Int, Pattern, floats, ints, masks, scores};

    use super::*;

    #[test]
    fn the_program_has_a_function_for_score_and_mask() {
        let pattern = Pattern::new()
            .with_score(scores::soft_cap(scores::score(), 0.1))
            .with_mask(masks::causal() | masks::documents("ids"));
        let text = source(&pattern.compile().unwrap(), 64);
        for expected in [
            "SCORES = true;",
            "MASKS = true;",
            " = 1.00000001e-1f;",
            "op_less_equal(v",
            "this->template load_int<0>(v",
            "HIPVIT_PATTERN_ENTRIES(64)\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn distances_become_floats_where_that_is_exact() {
        let far = ints::query() - ints::key() + (1 << 24);
        let text = |score: Float| {
            let pattern = Pattern::new().with_score(score);
            source(&pattern.compile().unwrap(), 64)
        };
        let alibi = text(scores::alibi(scores::score()));
        let distance = " = op_abs(op_sub(op_to_float(int(query)), op_to_float(int(key))));";
        assert!(alibi.contains(distance) && !alibi.contains("op_abs(v"), "{alibi}");
        // Too large, −0, and a sum of 256 zeros that share steps.
        let zeros = (0..8).fold(Int::from(0), |sum, _| sum.clone() + sum);
        for x in [far, -ints::key(), ints::query() + zeros] {
            let text = text(scores::score() + x.to_float());
            assert!(text.contains(" = op_to_float(v"), "{text}");
        }
    }

    #[test]
    fn the_program_of_pages_has_no_addend() {
        let pattern = Pattern::new().with_score(scores::bias(scores::score(), "bias"));
        let text = paged_source(&pattern.compile().unwrap());
        for expected in [
            "SCORES = true;",
            "MASKS = false;",
            "HIPVIT_PAGED_PATTERN_ENTRIES()\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.contains("addend"), "{text}");
    }

    #[test]
    fn the_program_of_the_derivative_has_functions_for_each_load() {
        let pattern = Pattern::new()
            .with_score(floats::load("slopes", [ints::head()]) * scores::bias(scores::score(), "bias"))
            .with_mask(masks::causal());
        let derivative = pattern.compile().unwrap().differentiate().unwrap();
        let text = backward_source(&derivative, 64);
        for expected in [
            "#define HIPVIT_PATTERN_HEAD_DIM 64\n",
            "SCORES = true;",
            "float derivative(float s, u32 query, u32 key) const {",
            "float factor(Load<0>, float s, u32 query, u32 key) const {",
            "u32 offset_of(Load<1>, u32 query, u32 key) const {",
            "HIPVIT_FOR_DTYPES(HIPVIT_PATTERN_LOAD, 1)\n",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert!(!text.contains("Load<2>"), "{text}");
    }

    #[test]
    fn a_bias_of_all_images_is_an_addend() {
        let is_addend = |score| addend(&Pattern::new().with_score(score).compile().unwrap()).is_some();
        assert!(is_addend(scores::bias(scores::score(), "bias")));
        assert!(is_addend(floats::load("bias", [ints::key()]) + scores::score()));
        assert!(is_addend(scores::relative_bias_with_class(
            scores::score(),
            "table",
            [14, 14]
        )));
        assert!(!is_addend(
            scores::score() + floats::load("bias", [ints::batch(), ints::key()])
        ));
        assert!(!is_addend(scores::alibi(scores::score())));
        assert!(!is_addend(scores::score() + scores::score()));
    }

    #[test]
    fn numbers_of_a_run_are_no_part_of_the_program() {
        let pattern = Pattern::new().with_score(scores::score() * floats::scalar("factor"));
        let text = source(&pattern.compile().unwrap(), 64);
        assert!(text.contains("float_of(this->a.scalars[0])"), "{text}");
        let table =
            Pattern::new().with_score(scores::score() * floats::table([0.0, f32::INFINITY], ints::head()));
        let text = source(&table.compile().unwrap(), 64);
        assert!(
            text.contains("[2] = {float_of(0x00000000u), float_of(0x7f800000u)};"),
            "{text}"
        );
    }
}
