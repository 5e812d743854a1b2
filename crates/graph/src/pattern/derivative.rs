//! Derivative of a score: steps that compute its partial derivatives.

use std::collections::HashMap;

use super::operator::Operator;
use super::program::{Instruction, Program};
use super::types::Type;

/// The partial derivatives of a pattern's score, as further steps of its program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Derivative {
    /// The pattern's steps, followed by those of the derivatives.
    pub program: Program,
    /// Step that computes the derivative with respect to the score before the pattern. `None` if the score does not depend on it.
    pub score: Option<usize>,
    /// Steps that load an element of a captured tensor of floats, each with the step that computes the derivative with respect to it.
    pub loads: Vec<(usize, usize)>,
}

impl Program {
    /// Differentiates the step `result` by reverse accumulation. `seed` is its derivative: an operand. Returns the extended program and the
    /// step that computes the derivative with respect to each operand below `operands`. `None` for an operand without influence.
    pub(crate) fn differentiate_operands(
        &self,
        result: usize,
        seed: u32,
        operands: usize,
    ) -> (Self, Vec<Option<usize>>) {
        let mut reverse = Reverse::new(self);
        let seed = reverse.program.step(
            &mut reverse.by_instruction,
            Instruction::Operand(seed),
            Type::Float,
        );
        reverse.adjoints.resize(reverse.program.steps().len(), None);
        reverse.adjoints[result] = Some(seed);
        let mut derivatives = vec![None; operands];
        for step in (0..self.steps().len()).rev() {
            let Some(adjoint) = reverse.adjoints[step] else {
                continue;
            };
            match &self.steps()[step].instruction {
                Instruction::Operand(index) => derivatives[*index as usize] = Some(adjoint),
                Instruction::Apply(op, operands) => reverse.operator(*op, operands, step, adjoint),
                _ => {}
            }
        }
        (reverse.program, derivatives)
    }

    /// Differentiates the score by reverse accumulation. `None` if the pattern does not change the score.
    ///
    /// At a tie, `min` and `max` take the derivative of their first operand. The derivative of `|x|` at 0 is 0.
    pub fn differentiate(&self) -> Option<Derivative> {
        let score = self.score()?;
        let mut reverse = Reverse::new(self);
        let one = reverse.float(1.0);
        reverse.adjoints[score] = Some(one);
        let mut derivative = Derivative {
            program: self.clone(),
            score: None,
            loads: Vec::new(),
        };
        for step in (0..self.steps().len()).rev() {
            let Some(adjoint) = reverse.adjoints[step] else {
                continue;
            };
            match &self.steps()[step].instruction {
                Instruction::Score => derivative.score = Some(adjoint),
                Instruction::Load { .. } => derivative.loads.push((step, adjoint)),
                Instruction::Apply(op, operands) => reverse.operator(*op, operands, step, adjoint),
                _ => {}
            }
        }
        derivative.loads.reverse();
        derivative.program = reverse.program;
        Some(derivative)
    }
}

struct Reverse {
    program: Program,
    by_instruction: HashMap<Instruction, usize>,
    /// Derivative of the score with respect to each step of the pattern.
    adjoints: Vec<Option<usize>>,
}

impl Reverse {
    fn new(program: &Program) -> Self {
        Self {
            by_instruction: program.by_instruction(),
            adjoints: vec![None; program.steps().len()],
            program: program.clone(),
        }
    }

    fn float(&mut self, value: f32) -> usize {
        let instruction = Instruction::Float(value.to_bits());
        self.program
            .step(&mut self.by_instruction, instruction, Type::Float)
    }

    fn is_float(&self, step: usize, value: f32) -> bool {
        self.program.steps()[step].instruction == Instruction::Float(value.to_bits())
    }

    fn apply<const N: usize>(&mut self, op: Operator, operands: [usize; N]) -> usize {
        let ty = match op {
            Operator::Less | Operator::LessEqual | Operator::Equal => Type::Bool,
            _ => Type::Float,
        };
        let instruction = Instruction::Apply(op, operands.to_vec());
        self.program.step(&mut self.by_instruction, instruction, ty)
    }

    fn mul(&mut self, x: usize, y: usize) -> usize {
        if self.is_float(x, 1.0) {
            return y;
        }
        if self.is_float(y, 1.0) {
            return x;
        }
        self.apply(Operator::Mul, [x, y])
    }

    /// Adds to the derivative with respect to `step`. Only floats have one.
    fn add(&mut self, step: usize, adjoint: usize) {
        if self.program.steps()[step].ty != Type::Float {
            return;
        }
        self.adjoints[step] = Some(match self.adjoints[step] {
            Some(sum) => self.apply(Operator::Add, [sum, adjoint]),
            None => adjoint,
        });
    }

