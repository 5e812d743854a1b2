//! Bounds of the rounding errors of formulas in f32.

use super::broadcast::Broadcast;
use super::evaluate::evaluate;
use super::formula::Formula;
use crate::dtype::DType;
use crate::pattern::{Instruction, Operator};
use crate::tolerance::unit_roundoff;

/// Error of a truth value that may be wrong, and of a step that may be on the other side of a discontinuity.
const WRONG: f64 = 1.0;

/// Returns the largest error of an element of the result in f32, relative to the largest magnitude. Operands are exact.
///
/// Each step adds its own rounding, and passes on the errors of its operands by its slope. An error that may change a comparison, or move a
/// number past an integer, counts as the difference that this makes.
pub(super) fn bound(formula: &Formula, broadcast: &Broadcast, operands: &[&[f64]]) -> f64 {
    let (mut largest, mut worst) = (0.0f64, 0.0f64);
    evaluate(formula, broadcast, operands, |_, values| {
        let mut errors: Vec<Vec<f64>> = Vec::with_capacity(values.len());
        for (step, of_step) in formula.steps().iter().zip(values) {
            let error = match &step.instruction {
                Instruction::Apply(op, operands) => {
                    let element = |(element, &value): (usize, &f64)| {
                        let mut pairs = [(0.0, 0.0); 3];
                        for (pair, &step) in pairs.iter_mut().zip(operands) {
                            *pair = (values[step][element], errors[step][element]);
                        }
                        error(*op, value, &pairs[..operands.len().min(3)])
                    };
                    of_step.iter().enumerate().map(element).collect()
                }
                _ => vec![0.0; of_step.len()],
            };
            errors.push(error);
        }
        let result = formula.result();
        for (&value, &error) in values[result].iter().zip(&errors[result]) {
            if value.is_finite() && error.is_finite() {
                largest = largest.max(value.abs());
                worst = worst.max(error);
            }
        }
    });
    worst / if largest > 0.0 { largest } else { 1.0 }
}

/// Returns the error of a step with this value, and with operands that have errors.
fn error(op: Operator, value: f64, operands: &[(f64, f64)]) -> f64 {
    let u = unit_roundoff(DType::F32);
    let own = |roundings: f64| roundings * u * value.abs();
    match (op, operands) {
        (Operator::Add | Operator::Sub, [(_, a), (_, b)]) => a + b + own(1.0),
        (Operator::Mul, [(x, a), (y, b)]) => {
            let is_exact = is_power_of_two(*x) || is_power_of_two(*y);
            x.abs() * b + y.abs() * a + if is_exact { 0.0 } else { own(1.0) }
        }
        // GPUs divide within 2 ULP.
        (Operator::Div, [(_, a), (y, b)]) => (a + value.abs() * b) / y.abs() + own(4.0),
        (Operator::Min | Operator::Max, [(_, a), (_, b)]) => a.max(*b),
        (Operator::Pow, [(x, a), (y, b)]) => {
            let log = x.abs().max(f64::MIN_POSITIVE).ln();
            value.abs() * ((y / x).abs() * a + log.abs() * b) + own(8.0 + 4.0 * (y * log).abs())
        }
        (Operator::Remainder, [(x, a), (y, b)]) => {
            let quotient = (x / y).trunc().abs();
            let slope = a + quotient * b;
            // Near a multiple of the divisor, an error of x moves the remainder by the divisor.
            let is_near = value.abs() <= slope || y.abs() - value.abs() <= slope;
            slope + if slope > 0.0 && is_near { y.abs() } else { 0.0 }
        }
        // Comparisons of other operands are exact.
        (Operator::Less | Operator::LessEqual | Operator::Equal, [(x, a), (y, b)])
            if a + b > 0.0 && (x - y).abs() <= a + b =>
        {
            WRONG
        }
        (Operator::And | Operator::Or, [(_, a), (_, b)]) => a.max(*b),
        (Operator::Not, [(_, a)]) => *a,
        (Operator::Select, [(condition, a), (x, b), (y, c)]) => {
            if *a > 0.0 {
                b.max(*c) + (x - y).abs()
            } else if *condition != 0.0 {
                *b
            } else {
                *c
            }
        }
        (op, [(x, a)]) => of_float(op, *x, *a, value),
        _ => 0.0,
    }
}

/// Returns the error of a function at `x`, which has an error of `a`.
fn of_float(op: Operator, x: f64, a: f64, value: f64) -> f64 {
    let u = unit_roundoff(DType::F32);
    let own = |roundings: f64| roundings * u * value.abs();
    match op {
        Operator::Neg | Operator::Abs => a,
        // The exponential's own error grows with the rounding of its argument.
        Operator::Exp => value * a + own(8.0 + x.abs()),
        Operator::ExpM1 => (value + 1.0) * a + own(8.0) + u * (value + 1.0) * x.abs().min(1.0) * 4.0,
        Operator::Log => a / x.abs() + own(8.0),
        Operator::Log1p => a / (1.0 + x).abs() + own(8.0),
        Operator::Sqrt => (a / (2.0 * value)).min(a.sqrt()) + own(2.0),
        Operator::Tanh => (1.0 - value * value) * a + own(8.0),
        Operator::Sin => (x.cos().abs() + a) * a + 4.0 * u,
        Operator::Cos => (x.sin().abs() + a) * a + 4.0 * u,
        Operator::Atan => a / (1.0 + x * x) + own(6.0),
        Operator::Erf => 1.2 * (-x * x).exp() * a + own(8.0),
        Operator::Sigmoid => value * (1.0 - value) * (a + u * x.abs()) + own(8.0),
        // The density's exponent is x²/2.
        Operator::Gelu => 1.2 * a + own(16.0 + x * x),
        Operator::Floor | Operator::Ceil | Operator::Trunc => {
            let is_near = (x - x.round()).abs() <= a;
            if a > 0.0 && is_near { WRONG } else { 0.0 }
        }
        Operator::Round => {
            let to_half = ((x - x.floor()) - 0.5).abs();
            if a > 0.0 && to_half <= a { WRONG } else { 0.0 }
        }
        _ => 0.0,
    }
}

fn is_power_of_two(x: f64) -> bool {
    x.is_normal() && x.to_bits() << (u64::BITS - (f64::MANTISSA_DIGITS - 1)) == 0
}
