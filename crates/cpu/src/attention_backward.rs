//! Derivative of multi-head attention.

use hipvit_graph::op::{Attention, AttentionBackward, OpError};
use ndarray::{ArrayView2, ArrayViewMut, ArrayViewMut2, ArrayViewMut4, Axis, RemoveAxis};
use rayon::prelude::*;
use rten_simd::{SimdOp, SimdUnaryOp};
use rten_vecmath::Exp;

use super::attention::SoftmaxRows;
use super::attention::heads::{Extras, Tokens, mask_of_image};
use super::gemm::{self, Epilogue};
use super::rows::{SharedLoop, dot, with_scratch};
use super::{CpuOp, Operands, by_reference};

/// Largest size of a saved logarithm that weights are computed from. Its rounding error is an error of the weights: up to 2⁻¹⁸ at 64, 0.001 at
/// 30,000.
const MAX_LOG_SUM: f32 = 64.0;

impl CpuOp for AttentionBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let images = operands.batched_shape(operands.count() - 1)?[0];
        let q = Tokens::of(operands, 0, 0)?;
        // Gradients that are sums over images are computed by the reference.
        if self.0.bias || (q.shared && images > 1) {
            return by_reference(self, operands, results);
        }
        let heads = self.0.heads;
        let all = Backward::new(self, operands)?;
        let mut gradients = all.gradients(operands, results)?;
        gradients
            .par_iter_mut()
            .enumerate()
            .try_for_each_item(|(index, gradients)| all.one_head([index / heads, index % heads], gradients))
    }
}

/// Operands of all heads.
struct Backward<'a> {
    spec: &'a Attention,
    qkv: [Tokens<'a>; 3],
    mask: Option<&'a [f32]>,
    /// Result and statistics of the forward pass.
    saved: Option<(Tokens<'a>, &'a [f32])>,
    dy: Tokens<'a>,
}

/// Gradients of the queries, keys and values of a head, `[tokens, head_dim]` each.
type HeadGradients<'a> = [ArrayViewMut2<'a, f32>; 3];

impl<'a> Backward<'a> {
    fn new(op: &'a AttentionBackward, operands: &Operands<'a>) -> Result<Self, OpError> {
        let spec = &op.0;
        let tokens = |(index, channel)| Tokens::of(operands, index, channel);
        let [q, k, v] = spec.places().map(tokens);
        let mask = spec.key_mask_operand().map(|index| operands.values(index));
        let saved = match op.saved_operand() {
            Some(index) => Some((tokens((index, 0))?, operands.values(index + 1)?)),
            None => None,
        };
        Ok(Self {
            spec,
            qkv: [q?, k?, v?],
            mask: mask.transpose()?,
            saved,
            dy: tokens((operands.count() - 1, 0))?,
        })
    }

