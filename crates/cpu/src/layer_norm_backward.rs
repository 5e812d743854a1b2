//! Derivative of layer normalisation.

use hipvit_graph::op::{LayerNormBackward, OpError};
use rayon::prelude::*;
use rten_simd::{Isa, SimdOp};
use rten_vecmath::{Sum, SumSquareSub};

use super::rows::{SharedLoop, Source, add_rows, sum_rows};
use super::{CpuOp, Operands};

/// Rows of a block. The sums of a block do not depend on the number of threads.
const ROWS: usize = 64;

impl CpuOp for LayerNormBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (x, weight) = (operands.values(0)?, operands.values(1)?);
        let dy = operands.source(2)?;
        let residual = operands.optional(self.residual, 3)?;
        let [dx, sums @ ..] = results else {
            return Err("has no result".into());
        };
        let (d, len) = (weight.len(), ROWS * weight.len());
        // Sums of `dy · n`, then of `dy`.
        let mut partial = vec![0.0; x.len().div_ceil(len) * 2 * d];
        let blocks = dx.par_chunks_mut(len).zip(partial.par_chunks_mut(2 * d));
        blocks.enumerate().for_each_item(|(block, (dx, sums))| {
            let of_block = |values: &[f32]| block * len..(block * len + len).min(values.len());
            if let Source::At(dy) = dy {
                dx.copy_from_slice(&dy[of_block(dy)]);
            }
            let x = &x[of_block(x)];
            let of_op = Rows {
                op: self,
                x,
                weight,
                dx,
                sums,
            };
            of_op.dispatch();
            if let Some(residual) = residual {
                let residual = &residual[of_block(residual)];
                dx.iter_mut().zip(residual).for_each(|(dx, more)| *dx += more);
            }
        });
        if self.parameters
            && let [d_weight, d_bias, ..] = sums
        {
            let mut both = vec![0.0; 2 * d];
            add_rows(&partial, &mut both);
            d_weight.copy_from_slice(&both[..d]);
            d_bias.copy_from_slice(&both[d..]);
        }
        if self.sums
            && let Some(sums) = sums.last_mut()
        {
            sum_rows(dx, sums);
        }
        Ok(())
    }
}

/// Rows with one dispatch of the instruction set.
struct Rows<'a> {
    op: &'a LayerNormBackward,
    x: &'a [f32],
    weight: &'a [f32],
    /// The gradients of the result, which are replaced by those of x.
    dx: &'a mut [f32],
    /// Sums of `dy · n` and of `dy`, to which those of the rows are added.
    sums: &'a mut [f32],
}

impl SimdOp for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let d = self.weight.len();
        let (d_weight, d_bias) = self.sums.split_at_mut(d);
        for (x, dy) in self.x.chunks_exact(d).zip(self.dx.chunks_exact_mut(d)) {
            let mean = Sum::new(x).eval(isa) / d as f32;
            let variance = SumSquareSub::new(x, mean).eval(isa) / d as f32;
            let reciprocal = 1.0 / (variance + self.op.epsilon).sqrt();
            let [sum, dot] = means(x, self.weight, dy, [mean, reciprocal]);
            let dot = if self.op.fixed_deviation { 0.0 } else { dot };
            let parameters = d_weight.iter_mut().zip(&mut *d_bias).zip(self.weight);
            for (((d_weight, d_bias), weight), (&x, dy)) in parameters.zip(x.iter().zip(dy)) {
                let normal = (x - mean) * reciprocal;
                *d_weight += *dy * normal;
                *d_bias += *dy;
                *dy = (*dy * weight - sum - normal * dot) * reciprocal;
            }
        }
    }
}

/// Returns the means of `dy · weight` and of `dy · weight · n`.
#[inline(always)]
fn means(x: &[f32], weight: &[f32], dy: &[f32], [mean, reciprocal]: [f32; 2]) -> [f32; 2] {
    // Lanes, so that the compiler uses vectors.
    let mut lanes = [[0.0; 16]; 2];
    let mut add = |lane: usize, x: f32, weight: f32, dy: f32| {
        let g = dy * weight;
        lanes[0][lane] += g;
        lanes[1][lane] += g * ((x - mean) * reciprocal);
    };
    let (xs, x_rest) = x.as_chunks::<16>();
    let (weights, weight_rest) = weight.as_chunks::<16>();
    let (dys, dy_rest) = dy.as_chunks::<16>();
    for ((x, weight), dy) in xs.iter().zip(weights).zip(dys) {
        for lane in 0..16 {
            add(lane, x[lane], weight[lane], dy[lane]);
        }
    }
    for (lane, ((&x, &weight), &dy)) in x_rest.iter().zip(weight_rest).zip(dy_rest).enumerate() {
        add(lane, x, weight, dy);
    }
    lanes.map(|lanes| lanes.iter().sum::<f32>() / x.len() as f32)
}
