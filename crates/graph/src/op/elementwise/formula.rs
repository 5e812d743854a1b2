//! Expressions of operands as steps, and their composition.

use std::collections::HashMap;
use std::fmt;

use crate::pattern::{Expression, Instruction, Operator, PatternError, Program, Step, Type};

/// An expression of operands: the steps that compute it, each after its operands. All steps are needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Formula {
    program: Program,
    result: usize,
}

impl Formula {
    /// Compiles an expression of at most `operands` operands.
    pub(super) fn new(expression: &Expression, operands: usize) -> Result<Self, PatternError> {
        let (program, result) = Program::of_operands(expression, operands)?;
        let mut builder = Builder::default();
        let result = builder.import(&program, result, Builder::operand);
        Ok(builder.finish(result))
    }

    /// Returns the steps.
    pub fn steps(&self) -> &[Step] {
        self.program.steps()
    }

    /// Returns the step that computes the expression.
    pub fn result(&self) -> usize {
        self.result
    }

    /// Returns the number of operators.
    pub fn operators(&self) -> usize {
        let is_operator = |step: &&Step| matches!(step.instruction, Instruction::Apply(..));
        self.steps().iter().filter(is_operator).count()
    }

    /// Returns true for the product of the operands 0 and 1.
    pub(crate) fn is_product(&self) -> bool {
        let [x, y, product] = self.steps() else {
            return false;
        };
        let operands = [&x.instruction, &y.instruction];
        operands == [&Instruction::Operand(0), &Instruction::Operand(1)]
            && product.instruction == Instruction::Apply(Operator::Mul, vec![0, 1])
    }

    /// Returns true if the expression reads the operand.
    pub(super) fn reads(&self, operand: u32) -> bool {
        let mut steps = self.steps().iter();
        steps.any(|step| step.instruction == Instruction::Operand(operand))
    }

    /// Returns the derivative with respect to each operand, of which the operand `seed` is a factor. `None` for one without influence.
    pub(super) fn differentiate(&self, operands: usize) -> Vec<Option<Self>> {
        let seed = operands as u32;
        let (program, derivatives) = self.program.differentiate_operands(self.result, seed, operands);
        let extract = |step: Option<usize>| {
            let mut builder = Builder::default();
            let result = builder.import(&program, step?, Builder::operand);
            Some(builder.finish(result))
        };
        derivatives.into_iter().map(extract).collect()
    }
}

/// Builds a formula of other formulas.
#[derive(Default)]
pub(crate) struct Builder {
    program: Program,
    by_instruction: HashMap<Instruction, usize>,
}

impl Builder {
    /// Adds an operand.
    pub(crate) fn operand(&mut self, index: u32) -> usize {
        self.step(Instruction::Operand(index), Type::Float)
    }

    /// Adds a constant.
    pub(crate) fn constant(&mut self, value: f32) -> usize {
        self.step(Instruction::Float(value.to_bits()), Type::Float)
    }

    /// Adds a formula. `operand` adds what each of its operands is. Returns the step of the result, as a float.
    pub(crate) fn formula(
        &mut self,
        formula: &Formula,
        operand: impl FnMut(&mut Self, u32) -> usize,
    ) -> usize {
        let result = self.import(&formula.program, formula.result, operand);
        if self.program.steps()[result].ty == Type::Float {
            return result;
        }
        let [one, zero] = [1.0, 0.0].map(|value| self.constant(value));
        self.apply(Operator::Select, vec![result, one, zero], Type::Float)
    }

    /// Adds a formula whose operand `read[i]` becomes operand i. Returns the step of the result.
    pub(super) fn renumbered(&mut self, formula: &Formula, read: &[usize]) -> usize {
        self.import(&formula.program, formula.result, |builder, index| {
            let position = read.iter().position(|&operand| operand == index as usize);
            builder.operand(position.unwrap_or(0) as u32)
        })
    }

    /// Adds an operator of floats.
    pub(crate) fn float(&mut self, op: Operator, operands: Vec<usize>) -> usize {
        self.apply(op, operands, Type::Float)
    }

    /// Returns the formula, which computes the step `result`.
    pub(crate) fn finish(self, result: usize) -> Formula {
        Formula {
            program: self.program,
            result,
        }
    }

    fn step(&mut self, instruction: Instruction, ty: Type) -> usize {
        self.program.step(&mut self.by_instruction, instruction, ty)
    }

    /// Adds the steps that `result` needs.
    fn import(
        &mut self,
        source: &Program,
        result: usize,
        mut operand: impl FnMut(&mut Self, u32) -> usize,
    ) -> usize {
        let steps = source.steps();
        let mut is_needed = vec![false; steps.len()];
        is_needed[result] = true;
        for index in (0..=result).rev() {
            if is_needed[index] {
                steps[index]
                    .operands()
                    .iter()
                    .for_each(|&operand| is_needed[operand] = true);
            }
        }
        let mut imported = vec![0; steps.len()];
        for index in (0..=result).filter(|&index| is_needed[index]) {
            let Step { instruction, ty, .. } = &steps[index];
            imported[index] = match instruction {
                Instruction::Operand(index) => operand(self, *index),
                Instruction::Apply(op, operands) => {
                    let operands = operands.iter().map(|&operand| imported[operand]).collect();
                    self.apply(*op, operands, *ty)
                }
                instruction => self.step(instruction.clone(), *ty),
            };
        }
        imported[result]
    }

    fn apply(&mut self, op: Operator, operands: Vec<usize>, ty: Type) -> usize {
        self.simplified(op, &operands)
            .unwrap_or_else(|| self.step(Instruction::Apply(op, operands), ty))
    }

    /// Returns an equal step of truth values that have become floats and are tested again.
    fn simplified(&mut self, op: Operator, operands: &[usize]) -> Option<usize> {
        let applied = |step: usize| match &self.program.steps()[step].instruction {
            Instruction::Apply(op, operands) => Some((*op, operands.as_slice())),
            _ => None,
        };
        let is = |step: usize, value: f32| {
            self.program.steps()[step].instruction == Instruction::Float(value.to_bits())
        };
        match (op, operands) {
            // not not b
            (Operator::Not, &[x]) => match applied(x)? {
                (Operator::Not, &[y]) => Some(y),
                _ => None,
            },
            // (b ? 1 : 0) = 0
            (Operator::Equal, &[x, y]) if is(y, 0.0) => match applied(x)? {
                (Operator::Select, &[condition, yes, no]) if is(yes, 1.0) && is(no, 0.0) => {
                    Some(self.apply(Operator::Not, vec![condition], Type::Bool))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Formats as nested functions of `x0`, `x1` …, or the number of operators if there are many.
impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHORT: usize = 6;
        match self.operators() {
            many if many > SHORT => write!(f, "of {many} operators"),
            _ => self.write(f, self.result),
        }
    }
}

impl Formula {
    fn write(&self, f: &mut fmt::Formatter<'_>, step: usize) -> fmt::Result {
        match &self.steps()[step].instruction {
            Instruction::Operand(index) => write!(f, "x{index}"),
            Instruction::Bool(value) => write!(f, "{value}"),
            Instruction::Float(bits) => write!(f, "{}", f32::from_bits(*bits)),
            Instruction::Apply(op, operands) => {
                write!(f, "{}(", op.name())?;
                for (index, &operand) in operands.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { ", " })?;
                    self.write(f, operand)?;
                }
                f.write_str(")")
            }
            // `Formula::new` rejects them.
            _ => f.write_str("?"),
        }
    }
}
