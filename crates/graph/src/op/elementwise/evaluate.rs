//! Reference implementation: the steps of a formula for blocks of elements.

use super::broadcast::Broadcast;
use super::formula::Formula;
use crate::array::Real;
use crate::pattern::{Instruction, Operator};

/// Elements that are evaluated at once.
const BLOCK: usize = 1024;

/// Calls `visit` with the numbers of all steps for each block of elements. The first argument is the index of the block's first element.
/// Truth values are 1 and 0.
pub(super) fn evaluate<T: Real>(
    formula: &Formula,
    broadcast: &Broadcast,
    operands: &[&[T]],
    mut visit: impl FnMut(usize, &[Vec<T>]),
) {
    let count = broadcast.count();
    for start in (0..count).step_by(BLOCK) {
        let len = BLOCK.min(count - start);
        let mut values: Vec<Vec<T>> = Vec::with_capacity(formula.steps().len());
        for step in formula.steps() {
            let value = match &step.instruction {
                Instruction::Operand(index) => {
                    let mut value = vec![T::ZERO; len];
                    let index = *index as usize;
                    broadcast.gather(index, operands[index], start, &mut value);
                    value
                }
                Instruction::Bool(value) => vec![truth(*value); len],
                Instruction::Float(bits) => vec![T::from_f32(f32::from_bits(*bits)); len],
                Instruction::Apply(op, operands) => {
                    let operands: Vec<&[T]> = operands.iter().map(|&step| values[step].as_slice()).collect();
                    apply(*op, &operands)
                }
                // A formula has no other steps.
                _ => vec![T::ZERO; len],
            };
            values.push(value);
        }
        visit(start, &values);
    }
}

fn truth<T: Real>(value: bool) -> T {
    if value { T::ONE } else { T::ZERO }
}

/// Returns the numbers of an operator.
fn apply<T: Real>(op: Operator, operands: &[&[T]]) -> Vec<T> {
    let zip = |f: &dyn Fn(T, T) -> T| {
        operands[0]
            .iter()
            .zip(operands[1])
            .map(|(&x, &y)| f(x, y))
            .collect()
    };
    let is_true = |x: T| x != T::ZERO;
    if let Some(f) = op.of_float() {
        return operands[0].iter().map(|&x| f(x)).collect();
    }
    if let Some(f) = op.of_floats() {
        return zip(&f);
    }
    if let Some(f) = op.of_comparison() {
        return zip(&|x, y| truth(f(x, y)));
    }
    match op {
        Operator::And => zip(&|x, y| truth(is_true(x) && is_true(y))),
        Operator::Or => zip(&|x, y| truth(is_true(x) || is_true(y))),
        Operator::Not => operands[0].iter().map(|&x| truth(!is_true(x))).collect(),
        Operator::Select => {
            let choose = |(index, &condition)| {
                let chosen = if is_true(condition) {
                    operands[1]
                } else {
                    operands[2]
                };
                chosen[index]
            };
            operands[0].iter().enumerate().map(choose).collect()
        }
        // A formula has no operators of integers.
        _ => operands[0].to_vec(),
    }
}
