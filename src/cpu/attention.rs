//! Multi-head attention.

use hipvit_graph::op::{Attention, OpError};
use ndarray::parallel::prelude::*;
use ndarray::{ArrayView2, ArrayViewMut2, ArrayViewMut4, Axis};
use rayon::slice::ParallelSliceMut;
use rten_simd::{Isa, SimdOp};
use rten_tensor::Matrix;
use rten_vecmath::Softmax;

#[cfg(target_arch = "x86_64")]
use super::bf16;
use super::gemm::{self, Blocks, Epilogue, Products, ROW_TILE};
use super::rows::with_scratch;
use super::{CpuOp, Operands};

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

/// Queries, keys or values in an operand.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    /// The operand, starting at the first channel of the first token.
    pub(crate) data: &'a [f32],
    /// Tokens per image.
    pub(crate) count: usize,
    /// Stride of tokens in elements.
    pub(crate) stride: usize,
    /// True if all images of the batch share the tokens.
    pub(crate) shared: bool,
}

impl<'a> Tokens<'a> {
    /// Returns the tokens of operand `index`, from channel `offset` on.
    fn of(operands: &Operands<'a>, index: usize, offset: usize) -> Result<Self, OpError> {
        let (images, count, stride) = match *operands.shape(index)? {
            [b, n, channels] => (b, n, channels),
            [b, channels] => (b, 1, channels),
            ref shape => return Err(format!("an operand has shape {shape:?}, expected tokens").into()),
        };
        let data = operands.values(index)?.get(offset..);
        Ok(Self {
            data: data.ok_or_else(|| OpError::memory("an operand is too short"))?,
            count,
            stride,
            shared: images == 1,
        })
    }

    /// Returns the tokens of image `b`, from channel `channel` on.
    fn of_image(self, b: usize, channel: usize) -> Result<Self, OpError> {
        let image = if self.shared { 0 } else { b };
        let start = image * self.count * self.stride + channel;
        let data = self
            .data
            .get(start..)
            .ok_or_else(|| OpError::memory("an operand is too short"))?;
        Ok(Self { data, ..self })
    }

    /// Returns the tokens of an image without the first `count`.
    fn after(self, count: usize) -> Result<Self, OpError> {
        let data = self.data.get(count * self.stride..);
        Ok(Self {
            data: data.ok_or_else(|| OpError::memory("an operand is too short"))?,
            count: self.count.saturating_sub(count),
            ..self
        })
    }

    /// Returns the elements from token `first` to the last of `rows` tokens, of which only the first `columns` channels are included.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn rows(self, first: usize, rows: usize, columns: usize) -> Result<&'a [f32], OpError> {
        let start = first * self.stride;
        let end = start + rows.saturating_sub(1) * self.stride + columns;
        self.data
            .get(start..end)
            .ok_or_else(|| OpError::memory("an operand is too short"))
    }

    /// Returns `columns` channels of `rows` tokens from token `first` on, as a matrix.
    fn matrix(self, first: usize, rows: usize, columns: usize) -> Result<Matrix<'a>, OpError> {
        let data = self
            .data
            .get(first * self.stride..)
            .ok_or_else(|| OpError::memory("an operand is too short"))?;
        gemm::strided(data, rows, columns, self.stride)
    }
}

/// Number of scores that a thread computes at once. For a few hundred tokens they fit the L2 cache with prepacked keys and values; for many
/// tokens this bounds them.
pub(super) const SCORES: usize = 48 * 1024;

/// Minimum number of queries per pass over the prepacked keys and values.
const QUERIES: usize = 24;

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
                    Products::Bf16(isa) => bf16::attend((spec, isa), [q, k, v], extras, first, out),
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

/// Bias and key mask of a head's scores.
#[derive(Clone, Copy)]
pub(super) struct Extras<'a> {
    bias: Option<Bias<'a>>,
    mask: Option<&'a [f32]>,
}

impl Extras<'_> {
    /// Adds to rows of `keys` scores, of the queries from `first` on. Leaves scores beyond the keys of bias and mask unchanged.
    pub(super) fn add(
        self,
        spec: &Attention,
        first: usize,
        keys: usize,
        scores: &mut [f32],
    ) -> Result<(), OpError> {
        if let Some(bias) = self.bias {
            bias.add(first, spec.first_key, keys, scores)?;
        }
        if spec.causal {
            for (row, scores) in scores.chunks_exact_mut(keys).enumerate() {
                let seen = (first + row + 1).min(keys);
                scores[seen..].fill(f32::NEG_INFINITY);
            }
        }
        if let Some(mask) = self.mask {
            for scores in scores.chunks_exact_mut(keys) {
                let masked = scores.iter_mut().zip(mask).filter(|(_, mask)| **mask == 0.0);
                masked.for_each(|(score, _)| *score = f32::NEG_INFINITY);
            }
        }
        Ok(())
    }
}

/// Returns the part of a key mask `[B,count]` for image `b` and the keys from `first_key` on.
fn mask_of_image(
    mask: Option<&[f32]>,
    b: usize,
    count: usize,
    first_key: usize,
) -> Result<Option<&[f32]>, OpError> {
    match mask {
        Some(mask) => mask
            .get(b * count + first_key..(b + 1) * count)
            .map(Some)
            .ok_or_else(|| OpError::memory("its key mask is too short")),
        None => Ok(None),
    }
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

/// Bias of a head's scores, `[queries, keys]`.
#[derive(Clone, Copy)]
struct Bias<'a> {
    values: &'a [f32],
    keys: usize,
}

impl<'a> Bias<'a> {
    fn of_head(bias: &'a [f32], head: usize, [queries, keys]: [usize; 2]) -> Result<Self, OpError> {
        let size = queries * keys;
        let values = bias.get(head * size..(head + 1) * size);
        Ok(Self {
            values: values.ok_or_else(|| OpError::memory("its bias is too short"))?,
            keys,
        })
    }

    /// Adds to rows of `keys` scores, of the queries from `query` on and the keys from `first_key` on.
    fn add(self, query: usize, first_key: usize, keys: usize, scores: &mut [f32]) -> Result<(), OpError> {
        let rows = self
            .values
            .get(query * self.keys..)
            .ok_or_else(|| OpError::memory("its bias is too short"))?;
        for (scores, bias) in scores.chunks_exact_mut(keys).zip(rows.chunks_exact(self.keys)) {
            let bias = &bias[first_key..];
            scores
                .iter_mut()
                .zip(bias)
                .for_each(|(score, bias)| *score += bias);
        }
        Ok(())
    }
}

/// Softmax in place of rows of `keys` scores, with one dispatch of the instruction set.
struct SoftmaxRows<'a> {
    scores: &'a mut [f32],
    keys: usize,
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
