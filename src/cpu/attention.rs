//! Multi-head attention.

pub(super) mod heads;

use hipvit_graph::op::{Attention, OpError};
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, ArrayViewMut4, Axis};
use rayon::slice::ParallelSliceMut;
use rten_simd::{Isa, SimdOp};
use rten_vecmath::Softmax;

#[cfg(target_arch = "x86_64")]
use super::bf16;
use super::gemm::{self, Blocks, Epilogue, ROW_TILE};
use super::products::Products;
use super::rows::with_scratch;
use super::{CpuOp, Operands};
use heads::{Bias, Extras, SCORES, Tokens, mask_of_image};

impl CpuOp for Attention {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let tokens = |(index, channel)| Tokens::of(operands, index, channel);
        let [q, k, v] = self.places().map(tokens);
        let (q, k, v) = (q?, k?, v?);
        let bias = self
            .bias_operand()
            .map(|index| operands.values(index))
            .transpose()?;
        let mask = self
            .key_mask_operand()
            .map(|index| operands.values(index))
            .transpose()?;
        let batch = operands.result_shape(0)[0];
        let products = Products::new(operands.dtype());
        run((self, products), [q, k, v], (bias, mask), batch, results[0])?;
        if let Some(statistics) = results.get_mut(1) {
            run_statistics(self, [q, k], (bias, mask), statistics)?;
        }
        Ok(())
    }
}

/// Minimum number of queries per pass over the prepacked keys and values.
pub(super) const QUERIES: usize = 24;

