//! Rounding to FP8 in training.

use std::sync::atomic::{AtomicUsize, Ordering};

use hipvit_graph::op::{Float8, OpError, RoundFloat8};
use rayon::prelude::*;

use super::rows::{Source, block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for RoundFloat8 {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let [y, rate] = results else {
            return Err("has a rounded operand and a rate as results".into());
        };
        let source = operands.source(0)?;
        let switch = operands.values(1)?.get(self.column).copied();
        if switch.ok_or("has no switch")? == 0.0 {
            in_blocks(source, y, block_len(1), |_, _| {});
            rate.fill(0.0);
        } else {
            rate.fill(round(self.format, source, y));
        }
        Ok(())
    }
}

/// Rounds the elements of `source` to `y`, and returns the rate of underflow.
fn round(format: Float8, source: Source<'_>, y: &mut [f32]) -> f32 {
    let len = block_len(1);
    let x: &[f32] = match source {
        Source::InPlace => y,
        Source::At(x) => x,
    };
    let magnitude = |x: &f32| if x.is_nan() { f32::INFINITY } else { x.abs() };
    let largest = |x: &[f32]| x.iter().map(magnitude).fold(0.0, f32::max);
    let largest = x.par_chunks(len).map(largest).reduce(|| 0.0, f32::max);
    let scale = format.power_of_two_scale(largest);
    let underflows = AtomicUsize::new(0);
    in_blocks(source, y, len, |_, block| {
        let mut count = 0;
        for x in block {
            let rounded = format.round_scaled(*x, scale);
            count += usize::from(*x != 0.0 && rounded == 0.0);
            *x = rounded;
        }
        underflows.fetch_add(count, Ordering::Relaxed);
    });
    (underflows.into_inner() as f64 / y.len().max(1) as f64) as f32
}

#[cfg(test)]
mod tests {
    use hipvit_graph::op::Definition;
    use hipvit_graph::reference::Array;

    use super::*;

    /// Numbers over many binades, so that some underflow.
    fn numbers(len: usize) -> Vec<f32> {
        let mut state = 7u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        (0..len)
            .map(|_| (uniform() - 0.5) * (uniform() * -40.0).exp2())
            .collect()
    }

    #[test]
    fn results_and_rates_are_those_of_the_reference() {
        for format in [Float8::E4M3, Float8::E5M2] {
            for len in [1, 5, 4096, 10_001] {
                let x = numbers(len);
                let op = RoundFloat8 { format, column: 0 };
                let array = Array::new([1, len], x.clone()).unwrap();
                let expected = op.eval(&[&array, &Array::new([1], vec![1.0]).unwrap()]).unwrap();
                let mut y = x.clone();
                assert_eq!([round(format, Source::InPlace, &mut y)], expected[1].values());
                assert_eq!(y, expected[0].values());
                y.fill(1.0);
                let rate = round(format, Source::At(&x), &mut y);
                assert_eq!(y, expected[0].values());
                assert_eq!([rate], expected[1].values());
                assert!(len < 4096 || rate > 0.1, "{rate}");
            }
        }
    }
}
