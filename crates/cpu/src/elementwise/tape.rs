//! The steps of a formula with the registers that hold their blocks.

use hipvit_graph::op::{Activation, Formula};
use hipvit_graph::pattern::{Instruction, Operator};
use rten_simd::ops::{BitOps, FloatOps, NumOps};
use rten_simd::{Isa, SimdOp, SimdUnaryOp};
use rten_vecmath::{Cos, Exp, Sigmoid, Sin, Tanh};

use super::functions::{atan, ceil, erf, exp_m1, floor, log, log_1p, trunc};
use crate::activation;

/// Elements that a step computes at once.
pub(super) const BLOCK: usize = 1024;

/// Multiple to which blocks are rounded up: at least as many lanes as a vector has.
const LANES: usize = 64;

/// The elements of a block, one vector for each register.
pub(super) type Registers = Vec<Vec<f32>>;

/// A formula whose steps have registers. The first registers are those of the operands.
pub(super) struct Tape {
    operations: Vec<Operation>,
    constants: Vec<(usize, f32)>,
    registers: usize,
    result: usize,
    /// The operation that computes the result. `None` for an operand or a constant.
    result_operation: Option<usize>,
}

struct Operation {
    op: Operator,
    operands: [usize; 3],
    result: usize,
}

impl Tape {
    /// Assigns registers to the steps of the formula of an op with `operands` operands.
    pub(super) fn new(formula: &Formula, operands: usize) -> Self {
        let steps = formula.steps();
        let mut last_use = vec![0; steps.len()];
        for (index, step) in steps.iter().enumerate() {
            step.operands()
                .iter()
                .for_each(|&operand| last_use[operand] = index);
        }
        last_use[formula.result()] = usize::MAX;
        let mut tape = Self {
            operations: Vec::new(),
            constants: Vec::new(),
            registers: operands,
            result: 0,
            result_operation: None,
        };
        let mut free = Vec::new();
        let mut register_of: Vec<usize> = Vec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let register = match &step.instruction {
                Instruction::Operand(index) => *index as usize,
                Instruction::Apply(op, operands) => {
                    let result = free.pop().unwrap_or_else(|| tape.register());
                    let mut of_operands = [result; 3];
                    for (to, &operand) in of_operands.iter_mut().zip(operands) {
                        *to = register_of[operand];
                    }
                    if index == formula.result() {
                        tape.result_operation = Some(tape.operations.len());
                    }
                    tape.operations.push(Operation {
                        op: *op,
                        operands: of_operands,
                        result,
                    });
                    // Only results are overwritten: a block's operands may be elsewhere, and constants stay.
                    for &operand in operands {
                        let is_result = matches!(steps[operand].instruction, Instruction::Apply(..));
                        let register = register_of[operand];
                        if is_result && last_use[operand] == index && !free.contains(&register) {
                            free.push(register);
                        }
                    }
                    result
                }
                constant => {
                    let value = match constant {
                        Instruction::Float(bits) => f32::from_bits(*bits),
                        constant => f32::from(*constant == Instruction::Bool(true)),
                    };
                    let register = tape.register();
                    tape.constants.push((register, value));
                    register
                }
            };
            register_of.push(register);
        }
        tape.result = register_of[formula.result()];
        tape
    }

    fn register(&mut self) -> usize {
        self.registers += 1;
        self.registers - 1
    }

    /// Returns registers with the constants.
    pub(super) fn registers(&self) -> Registers {
        let mut registers = vec![vec![0.0; BLOCK]; self.registers];
        for &(register, value) in &self.constants {
            registers[register].fill(value);
        }
        registers
    }
}

/// A block to compute.
pub(super) struct Block<'a> {
    pub(super) tape: &'a Tape,
    /// Registers, with the elements of the operands that are not in `operands`.
    pub(super) registers: &'a mut Registers,
    /// Operands that are read from their own memory, which have as many elements as a full block.
    pub(super) operands: &'a [Option<&'a [f32]>],
    /// At most [`BLOCK`] elements.
    pub(super) out: &'a mut [f32],
}

impl SimdOp for Block<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let Self {
            tape,
            registers,
            operands,
            out,
        } = self;
        let is_full = out.len() == BLOCK;
        let len = out.len().next_multiple_of(LANES);
        for (index, operation) in tape.operations.iter().enumerate() {
            let mut result = std::mem::take(&mut registers[operation.result]);
            let values = operation
                .operands
                .map(|register| elements(registers, operands, register, len));
            if is_full && tape.result_operation == Some(index) {
                apply(isa, operation.op, values, out);
            } else {
                apply(isa, operation.op, values, &mut result[..len]);
            }
            registers[operation.result] = result;
        }
        if !is_full || tape.result_operation.is_none() {
            let count = out.len();
            out.copy_from_slice(elements(registers, operands, tape.result, count));
        }
    }
}

/// Returns the first elements of a register. The register that is being written has none.
fn elements<'a>(
    registers: &'a Registers,
    operands: &[Option<&'a [f32]>],
    register: usize,
    len: usize,
) -> &'a [f32] {
    let values = operands.get(register).copied().flatten();
    values.unwrap_or(&registers[register]).get(..len).unwrap_or(&[])
}

