//! Scaled dot-product attention.

use rayon::prelude::*;

use super::Array;
use super::array::{dot, extents};
use super::softmax::softmax;
use crate::ops::{Attention, AttentionOperands, Op, output_shape};

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
    let shapes: Vec<&[usize]> = operands.iter().map(|a| a.shape()).collect();
    let mut result = Array::zeros(output_shape(&Op::Attention(*spec), &shapes)?);
    attention(spec, operands, &mut result, visible);
    Ok(result)
}

pub(super) fn attention(
    spec: &Attention,
    operands: &[&Array],
    y: &mut Array,
    visible: impl Fn(usize, usize, usize) -> bool + Sync,
) {
    let (queries, c) = match *y.shape() {
        [_, c] => (1, c),
        ref shape => (shape[1], shape[2]),
    };
    let [q, k, v] = match spec.operands {
        AttentionOperands::Separate => [(0, 0), (1, 0), (2, 0)],
        AttentionOperands::PackedQkv => [(0, 0), (0, c), (0, 2 * c)],
        AttentionOperands::PackedKv => [(0, 0), (1, 0), (1, c)],
    }
    .map(|(operand, offset)| Packed::new(operands[operand], offset));

    let bias = spec.bias.then(|| operands[spec.operands.count()].values());
    let mask = spec.key_mask.then(|| operands[operands.len() - 1].values());
    let visible = |b: usize, query: usize, key: usize| {
        mask.is_none_or(|mask| mask[b * k.tokens + key] != 0.0) && visible(b, query, key)
    };
    y.values_mut().par_chunks_mut(c).enumerate().for_each(|(row, y)| {
        let (b, query) = (row / queries, row % queries);
        let keys: Vec<usize> = (spec.first_key..k.tokens)
            .filter(|&key| (!spec.causal || key <= query) && visible(b, query, key))
            .collect();
        for (head, y) in y.chunks_mut(spec.head_dim).enumerate() {
            let first = head * spec.head_dim;
            let q = &q.token(b, query)[first..][..spec.head_dim];
            let mut weights: Vec<f64> = keys
                .iter()
                .map(|&key| {
                    let bias = bias.map_or(0.0, |bias| bias[(head * queries + query) * k.tokens + key]);
                    f64::from(spec.scale) * dot(q, &k.token(b, key)[first..][..spec.head_dim]) + bias
                })
                .collect();
            softmax(&mut weights);
            for (&key, weight) in keys.iter().zip(&weights) {
                let v = &v.token(b, key)[first..][..spec.head_dim];
                for (y, v) in y.iter_mut().zip(v) {
                    *y += weight * v;
                }
            }
        }
    });
}
