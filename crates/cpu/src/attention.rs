//! Multi-head attention.

pub(super) mod heads;

use hipvit_graph::op::{Attention, OpError};
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, ArrayViewMut4, Axis, aview1};
use rten_simd::{Isa, SimdOp};
use rten_vecmath::{MaxNum, Softmax};

#[cfg(target_arch = "x86_64")]
use super::bf16;
use super::gemm::{self, Blocks, Epilogue, ROW_TILE};
use super::products::Products;
use super::rows::{SharedLoop, with_scratch};
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
        let [out, statistics @ ..] = results else {
            return Err("has no result".into());
        };
        let statistics = statistics.first_mut().map(|statistics| &mut **statistics);
        match (products, statistics) {
            (Products::F32, statistics) => run(
                (self, products),
                [q, k, v],
                (bias, mask),
                batch,
                (out, statistics),
            ),
            #[cfg(target_arch = "x86_64")]
            (Products::Bf16(_), statistics) => {
                run((self, products), [q, k, v], (bias, mask), batch, (out, None))?;
                statistics.map_or(Ok(()), |statistics| {
                    run_statistics(self, [q, k], (bias, mask), statistics)
                })
            }
        }
    }
}

/// Minimum number of queries per pass over the prepacked keys and values.
pub(super) const QUERIES: usize = 24;

