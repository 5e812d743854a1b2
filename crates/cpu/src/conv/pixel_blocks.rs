//! Blocks of pixels that are computed in parallel.

use std::ops::Range;

use hipvit_graph::op::OpError;
use ndarray::ArrayViewMut2;
use rayon::prelude::*;

use crate::activation;
use crate::rows::{SharedLoop, with_scratch};
use crate::tail::{Tail, finish, residual_of};

/// Computes blocks of pixels of `out [pixels, n]` in parallel. `f(pixels, result)` puts the sums with their bias into `result`.
pub(super) fn in_blocks(
    n: usize,
    block: usize,
    tail: Tail<'_>,
    out: &mut [f32],
    f: impl Fn(Range<usize>, &mut [f32]) -> Result<(), OpError> + Sync,
) -> Result<(), OpError> {
    let blocks = out.par_chunks_mut(block * n).enumerate();
    blocks.try_for_each_item(|(i, out)| {
        let pixels = i * block..i * block + out.len() / n;
        if tail.residual.is_none() {
            f(pixels, out)?;
            if let Some(activation) = tail.activation {
                activation::apply(activation, out);
            }
            return Ok(());
        }
        with_scratch(out.len(), |result| {
            f(pixels.clone(), result)?;
            let tail = tail.rows(pixels.clone(), n);
            let residual = residual_of(tail, [pixels.len(), n])?;
            let out = ArrayViewMut2::from_shape((pixels.len(), n), out).map_err(OpError::memory)?;
            finish(tail, residual, result, n, out)
        })
    })
}