/// Computes attention into `out [B,Nq,C]`.
///
/// Each head of each image is a task, which takes one block of queries at a time: Q·Kᵀ with prepacked keys, softmax of each row, P·V with
/// prepacked values. Packed QKV operands are read in place.
pub(crate) fn run(
    (spec, products): (&Attention, Products),
    [q, k, v]: [Tokens<'_>; 3],
    (bias, mask): (Option<&[f32]>, Option<&[f32]>),
    batch: usize,
    out: &mut [f32],
) -> Result<(), OpError> {
    let (heads, d) = (spec.heads, spec.head_dim);
    if batch * heads * d == 0 || k.count <= spec.first_key {
        return Err("has no key to attend to".into());
    }
    let (queries, _) = BLOCKS.divide(q.count, batch * heads, rayon::current_num_threads());
    let mut by_head = ArrayViewMut4::from_shape((batch, q.count, heads, d), out)
        .map_err(OpError::memory)?
        .permuted_axes([0, 2, 1, 3]);
    let images = by_head.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
    images.try_for_each(|(b, mut image)| {
        let mask = mask_of_image(mask, b, k.count, spec.first_key)?;
        if mask.is_some_and(|mask| mask.iter().all(|&present| present == 0.0)) {
            image.fill(0.0);
            return Ok(());
        }
        let heads = image.axis_iter_mut(Axis(0)).into_par_iter().enumerate();
        heads.try_for_each(|(head, mut out)| {
            let (q, k, v) = (
                q.of_image(b, head * d)?,
                k.of_image(b, head * d)?.after(spec.first_key)?,
                v.of_image(b, head * d)?.after(spec.first_key)?,
            );
            let bias = match bias {
                Some(bias) => Some(Bias::of_head(bias, head, [q.count, k.count + spec.first_key])?),
                None => None,
            };
            let parts = out
                .axis_chunks_iter_mut(Axis(0), queries)
                .into_par_iter()
                .enumerate();
            let extras = Extras { bias, mask };
            parts.try_for_each(|(part, out)| {
                let first = part * queries;
                match products {
                    Products::F32 => one_head(spec, [q, k, v], extras, first, out),
                    #[cfg(target_arch = "x86_64")]
                    Products::Bf16(isa) => {
                        bf16::attention::attend((spec, isa), [q, k, v], extras, first, out)
                    }
                }
            })
        })
    })
}

/// Splits heads if there are more threads than heads, although each block of queries then prepacks keys and values again.
const BLOCKS: Blocks = Blocks {
    most: usize::MAX,
    overhead: 24,
};

/// Computes the queries of one head from `first` on into `out [Nq, head_dim]`. The operands start at the head's first channel.
fn one_head(
    spec: &Attention,
    [q, k, v]: [Tokens<'_>; 3],
    extras: Extras<'_>,
    first: usize,
    mut out: ArrayViewMut2<'_, f32>,
) -> Result<(), OpError> {
    let (d, keys) = (spec.head_dim, k.count);
    let prepacked_k = gemm::prepack(k.matrix(0, keys, d)?.transposed());
    let prepacked_v = gemm::prepack(v.matrix(0, keys, d)?);
    let epilogue = |scale| Epilogue { scale, bias: None };
    let tile = (SCORES / keys).max(QUERIES).next_multiple_of(ROW_TILE);
    for (i, mut out) in out.axis_chunks_iter_mut(Axis(0), tile).enumerate() {
        let rows = out.nrows();
        let q = q.matrix(first + i * tile, rows, d)?;
        with_scratch(rows * (keys + d), |scratch| {
            let (scores, result) = scratch.split_at_mut(rows * keys);
            gemm::multiply(q, &prepacked_k, epilogue(spec.scale), scores)?;
            extras.add(spec, first + i * tile, keys, scores)?;
            SoftmaxRows { scores, keys }.dispatch();
            let weights = gemm::strided(scores, rows, keys, keys)?;
            gemm::multiply(weights, &prepacked_v, epilogue(1.0), result)?;
            let result = ArrayView2::from_shape((rows, d), result).map_err(OpError::memory)?;
            out.assign(&result);
            Ok::<_, String>(())
        })?;
    }
    Ok(())
}

/// Writes the softmax statistics into `out [B,heads,Nq,3]`. Each head of each image is a task, as in [`run`].
pub(crate) fn run_statistics(
    spec: &Attention,
    [q, k]: [Tokens<'_>; 2],
    (bias, mask): (Option<&[f32]>, Option<&[f32]>),
    out: &mut [f32],
) -> Result<(), OpError> {
    let (heads, d) = (spec.heads, spec.head_dim);
    let keys = k.count.saturating_sub(spec.first_key);
    if heads * d * q.count * keys == 0 {
        return Err("has no key to attend to".into());
    }
    let tile = (SCORES / keys).max(QUERIES).next_multiple_of(ROW_TILE);
    let of_head = out.par_chunks_mut(q.count * 3).enumerate();
    of_head.try_for_each(|(index, out)| {
        let (b, head) = (index / heads, index % heads);
        let (q, k) = (
            q.of_image(b, head * d)?,
            k.of_image(b, head * d)?.after(spec.first_key)?,
        );
        let bias = match bias {
            Some(bias) => Some(Bias::of_head(bias, head, [q.count, k.count + spec.first_key])?),
            None => None,
        };
        let mask = mask_of_image(mask, b, keys + spec.first_key, spec.first_key)?;
        let prepacked_k = gemm::prepack(k.matrix(0, keys, d)?.transposed());
        for (i, out) in out.chunks_mut(tile * 3).enumerate() {
            let (first, rows) = (i * tile, out.len() / 3);
            with_scratch(rows * keys, |scores| {
                let epilogue = Epilogue {
                    scale: spec.scale,
                    bias: None,
                };
                gemm::multiply(q.matrix(first, rows, d)?, &prepacked_k, epilogue, scores)?;
                Extras { bias, mask }.add(spec, first, keys, scores)?;
                for (scores, out) in scores.chunks_exact(keys).zip(out.chunks_exact_mut(3)) {
                    out.copy_from_slice(&statistics(scores));
                }
                Ok::<_, String>(())
            })?;
        }
        Ok(())
    })
}

/// Returns `ln Σ e^s`, the largest probability and the entropy of the softmax of a row of scores. Scores of −∞ do not contribute.
fn statistics(scores: &[f32]) -> [f32; 3] {
    let row_max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut weighted) = (0f64, 0f64);
    for &score in scores.iter().filter(|&&score| score != f32::NEG_INFINITY) {
        let x = f64::from(score) - f64::from(row_max);
        let e = x.exp();
        sum += e;
        weighted += e * x;
    }
    if sum == 0.0 {
        return [f32::NEG_INFINITY, 0.0, 0.0];
    }
    let entropy = sum.ln() - weighted / sum;
    [f64::from(row_max) + sum.ln(), 1.0 / sum, entropy].map(|statistic| statistic as f32)
}

/// Softmax in place of rows of `keys` scores, with one dispatch of the instruction set.
pub(super) struct SoftmaxRows<'a> {
    pub(super) scores: &'a mut [f32],
    pub(super) keys: usize,
}

impl SimdOp for SoftmaxRows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        for row in self.scores.chunks_exact_mut(self.keys) {
            Softmax::new_mut(row).eval(isa);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_heads_are_divided_among_many_threads() {
        for (heads, threads, expected) in [(12, 1, 198), (12, 2, 198), (12, 8, 102), (96, 8, 198), (1, 4, 54)]
        {
            let (queries, _) = BLOCKS.divide(197, heads, threads);
            assert_eq!(queries, expected, "{heads} on {threads}");
        }
        assert_eq!(BLOCKS.divide(1, 12, 8).0, ROW_TILE);
        assert_eq!(BLOCKS.divide(0, 12, 8).0, ROW_TILE);
    }
}
