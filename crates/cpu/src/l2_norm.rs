//! The norm of all gradients together.

use hipvit_graph::op::l2_norm::{CLIP_EPSILON, L2_NORM_CHUNK};
use hipvit_graph::op::{L2Norm, OpError};
use rayon::prelude::*;

use super::{CpuOp, Operands};

/// Squares of a chunk are added in f64, and the sums of chunks in order, so that the result does not depend on the number of threads.
fn square_sum(gradient: &[f32]) -> f64 {
    let of_chunk = |chunk: &[f32]| chunk.iter().map(|&g| f64::from(g) * f64::from(g)).sum();
    let sums: Vec<f64> = gradient.par_chunks(L2_NORM_CHUNK).map(of_chunk).collect();
    sums.iter().sum()
}

impl CpuOp for L2Norm {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let scale = *operands.values(0)?.first().ok_or("the scale is empty")?;
        let mut sum = 0.0;
        for index in 1..operands.count() {
            sum += square_sum(operands.values(index)?);
        }
        let norm = scale * sum.sqrt() as f32;
        let factor = match self.maximum.map(|maximum| maximum / (norm + CLIP_EPSILON)) {
            _ if !norm.is_finite() => f32::NAN,
            Some(factor) if factor < 1.0 => factor,
            _ => 1.0,
        };
        results[0].fill(norm);
        results[1].fill(scale * factor);
        Ok(())
    }
}