    /// Divides the results into the gradients of each head of each image.
    fn gradients<'r>(
        &self,
        operands: &Operands<'_>,
        results: &'r mut [&mut [f32]],
    ) -> Result<Vec<HeadGradients<'r>>, OpError> {
        let d = self.spec.head_dim;
        let mut stripes = Vec::with_capacity(results.len());
        for (index, result) in results.iter_mut().enumerate() {
            let result = &mut **result;
            let tokens = Tokens::of(operands, index, 0)?;
            let images = result.len() / (tokens.count * tokens.stride).max(1);
            let shape = (images, tokens.count, tokens.stride / d, d);
            let result = ArrayViewMut4::from_shape(shape, result).map_err(OpError::memory)?;
            let images = divide(result.permuted_axes([0, 2, 1, 3])).into_iter();
            let images = images.map(|image| divide(image).into_iter().map(Some).collect());
            stripes.push(images.collect::<Vec<Vec<_>>>());
        }
        let (heads, images) = (self.spec.heads, stripes.first().map_or(0, Vec::len));
        let mut all = Vec::with_capacity(images * heads);
        for index in 0..images * heads {
            let (image, head) = (index / heads, index % heads);
            let mut take = |(operand, channel): (usize, usize)| {
                let stripe = stripes[operand][image].get_mut(channel / d + head);
                stripe
                    .and_then(Option::take)
                    .ok_or("a gradient has too few channels")
            };
            let [q, k, v] = self.spec.places().map(&mut take);
            all.push([q?, k?, v?]);
        }
        Ok(all)
    }

    /// Computes the gradients of a head.
    fn one_head(
        &self,
        [image, head]: [usize; 2],
        [d_q, d_k, d_v]: &mut HeadGradients<'_>,
    ) -> Result<(), OpError> {
        let Attention {
            head_dim: d,
            first_key,
            scale,
            ..
        } = *self.spec;
        let [q, k, v] = self.qkv;
        let of_head = |tokens: Tokens<'a>| tokens.of_image(image, head * d);
        let (queries, keys) = (q.count, k.count.saturating_sub(first_key));
        let matrix = |tokens: Tokens<'a>| tokens.matrix(0, tokens.count, d);
        let q = matrix(of_head(q)?)?;
        let (k, v) = (
            matrix(of_head(k)?.after(first_key)?)?,
            matrix(of_head(v)?.after(first_key)?)?,
        );
        let dy = matrix(of_head(self.dy)?)?;
        let times = |scale| Epilogue { scale, bias: None };
        let size = queries * keys;
        with_scratch(2 * size + queries + queries.max(keys) * d, |scratch| {
            let (weights, rest) = scratch.split_at_mut(size);
            let (slopes, rest) = rest.split_at_mut(size);
            let (deltas, product) = rest.split_at_mut(queries);
            gemm::multiply(q, &gemm::prepack(k.transposed()), times(scale), weights)?;
            let mask = mask_of_image(self.mask, image, keys + first_key, first_key)?;
            Extras { bias: None, mask }.add(self.spec, 0, keys, weights)?;
            self.softmax([image, head], keys, weights);
            gemm::multiply(dy, &gemm::prepack(v.transposed()), times(1.0), slopes)?;
            self.deltas([image, head], (weights, slopes), deltas)?;
            let rows = slopes.chunks_exact_mut(keys).zip(weights.chunks_exact(keys));
            for ((slopes, weights), &delta) in rows.zip(&*deltas) {
                for (slope, &weight) in slopes.iter_mut().zip(weights) {
                    *slope = weight * (*slope - delta);
                }
            }
            let (weights, slopes) = (
                gemm::strided(weights, queries, keys, keys)?,
                gemm::strided(slopes, queries, keys, keys)?,
            );
            let mut write = |a, b, scale, gradient: &mut ArrayViewMut2<'_, f32>, first| {
                let rows = gradient.nrows() - first;
                let product = &mut product[..rows * d];
                gemm::multiply(a, &gemm::prepack(b), times(scale), product)?;
                let product = ArrayView2::from_shape((rows, d), &*product).map_err(OpError::memory)?;
                let (mut unseen, mut seen) = gradient.view_mut().split_at(Axis(0), first);
                unseen.fill(0.0);
                seen.assign(&product);
                Ok::<_, OpError>(())
            };
            write(weights.transposed(), dy, 1.0, d_v, first_key)?;
            write(slopes, k, scale, d_q, 0)?;
            write(slopes.transposed(), q, scale, d_k, first_key)
        })
    }

    /// Replaces rows of scores by their softmax. Rows without keys become zeros. Rows with an imprecise statistic are normalised anew.
    fn softmax(&self, at: [usize; 2], keys: usize, scores: &mut [f32]) {
        let Some(statistics) = self.statistics(at) else {
            SoftmaxRows { scores, keys }.dispatch();
            if self.mask.is_some() {
                // The softmax of a row without keys is NaN.
                let unseeing = scores.chunks_exact_mut(keys).filter(|row| row[0].is_nan());
                unseeing.for_each(|row| row.fill(0.0));
            }
            return;
        };
        for (scores, statistics) in scores.chunks_exact_mut(keys).zip(statistics) {
            let log_sum = statistics[0];
            if log_sum == f32::NEG_INFINITY {
                // Exponentials of −∞ are 0.
                scores.fill(f32::NEG_INFINITY);
            } else {
                let shift = if is_imprecise(statistics) {
                    scores.iter().copied().fold(f32::NEG_INFINITY, f32::max)
                } else {
                    log_sum
                };
                scores.iter_mut().for_each(|score| *score -= shift);
            }
        }
        Exp {}.map_mut(scores);
        let rows = scores
            .chunks_exact_mut(keys)
            .zip(self.statistics(at).into_iter().flatten());
        for (weights, _) in rows.filter(|(_, statistics)| is_imprecise(statistics)) {
            let sum: f32 = weights.iter().sum();
            weights.iter_mut().for_each(|weight| *weight /= sum);
        }
    }

    /// Computes `Σ dP · P` of each row, which is `Σ o · dy`. Rows with an imprecise statistic take the former, whose rounding errors cancel in
    /// `dP − Σ dP · P` if a query sees one key.
    fn deltas(&self, at: [usize; 2], (p, d_p): (&[f32], &[f32]), deltas: &mut [f32]) -> Result<(), OpError> {
        let (d, queries) = (self.spec.head_dim, deltas.len());
        let keys = p.len() / queries;
        let Some((o, _)) = self.saved else {
            let rows = p.chunks_exact(keys).zip(d_p.chunks_exact(keys));
            deltas
                .iter_mut()
                .zip(rows)
                .for_each(|(delta, (p, d_p))| *delta = dot(p, d_p));
            return Ok(());
        };
        let [o, dy] = [o, self.dy].map(|tokens| tokens.of_image(at[0], at[1] * d));
        let (o, dy) = (o?, dy?);
        for (row, delta) in deltas.iter_mut().enumerate() {
            let channels = |tokens: &Tokens<'a>| &tokens.data[row * tokens.stride..][..d];
            *delta = dot(channels(&o), channels(&dy));
        }
        let rows = deltas
            .iter_mut()
            .zip(p.chunks_exact(keys).zip(d_p.chunks_exact(keys)));
        for ((delta, (p, d_p)), statistics) in rows.zip(self.statistics(at).into_iter().flatten()) {
            if is_imprecise(statistics) {
                *delta = dot(p, d_p);
            }
        }
        Ok(())
    }

    /// Returns the statistics of the rows of a head.
    fn statistics(&self, [image, head]: [usize; 2]) -> Option<impl Iterator<Item = &[f32; 3]>> {
        let (_, statistics) = self.saved?;
        let (rows, _) = statistics.as_chunks::<3>();
        let queries = self.qkv[0].count;
        Some(rows.iter().skip((image * self.spec.heads + head) * queries))
    }
}

/// Returns true if the logarithm of a row's sum has a rounding error that counts. Rows without keys have none.
fn is_imprecise([log_sum, ..]: &[f32; 3]) -> bool {
    log_sum.is_finite() && log_sum.abs() > MAX_LOG_SUM
}

/// Divides an array along its first axis.
fn divide<D: RemoveAxis>(mut rest: ArrayViewMut<'_, f32, D>) -> Vec<ArrayViewMut<'_, f32, D::Smaller>> {
    let mut parts = Vec::with_capacity(rest.len_of(Axis(0)));
    while rest.len_of(Axis(0)) > 0 {
        let (first, others) = rest.split_at(Axis(0), 1);
        parts.push(first.index_axis_move(Axis(0), 0));
        rest = others;
    }
    parts
}