    /// Propagates the adjoint of the result of an operator to its operands.
    fn operator(&mut self, op: Operator, operands: &[usize], result: usize, adjoint: usize) {
        match (op, operands) {
            (Operator::Add, &[x, y]) => {
                self.add(x, adjoint);
                self.add(y, adjoint);
            }
            (Operator::Sub, &[x, y]) => {
                self.add(x, adjoint);
                let negative = self.apply(Operator::Neg, [adjoint]);
                self.add(y, negative);
            }
            (Operator::Mul, &[x, y]) => {
                let of_x = self.mul(adjoint, y);
                self.add(x, of_x);
                let of_y = self.mul(adjoint, x);
                self.add(y, of_y);
            }
            (Operator::Div, &[x, y]) => {
                let of_x = self.apply(Operator::Div, [adjoint, y]);
                self.add(x, of_x);
                let of_quotient = self.mul(of_x, result);
                let of_y = self.apply(Operator::Neg, [of_quotient]);
                self.add(y, of_y);
            }
            (Operator::Min | Operator::Max, &[x, y]) => {
                let takes_first = match op {
                    Operator::Min => self.apply(Operator::LessEqual, [x, y]),
                    _ => self.apply(Operator::LessEqual, [y, x]),
                };
                self.select(takes_first, [x, y], adjoint);
            }
            (Operator::Select, &[condition, x, y]) => self.select(condition, [x, y], adjoint),
            (Operator::Neg, &[x]) => {
                let negative = self.apply(Operator::Neg, [adjoint]);
                self.add(x, negative);
            }
            (Operator::Abs, &[x]) => {
                let zero = self.float(0.0);
                let is_negative = self.apply(Operator::Less, [x, zero]);
                let is_positive = self.apply(Operator::Less, [zero, x]);
                let negative = self.apply(Operator::Neg, [adjoint]);
                let positive = self.apply(Operator::Select, [is_positive, adjoint, zero]);
                let of_x = self.apply(Operator::Select, [is_negative, negative, positive]);
                self.add(x, of_x);
            }
            (Operator::Exp, &[x]) => {
                let of_x = self.mul(adjoint, result);
                self.add(x, of_x);
            }
            (Operator::Log, &[x]) => {
                let of_x = self.apply(Operator::Div, [adjoint, x]);
                self.add(x, of_x);
            }
            (Operator::Sqrt, &[x]) => {
                let two = self.float(2.0);
                let twice = self.mul(two, result);
                let of_x = self.apply(Operator::Div, [adjoint, twice]);
                self.add(x, of_x);
            }
            (Operator::Tanh, &[x]) => {
                let square = self.mul(result, result);
                let one = self.float(1.0);
                let slope = self.apply(Operator::Sub, [one, square]);
                let of_x = self.mul(adjoint, slope);
                self.add(x, of_x);
            }
            (Operator::Pow, &[x, y]) => {
                let one = self.float(1.0);
                let less = self.apply(Operator::Sub, [y, one]);
                let power = self.apply(Operator::Pow, [x, less]);
                let slope = self.mul(y, power);
                let of_x = self.mul(adjoint, slope);
                self.add(x, of_x);
                // 0^y has the slope 0, although ln 0 is −∞.
                let zero = self.float(0.0);
                let is_zero = self.apply(Operator::Equal, [x, zero]);
                let log = self.apply(Operator::Log, [x]);
                let log = self.apply(Operator::Select, [is_zero, zero, log]);
                let slope = self.mul(result, log);
                let of_y = self.mul(adjoint, slope);
                self.add(y, of_y);
            }
            (Operator::Remainder, &[x, y]) => {
                self.add(x, adjoint);
                let quotient = self.apply(Operator::Div, [x, y]);
                let whole = self.apply(Operator::Trunc, [quotient]);
                let slope = self.mul(adjoint, whole);
                let of_y = self.apply(Operator::Neg, [slope]);
                self.add(y, of_y);
            }
            (_, &[x]) => {
                if let Some(slope) = self.slope(op, x, result) {
                    let of_x = self.mul(adjoint, slope);
                    self.add(x, of_x);
                }
            }
            // Integers and truth values have no derivative.
            _ => {}
        }
    }

    /// Returns the derivative of a function of a float at `x`. `None` if it has none, or is 0.
    fn slope(&mut self, op: Operator, x: usize, result: usize) -> Option<usize> {
        use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
        let one = self.float(1.0);
        Some(match op {
            Operator::ExpM1 => self.apply(Operator::Add, [result, one]),
            Operator::Log1p => {
                let sum = self.apply(Operator::Add, [one, x]);
                self.apply(Operator::Div, [one, sum])
            }
            Operator::Sin => self.apply(Operator::Cos, [x]),
            Operator::Cos => {
                let sine = self.apply(Operator::Sin, [x]);
                self.apply(Operator::Neg, [sine])
            }
            Operator::Atan => {
                let square = self.mul(x, x);
                let sum = self.apply(Operator::Add, [one, square]);
                self.apply(Operator::Div, [one, sum])
            }
            Operator::Erf => {
                let factor = self.float(FRAC_2_SQRT_PI);
                let density = self.gaussian(x, -1.0);
                self.mul(factor, density)
            }
            Operator::Sigmoid => {
                let rest = self.apply(Operator::Sub, [one, result]);
                self.mul(result, rest)
            }
            Operator::Gelu => {
                // Φ(x) + x·φ(x)
                let [half, scale] = [0.5, FRAC_1_SQRT_2].map(|value| self.float(value));
                let scaled = self.mul(x, scale);
                let erf = self.apply(Operator::Erf, [scaled]);
                let sum = self.apply(Operator::Add, [one, erf]);
                let cdf = self.mul(half, sum);
                let density = self.gaussian(x, -0.5);
                let factor = self.float(0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
                let density = self.mul(factor, density);
                let product = self.mul(x, density);
                self.apply(Operator::Add, [cdf, product])
            }
            _ => return None,
        })
    }

    /// Returns `e^(factor · x²)`.
    fn gaussian(&mut self, x: usize, factor: f32) -> usize {
        let square = self.mul(x, x);
        let factor = self.float(factor);
        let exponent = self.mul(square, factor);
        self.apply(Operator::Exp, [exponent])
    }

    fn select(&mut self, condition: usize, [x, y]: [usize; 2], adjoint: usize) {
        let zero = self.float(0.0);
        let of_x = self.apply(Operator::Select, [condition, adjoint, zero]);
        self.add(x, of_x);
        let of_y = self.apply(Operator::Select, [condition, zero, adjoint]);
        self.add(y, of_y);
    }
}
