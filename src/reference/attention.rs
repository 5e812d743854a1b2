//! Scaled dot-product attention.

use rayon::prelude::*;

use super::array::{dot, extents};
use super::softmax::softmax;
use super::{Array, result_of};
use crate::ops::{Attention, AttentionOperands, Op};

/// One of Q, K and V inside a packed operand.
struct Packed<'a> {
    values: &'a [f64],
    tokens: usize,
    /// Elements from one token to the next.
    stride: usize,
    /// Where the first channel lies within a token.
    offset: usize,
    /// Whether there is one image's worth for the whole batch.
    shared: bool,
}

impl<'a> Packed<'a> {
    fn new(array: &'a Array, offset: usize) -> Self {
        let (batch, tokens, stride) = match *array.shape() {
            [batch, stride] => (batch, 1, stride),
            _ => extents(array).into(),
        };
        Self {
            values: array.values(),
            tokens,
            stride,
            offset,
            shared: batch == 1,
        }
    }

    /// The channels of a token, from its first on.
    fn token(&self, b: usize, token: usize) -> &'a [f64] {
        let b = if self.shared { 0 } else { b };
        &self.values[(b * self.tokens + token) * self.stride + self.offset..]
    }
}

/// [`Op::Attention`] where `visible(image, query, key)` says which keys a query sees. A query that sees none gets zeros.
///
/// # Errors
///
/// As for [`eval`](super::eval).
pub(crate) fn masked_attention(
    spec: &Attention,
    operands: &[&Array],
    visible: impl Fn(usize, usize, usize) -> bool + Sync,
) -> Result<Array, String> {
    let mut result = result_of(&Op::Attention(*spec), operands)?;
    attention(spec, operands, &mut result, visible);
    Ok(result)
}

/// [`Op::AttentionStatistics`] likewise.
///
/// # Errors
///
/// As for [`eval`](super::eval).
pub(crate) fn masked_statistics(
    spec: &Attention,
    operands: &[&Array],
    visible: impl Fn(usize, usize, usize) -> bool + Sync,
) -> Result<Array, String> {
    let mut result = result_of(&Op::AttentionStatistics(*spec), operands)?;
    statistics(spec, operands, &mut result, visible);
    Ok(result)
}

/// The operands of attention.
struct Scores<'a> {
    spec: &'a Attention,
    q: Packed<'a>,
    k: Packed<'a>,
    v: Packed<'a>,
    bias: Option<&'a [f64]>,
    key_mask: Option<&'a [f64]>,
}

impl<'a> Scores<'a> {
    fn new(spec: &'a Attention, operands: &[&'a Array]) -> Self {
        let c = spec.heads * spec.head_dim;
        let [q, k, v] = match spec.operands {
            AttentionOperands::Separate => [(0, 0), (1, 0), (2, 0)],
            AttentionOperands::PackedQkv => [(0, 0), (0, c), (0, 2 * c)],
            AttentionOperands::PackedKv => [(0, 0), (1, 0), (1, c)],
        }
        .map(|(operand, offset)| Packed::new(operands[operand], offset));
        let bias = spec.bias.then(|| operands[spec.operands.count()].values());
        let key_mask = spec.key_mask.then(|| operands[operands.len() - 1].values());
        Self {
            spec,
            q,
            k,
            v,
            bias,
            key_mask,
        }
    }

    /// The keys that a query sees.
    fn keys(&self, b: usize, query: usize, visible: impl Fn(usize, usize, usize) -> bool) -> Vec<usize> {
        let own = |key: usize| {
            self.key_mask
                .is_none_or(|mask| mask[b * self.k.tokens + key] != 0.0)
        };
        (self.spec.first_key..self.k.tokens)
            .filter(|&key| (!self.spec.causal || key <= query) && own(key) && visible(b, query, key))
            .collect()
    }

    /// Of one head's query and these keys.
    fn of(&self, b: usize, query: usize, head: usize, keys: &[usize]) -> Vec<f64> {
        let first = head * self.spec.head_dim;
        let q = &self.q.token(b, query)[first..][..self.spec.head_dim];
        let score = |&key: &usize| {
            let place = (head * self.q.tokens + query) * self.k.tokens + key;
            let bias = self.bias.map_or(0.0, |bias| bias[place]);
            f64::from(self.spec.scale) * dot(q, &self.k.token(b, key)[first..][..q.len()]) + bias
        };
        keys.iter().map(score).collect()
    }
}

pub(super) fn attention(
    spec: &Attention,
    operands: &[&Array],
    y: &mut Array,
    visible: impl Fn(usize, usize, usize) -> bool + Sync,
) {
    let scores = Scores::new(spec, operands);
    let queries = scores.q.tokens;
    let c = spec.heads * spec.head_dim;
    y.values_mut().par_chunks_mut(c).enumerate().for_each(|(row, y)| {
        let (b, query) = (row / queries, row % queries);
        let keys = scores.keys(b, query, &visible);
        for (head, y) in y.chunks_mut(spec.head_dim).enumerate() {
            let mut weights = scores.of(b, query, head, &keys);
            softmax(&mut weights);
            for (&key, weight) in keys.iter().zip(&weights) {
                let v = &scores.v.token(b, key)[head * spec.head_dim..][..spec.head_dim];
                for (y, v) in y.iter_mut().zip(v) {
                    *y += weight * v;
                }
            }
        }
    });
}

pub(super) fn statistics(
    spec: &Attention,
    operands: &[&Array],
    y: &mut Array,
    visible: impl Fn(usize, usize, usize) -> bool + Sync,
) {
    let scores = Scores::new(spec, operands);
    let queries = scores.q.tokens;
    y.values_mut().par_chunks_mut(3).enumerate().for_each(|(row, y)| {
        let (b, head, query) = (
            row / queries / spec.heads,
            row / queries % spec.heads,
            row % queries,
        );
        let mut p = scores.of(b, query, head, &scores.keys(b, query, &visible));
        let row_max = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = p.iter().map(|score| (score - row_max).exp()).sum();
        softmax(&mut p);
        let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
        let largest = p.iter().copied().fold(0.0, f64::max);
        y.copy_from_slice(&[row_max + sum.ln(), largest, entropy]);
    });
}