/// Computes an operator. All slices that it reads have the length of `out`, a multiple of the lanes of a vector.
#[inline(always)]
fn apply<I: Isa>(isa: I, op: Operator, [x, y, z]: [&[f32]; 3], out: &mut [f32]) {
    let ops = isa.f32();
    let (zero, one) = (ops.zero(), ops.one());
    macro_rules! unary {
        (|$x:ident| $value:expr) => {
            unary(
                isa,
                x,
                out,
                #[inline(always)]
                |$x| $value,
            )
        };
    }
    macro_rules! binary {
        (|$x:ident, $y:ident| $value:expr) => {
            binary(
                isa,
                x,
                y,
                out,
                #[inline(always)]
                |$x, $y| $value,
            )
        };
    }
    macro_rules! truth {
        ($mask:expr) => {
            ops.select(one, zero, $mask)
        };
    }
    match op {
        Operator::Add => binary!(|x, y| ops.add(x, y)),
        Operator::Sub => binary!(|x, y| ops.sub(x, y)),
        Operator::Mul => binary!(|x, y| ops.mul(x, y)),
        Operator::Div => binary!(|x, y| ops.div(x, y)),
        Operator::Min => binary!(|x, y| ops.select(y, x, ops.lt(y, x))),
        Operator::Max => binary!(|x, y| ops.select(y, x, ops.lt(x, y))),
        Operator::Less => binary!(|x, y| truth!(ops.lt(x, y))),
        Operator::LessEqual => binary!(|x, y| truth!(ops.le(x, y))),
        Operator::Equal => binary!(|x, y| truth!(ops.eq(x, y))),
        // Truth values are 0 and 1.
        Operator::And => binary!(|x, y| ops.mul(x, y)),
        Operator::Or => binary!(|x, y| ops.select(one, y, ops.gt(x, zero))),
        Operator::Not => unary!(|x| ops.sub(one, x)),
        Operator::Select => {
            let lanes = ops.len();
            let branches = y.chunks_exact(lanes).zip(z.chunks_exact(lanes));
            let conditions = x.chunks_exact(lanes).zip(branches);
            for ((x, (y, z)), out) in conditions.zip(out.chunks_exact_mut(lanes)) {
                let is_true = ops.gt(ops.load(x), zero);
                ops.store(ops.select(ops.load(y), ops.load(z), is_true), out);
            }
        }
        Operator::Neg => unary!(|x| ops.neg(x)),
        Operator::Abs => unary!(|x| ops.abs(x)),
        Operator::Exp => unary!(|x| Exp::apply(isa, x)),
        Operator::ExpM1 => unary!(|x| exp_m1(isa, x)),
        Operator::Log => unary!(|x| log(isa, x)),
        Operator::Log1p => unary!(|x| log_1p(isa, x)),
        Operator::Tanh => unary!(|x| Tanh::apply(isa, x)),
        Operator::Sin => unary!(|x| Sin::apply(isa, x)),
        Operator::Cos => unary!(|x| Cos::apply(isa, x)),
        Operator::Atan => unary!(|x| atan(isa, x)),
        Operator::Erf => unary!(|x| erf(isa, x)),
        Operator::Sigmoid => unary!(|x| Sigmoid::apply(isa, x)),
        Operator::Floor => unary!(|x| floor(isa, x)),
        Operator::Ceil => unary!(|x| ceil(isa, x)),
        Operator::Trunc => unary!(|x| trunc(isa, x)),
        Operator::Round => unary!(|x| ops.round_ties_even(x)),
        Operator::Gelu => {
            out.copy_from_slice(x);
            activation::apply(Activation::GeluErf, out);
        }
        // Vectors have no square root.
        Operator::Sqrt => out.iter_mut().zip(x).for_each(|(out, x)| *out = x.sqrt()),
        Operator::Pow => {
            let pairs = x.iter().zip(y);
            out.iter_mut()
                .zip(pairs)
                .for_each(|(out, (x, y))| *out = x.powf(*y));
        }
        Operator::Remainder => {
            let pairs = x.iter().zip(y);
            out.iter_mut().zip(pairs).for_each(|(out, (x, y))| *out = x % y);
        }
        // A formula has no operators of integers.
        _ => out.copy_from_slice(x),
    }
}

#[inline(always)]
fn unary<I: Isa>(isa: I, x: &[f32], out: &mut [f32], f: impl Fn(I::F32) -> I::F32) {
    let ops = isa.f32();
    let lanes = ops.len();
    for (x, out) in x.chunks_exact(lanes).zip(out.chunks_exact_mut(lanes)) {
        ops.store(f(ops.load(x)), out);
    }
}

#[inline(always)]
fn binary<I: Isa>(isa: I, x: &[f32], y: &[f32], out: &mut [f32], f: impl Fn(I::F32, I::F32) -> I::F32) {
    let ops = isa.f32();
    let lanes = ops.len();
    let operands = x.chunks_exact(lanes).zip(y.chunks_exact(lanes));
    for ((x, y), out) in operands.zip(out.chunks_exact_mut(lanes)) {
        ops.store(f(ops.load(x), ops.load(y)), out);
    }
}
