//! Expressions of operands, element by element: each step for a block of elements that stays in the cache.

mod functions;
mod tape;

use hipvit_graph::op::{Broadcast, Elementwise, OpError};
use rayon::prelude::*;
use rten_simd::SimdOp;

use self::tape::{BLOCK, Block, Tape};
use super::rows::Source;
use super::{CpuOp, Operands};

/// Blocks of a task, so that starting it costs little.
const TASK: usize = 8;

impl CpuOp for Elementwise {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let count = self.integer_operands().len();
        let shapes = (0..count).map(|index| operands.batched_shape(index));
        let broadcast = self.broadcast(&shapes.collect::<Result<Vec<_>, _>>()?)?;
        let sources = (0..count).map(|index| operands.source(index));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        evaluate(self, &broadcast, &sources, results[0]);
        Ok(())
    }
}

/// Computes the result from operands that may be in its memory.
fn evaluate(op: &Elementwise, broadcast: &Broadcast, sources: &[Source<'_>], out: &mut [f32]) {
    let tape = Tape::new(op.formula(), sources.len());
    let tasks = out.par_chunks_mut(TASK * BLOCK).enumerate();
    tasks.for_each_init(
        || tape.registers(),
        |registers, (task, out)| {
            for (block, out) in out.chunks_mut(BLOCK).enumerate() {
                let start = (task * TASK + block) * BLOCK;
                let operands = sources.iter().enumerate().map(|(index, &source)| {
                    let register = &mut registers[index][..out.len()];
                    match source {
                        Source::InPlace => register.copy_from_slice(out),
                        Source::At(values) if out.len() == BLOCK && broadcast.is_whole(index) => {
                            return Some(&values[start..start + BLOCK]);
                        }
                        Source::At(values) => broadcast.gather(index, values, start, register),
                    }
                    None
                });
                let operands: Vec<Option<&[f32]>> = operands.collect();
                let block = Block {
                    tape: &tape,
                    registers,
                    operands: &operands,
                    out,
                };
                block.dispatch();
                if op.is_integer() {
                    out.iter_mut().for_each(|x| *x = x.trunc());
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use hipvit_graph::cases::{Cases, Role, Scale};
    use hipvit_graph::op::Definition as _;
    use hipvit_graph::pattern::Float;
    use hipvit_graph::reference::{Array, check_close};
    use hipvit_graph::{DType, pattern::PatternError};

    use super::*;

    fn computed(op: &Elementwise, operands: &[Array<f32>]) -> Vec<f32> {
        let shapes: Vec<&[usize]> = operands.iter().map(Array::shape).collect();
        let broadcast = op.broadcast(&shapes).unwrap();
        let sources: Vec<Source<'_>> = operands
            .iter()
            .map(|operand| Source::At(operand.values()))
            .collect();
        let mut out = vec![f32::NAN; broadcast.count()];
        evaluate(op, &broadcast, &sources, &mut out);
        out
    }

    #[test]
    fn every_case_is_within_its_tolerance() {
        let mut cases = Cases::new(Scale::Awkward, true);
        Elementwise::cases(&mut cases);
        let mut random = 1u64;
        for case in cases.into_vec() {
            let operands = case.operands.iter().map(|operand| {
                let values = (0..operand.shape.iter().product::<usize>()).map(|index| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    match operand.role {
                        Role::Integers { below } => (index % below as usize) as f32,
                        _ => ((random >> 40) as f32 / (1 << 23) as f32 - 1.0) * operand.spread,
                    }
                });
                Array::new(operand.shape.clone(), values.collect()).unwrap()
            });
            let operands: Vec<Array<f32>> = operands.collect();
            let exact: Vec<Array> = operands
                .iter()
                .map(|o| Array::new(o.shape(), o.values().iter().map(|&v| v.into()).collect()).unwrap())
                .collect();
            let exact: Vec<&Array> = exact.iter().collect();
            let expected = &case.op.eval(&exact).unwrap()[0];
            let found = computed(&case.op, &operands);
            check_close(
                &found,
                expected.values(),
                case.op.tolerance(0, &exact, DType::F32),
            )
            .unwrap_or_else(|error| panic!("{}: {error}", case.op.formula()));
        }
    }

    #[test]
    fn functions_have_their_limits() -> Result<(), PatternError> {
        let infinity = f32::INFINITY;
        let of = |function: fn(Float) -> Float, x: f32| {
            let op = Elementwise::unary(function).unwrap();
            computed(&op, &[Array::new([1], vec![x]).unwrap()])[0]
        };
        for (function, x, expected) in [
            (Float::exp as fn(&Float) -> Float, -infinity, 0.0),
            (Float::exp, infinity, infinity),
            (Float::log, 0.0, -infinity),
            (Float::log, infinity, infinity),
            (Float::log, 1e-40, -92.103_4),
            (Float::log_1p, -1.0, -infinity),
            (Float::log_1p, infinity, infinity),
            (Float::log_1p, 1e-20, 1e-20),
            (Float::exp_m1, -infinity, -1.0),
            (Float::exp_m1, 1e-20, 1e-20),
            (Float::erf, 100.0, 1.0),
            (Float::erf, -100.0, -1.0),
            (Float::erf, 1e-20, 1.128_379_2e-20),
            (Float::atan, infinity, std::f32::consts::FRAC_PI_2),
            (Float::sigmoid, -infinity, 0.0),
            (Float::sigmoid, infinity, 1.0),
            (Float::floor, -0.5, -1.0),
            (Float::floor, 1e30, 1e30),
            (Float::ceil, -infinity, -infinity),
            (Float::trunc, -1.5, -1.0),
            (Float::softplus, 1000.0, 1000.0),
        ] {
            let op = Elementwise::unary(|operand| function(&operand))?;
            let found = computed(&op, &[Array::new([1], vec![x]).unwrap()])[0];
            assert!(
                (found - expected).abs() <= 2e-6 * expected.abs() || found == expected,
                "{} of {x}: {found} instead of {expected}",
                op.formula()
            );
        }
        for function in [
            |x: Float| x.exp(),
            |x: Float| x.log(),
            |x: Float| x.erf(),
            |x: Float| x.floor(),
        ] {
            assert!(of(function, f32::NAN).is_nan());
        }
        assert!(of(|x| x.log(), -1.0).is_nan());
        Ok(())
    }

    #[test]
    fn an_operand_may_be_in_the_memory_of_the_result() {
        let op = Elementwise::binary(|x, y| x.clone() * y.clone() - x.round())
            .unwrap()
            .into_integers();
        let x: Vec<f32> = (0..5000).map(|i| i as f32 * 0.37 - 700.0).collect();
        let y = [2.0, -3.0, 0.5, 1.0, 8.0];
        let shapes: [&[usize]; 2] = [&[1000, 5], &[5]];
        let broadcast = op.broadcast(&shapes).unwrap();
        let mut out = x.clone();
        evaluate(&op, &broadcast, &[Source::InPlace, Source::At(&y)], &mut out);
        for (index, (&found, &x)) in out.iter().zip(&x).enumerate() {
            assert_eq!(found, (x * y[index % 5] - x.round_ties_even()).trunc());
        }
    }

    #[test]
    fn an_operand_or_a_constant_is_an_expression_too() {
        let x = Array::new([2, 1], vec![1.0, 2.0]).unwrap();
        assert_eq!(
            computed(&Elementwise::unary(|x| x).unwrap(), std::slice::from_ref(&x)),
            [1.0, 2.0]
        );
        let constant = Elementwise::unary(|_| Float::from(3.0)).unwrap();
        assert_eq!(computed(&constant, &[x]), [3.0, 3.0]);
    }

    #[test]
    fn an_operand_need_not_be_read() {
        let op = Elementwise::ternary(|x, _, _| x.abs() + 1.0).unwrap();
        let [x, y] = [2.5, f32::NAN].map(|value| Array::new([BLOCK], vec![value; BLOCK]).unwrap());
        assert_eq!(computed(&op, &[x, y.clone(), y]), [3.5; BLOCK]);
    }
}
