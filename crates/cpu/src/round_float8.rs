//! Rounding to FP8 in training.

use std::borrow::Cow;

use hipvit_graph::op::{ActivationBackward, Float8Source, OpError, RoundFloat8};
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len, sum_rows};
use super::{CpuOp, Operands};

/// Columns of the result that a task transposes.
const COLUMNS: usize = 16;

impl CpuOp for RoundFloat8 {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (x, old) = (operands.values(0)?, operands.values(1)?);
        let dy = match self.source {
            Float8Source::Slope(_) => Some(operands.values(2)?),
            _ => None,
        };
        let columns = operands.channels(0)?;
        let [y, transposed, statistics, sums @ ..] = results else {
            return Err("has the rounded numbers, their transpose and statistics as results".into());
        };
        let v = numbers(self.source, x, dy);
        if let [sums] = sums {
            sum_rows(&v, sums);
        }
        statistics.copy_from_slice(&round(self, &v, old, y));
        transpose(y, columns, transposed);
        Ok(())
    }
}

/// Returns the numbers that are rounded.
fn numbers<'a>(source: Float8Source, x: &'a [f32], dy: Option<&[f32]>) -> Cow<'a, [f32]> {
    match (source, dy) {
        (Float8Source::Activation(activation), _) => x.par_iter().map(|&x| activation.apply(x)).collect(),
        (Float8Source::Slope(activation), Some(dy)) => {
            let backward = ActivationBackward {
                activation,
                secant: false,
                sums: false,
            };
            let pairs = x.par_iter().zip(dy);
            pairs.map(|(&x, &dy)| backward.slope(x) * dy).collect()
        }
        _ => x.into(),
    }
}

/// Rounds numbers to `y`, and returns the new statistics.
fn round(op: &RoundFloat8, v: &[f32], old: &[f32], y: &mut [f32]) -> Vec<f32> {
    let len = block_len(1);
    let magnitude = |v: &f32| if v.is_finite() { v.abs() } else { 0.0 };
    let largest = |v: &[f32]| v.iter().map(magnitude).fold(0.0, f32::max);
    let largest = v.par_chunks(len).map(largest).reduce(|| 0.0, f32::max);
    let scale = op.scale(old, largest);
    let end = op.format.largest();
    let blocks = y.par_chunks_mut(len).zip(v.par_chunks(len));
    let counts = blocks.map(|(y, v)| {
        let mut counts = [0_usize; 2];
        for (y, &v) in y.iter_mut().zip(v) {
            *y = op.round(v, scale);
            counts[0] += usize::from(v != 0.0 && *y == 0.0);
            counts[1] += usize::from(v.is_finite() && v.abs() / scale > end);
        }
        counts
    });
    let counts = counts.reduce(|| [0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
    let rates = counts.map(|count| (count as f64 / v.len().max(1) as f64) as f32);
    op.statistics(old, largest, rates)
}

/// Transposes rows of `columns` elements. Each row of the result is filled up with zeros.
fn transpose(y: &[f32], columns: usize, transposed: &mut [f32]) {
    let padded = transposed.len() / columns.max(1);
    let tasks = transposed.par_chunks_mut(COLUMNS * padded).enumerate();
    tasks.for_each_item(|(task, block)| {
        block.fill(0.0);
        for (row, y) in y.chunks_exact(columns).enumerate() {
            for (index, out) in block.chunks_exact_mut(padded).enumerate() {
                out[row] = y[task * COLUMNS + index];
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use hipvit_graph::op::{Activation, Definition, Float8, STATISTICS};
    use hipvit_graph::reference::Array;

    use super::*;

    /// Numbers over many binades, so that some underflow.
    fn numbers_of(len: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        (0..len)
            .map(|_| (uniform() - 0.5) * (uniform() * -40.0).exp2())
            .collect()
    }

    #[test]
    fn results_are_those_of_the_reference() {
        for (format, delayed) in [(Float8::E4M3, true), (Float8::E5M2, false)] {
            for [rows, columns] in [[1, 1], [5, 3], [33, 130], [257, 40]] {
                for source in [
                    Float8Source::Value,
                    Float8Source::Activation(Activation::GeluErf),
                    Float8Source::Slope(Activation::GeluErf),
                ] {
                    let op = RoundFloat8 {
                        format,
                        source,
                        delayed,
                        sums: true,
                        align: 16,
                        stored: false,
                    };
                    let [x, dy] = [7, 8].map(|seed| numbers_of(rows * columns, seed));
                    let mut old = vec![0.0; STATISTICS];
                    // Numbers above this saturate.
                    old[2..5].copy_from_slice(&[0.01, 0.125, 0.06]);
                    let array = |values: &[f32]| Array::new([rows, columns], values.to_vec()).unwrap();
                    let statistics = Array::new([STATISTICS], old.clone()).unwrap();
                    let (of_x, of_dy) = (array(&x), array(&dy));
                    let all = [&of_x, &statistics, &of_dy];
                    let (operands, dy) = match source {
                        Float8Source::Slope(_) => (&all[..], Some(&dy[..])),
                        _ => (&all[..2], None),
                    };
                    let expected = op.eval(operands).unwrap();
                    let v = numbers(source, &x, dy);
                    let mut y = vec![1.0; x.len()];
                    let statistics = round(&op, &v, &old, &mut y);
                    assert_eq!(y, expected[0].values());
                    assert_eq!(statistics, expected[2].values());
                    let mut transposed = vec![1.0; columns * rows.next_multiple_of(16)];
                    transpose(&y, columns, &mut transposed);
                    assert_eq!(transposed, expected[1].values());
                    let is_large = x.len() > 4000 && source == Float8Source::Value;
                    assert!(!is_large || statistics[0] > 0.1 && (statistics[1] > 0.001) == delayed);
                }
            }
        }
    }
}