/// Computes attention into `out [B,Nq,C]`, and the statistics of the softmax into `[B,heads,Nq,3]` if the products are in f32.
///
/// Each head of each image is a task, which takes one block of queries at a time: Q·Kᵀ with prepacked keys, softmax of each row, P·V with
/// prepacked values. Packed QKV operands are read in place.
pub(crate) fn run(
    (spec, products): (&Attention, Products),
    [q, k, v]: [Tokens<'_>; 3],
    (bias, mask): (Option<&[f32]>, Option<&[f32]>),
    batch: usize,
    (out, statistics): (&mut [f32], Option<&mut [f32]>),
) -> Result<(), OpError> {
    let (heads, d) = (spec.heads, spec.head_dim);
    if batch * heads * d == 0 || k.count <= spec.first_key {
        return Err("has no key to attend to".into());
    }
    let (queries, _) = BLOCKS.divide(q.count, batch * heads, rayon::current_num_threads());
    let mut by_head = ArrayViewMut4::from_shape((batch, q.count, heads, d), out)
        .map_err(OpError::memory)?
        .permuted_axes([0, 2, 1, 3]);
    let (statistics, count) = statistics.map_or((&mut [][..], 0), |statistics| (statistics, STATISTICS));
    let mut statistics =
        ArrayViewMut4::from_shape((batch, heads, q.count, count), statistics).map_err(OpError::memory)?;
    let images = by_head.axis_iter_mut(Axis(0)).into_par_iter();
    let images = images.zip(statistics.axis_iter_mut(Axis(0))).enumerate();
    images.try_for_each_item(|(b, (mut image, mut statistics))| {
        let mask = mask_of_image(mask, b, k.count, spec.first_key)?;
        if mask.is_some_and(|mask| mask.iter().all(|&present| present == 0.0)) {
            image.fill(0.0);
            for mut of_row in statistics.rows_mut() {
                of_row.assign(&aview1(&UNSEEING[..count]));
            }
            return Ok(());
        }
        let heads = image.axis_iter_mut(Axis(0)).into_par_iter();
        let heads = heads.zip(statistics.axis_iter_mut(Axis(0))).enumerate();
        heads.try_for_each_item(|(head, (mut out, mut statistics))| {
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
                .zip(statistics.axis_chunks_iter_mut(Axis(0), queries))
                .enumerate();
            let extras = Extras { bias, mask };
            parts.try_for_each_item(|(part, (out, statistics))| {
                let first = part * queries;
                match products {
                    Products::F32 => one_head(spec, [q, k, v], extras, first, (out, statistics)),
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

/// Statistics of a row of scores: `ln Σ e^s`, the largest probability and the entropy.
const STATISTICS: usize = 3;

/// Statistics of a row without keys.
const UNSEEING: [f32; STATISTICS] = [f32::NEG_INFINITY, 0.0, 0.0];

/// Computes the queries of one head from `first` on into `out [Nq, head_dim]`, and their statistics into `[Nq, 3]`, unless it is empty. The
/// operands start at the head's first channel.
fn one_head(
    spec: &Attention,
    [q, k, v]: [Tokens<'_>; 3],
    extras: Extras<'_>,
    first: usize,
    (mut out, mut statistics): (ArrayViewMut2<'_, f32>, ArrayViewMut2<'_, f32>),
) -> Result<(), OpError> {
    let (d, keys) = (spec.head_dim, k.count);
    let prepacked_k = gemm::prepack(k.matrix(0, keys, d)?.transposed());
    let prepacked_v = gemm::prepack(v.matrix(0, keys, d)?);
    let epilogue = |scale| Epilogue { scale, bias: None };
    let tile = (SCORES / keys).max(QUERIES).next_multiple_of(ROW_TILE);
    let copied = if statistics.is_empty() { 0 } else { keys };
    let tiles = out.axis_chunks_iter_mut(Axis(0), tile);
    let tiles = tiles.zip(statistics.axis_chunks_iter_mut(Axis(0), tile));
    for (i, (mut out, mut statistics)) in tiles.enumerate() {
        let rows = out.nrows();
        let q = q.matrix(first + i * tile, rows, d)?;
        with_scratch(rows * (keys + d + copied), |scratch| {
            let (scores, rest) = scratch.split_at_mut(rows * keys);
            let (result, copy) = rest.split_at_mut(rows * d);
            gemm::multiply(q, &prepacked_k, epilogue(spec.scale), scores)?;
            extras.add(spec, first + i * tile, keys, scores)?;
            copy.copy_from_slice(&scores[..copy.len()]);
            SoftmaxRows { scores, keys }.dispatch();
            let rows_of_both = copy.chunks_exact(keys).zip(scores.chunks_exact(keys));
            for (mut out, (scores, weights)) in statistics.rows_mut().into_iter().zip(rows_of_both) {
                out.assign(&aview1(&statistics_of_softmax(scores, weights)));
            }
            let weights = gemm::strided(scores, rows, keys, keys)?;
            gemm::multiply(weights, &prepacked_v, epilogue(1.0), result)?;
            let result = ArrayView2::from_shape((rows, d), result).map_err(OpError::memory)?;
            out.assign(&result);
            Ok::<_, String>(())
        })?;
    }
    Ok(())
}

/// Writes the softmax statistics into `out [B,heads,Nq,3]`, for products that are not in f32. Each head of each image is a task, as in [`run`].
#[cfg(target_arch = "x86_64")]
fn run_statistics(
    spec: &Attention,
    [q, k]: [Tokens<'_>; 2],
    (bias, mask): (Option<&[f32]>, Option<&[f32]>),
    out: &mut [f32],
) -> Result<(), OpError> {
    use rayon::slice::ParallelSliceMut;

    let (heads, d) = (spec.heads, spec.head_dim);
    let keys = k.count.saturating_sub(spec.first_key);
    if heads * d * q.count * keys == 0 {
        return Err("has no key to attend to".into());
    }
    let tile = (SCORES / keys).max(QUERIES).next_multiple_of(ROW_TILE);
    let of_head = out.par_chunks_mut(q.count * 3).enumerate();
    of_head.try_for_each_item(|(index, out)| {
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

/// Returns the statistics of a row of scores, whose softmax is `weights`. With `x = s − max s`, the largest weight is `1 / Σ e^x`, and the
/// entropy is `ln Σ e^x − Σ weight · x`.
fn statistics_of_softmax(scores: &[f32], weights: &[f32]) -> [f32; STATISTICS] {
    let (top, weight) = (MaxNum::new(scores).dispatch(), MaxNum::new(weights).dispatch());
    if top == f32::NEG_INFINITY {
        return UNSEEING;
    }
    // Lanes, so that the compiler uses vectors.
    let mut lanes = [0.0; 16];
    // The score of a key that is not seen is −∞.
    let product = |score: f32, weight: f32| if weight > 0.0 { weight * (score - top) } else { 0.0 };
    let (score_chunks, score_rest) = scores.as_chunks::<16>();
    let (weight_chunks, weight_rest) = weights.as_chunks::<16>();
    for (scores, weights) in score_chunks.iter().zip(weight_chunks) {
        for lane in 0..16 {
            lanes[lane] += product(scores[lane], weights[lane]);
        }
    }
    let rest = score_rest.iter().zip(weight_rest);
    let rest: f32 = rest.map(|(&score, &weight)| product(score, weight)).sum();
    let mean = lanes.iter().sum::<f32>() + rest;
    [top - weight.ln(), weight, -weight.ln() - mean]
}

/// Returns `ln Σ e^s`, the largest probability and the entropy of the softmax of a row of scores. Scores of −∞ do not contribute.
#[cfg(target_arch = "x86_64")]
fn statistics(scores: &[f32]) -> [f32; STATISTICS] {
    let row_max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut weighted) = (0f64, 0f64);
    for &score in scores.iter().filter(|&&score| score != f32::NEG_INFINITY) {
        let x = f64::from(score) - f64::from(row_max);
        let e = x.exp();
        sum += e;
        weighted += e * x;
    }
    if sum == 0.0 {
        return UNSEEING;
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
