//! Multi-head attention.

mod attributes;
pub mod cases;

use std::fmt;

use rayon::prelude::*;

pub use self::attributes::{Attention, AttentionOperands};
use super::operands::{count, exactly, expect};
use super::{
    AttentionBackward, Definition, Division, Gradients, GraphBuilder, Locality, NodeValues, OpError,
    OperandShare, Shape, only_gradient,
};
use crate::array::{Array, Real, dot};
use crate::cases::Cases;
use crate::dtype::DType;
use crate::softmax::softmax;
use crate::tolerance::tolerance;
use crate::value::ValueId;

impl Attention {
    /// Computes the results with `visible(image, query, key)`, which is true if the query sees the key. A query without keys gets zeros.
    ///
    /// # Errors
    ///
    /// [`OpError`] if attention rejects operands of these shapes.
    pub fn eval_masked<T: Real>(
        &self,
        operands: &[&Array<T>],
        visible: impl Fn(usize, usize, usize) -> bool + Sync,
    ) -> Result<Vec<Array<T>>, OpError> {
        let shapes: Vec<&[usize]> = operands.iter().map(|operand| operand.shape()).collect();
        let mut results: Vec<Array<T>> = self.shapes(&shapes)?.into_iter().map(Array::zeros).collect();
        self.compute_masked(operands, &mut results, visible);
        Ok(results)
    }

    fn compute_masked<T: Real>(
        &self,
        operands: &[&Array<T>],
        results: &mut [Array<T>],
        visible: impl Fn(usize, usize, usize) -> bool + Sync,
    ) {
        let scores = Scores::new(self, operands);
        if let Some(result) = results.get_mut(0) {
            scores.attend(result, &visible);
        }
        if let Some(result) = results.get_mut(1) {
            scores.statistics(result, &visible);
        }
    }

    /// Returns the shape of the first result, without the check for causal attention.
    fn attended(&self, operands: &[&[usize]]) -> Result<Shape, OpError> {
        let c = self.heads * self.head_dim;
        if c == 0 {
            return Err("has no heads or no channels per head".into());
        }
        let (operands, mask) = match (self.key_mask, operands) {
            (false, _) => (operands, None),
            (true, [operands @ .., mask]) => (operands, Some(*mask)),
            (true, []) => return Err(OpError::Missing("key mask")),
        };
        let expect_mask = |images: usize, keys: usize| match mask {
            Some(_) if self.first_key > 0 => Err("has a key mask, which says itself what is left out".into()),
            Some(mask) => expect("key mask", mask, &[images, keys]),
            None => Ok(()),
        };
        let (operands, bias) = match (self.bias, operands) {
            (false, _) => (operands, None),
            (true, [operands @ .., bias]) => (operands, Some(*bias)),
            (true, []) => return Err(OpError::Missing("bias")),
        };
        // Extents of the scores.
        let expect_bias = |queries: usize, keys: usize| match bias {
            Some(bias) => expect("bias", bias, &[self.heads, queries, keys]),
            None => Ok(()),
        };
        let (query, key) = match self.operands {
            AttentionOperands::PackedQkv => {
                let [qkv] = exactly(operands)?;
                return match *qkv {
                    [b, n, packed] if packed == 3 * c && self.first_key < n => {
                        expect_bias(n, n)?;
                        expect_mask(b, n)?;
                        Ok(vec![b, n, c])
                    }
                    _ => Err(OpError::layout("`qkv`", qkv, format!("[B, N, {}]", 3 * c))),
                };
            }
            AttentionOperands::PackedKv => {
                let [q, kv] = exactly(operands)?;
                match *kv {
                    [b, n, packed] if packed == 2 * c => (q, [b, n, c]),
                    _ => return Err(OpError::layout("`kv`", kv, format!("[B, N, {}]", 2 * c))),
                }
            }
            AttentionOperands::Separate => {
                let [q, k, v] = exactly(operands)?;
                match *k {
                    [b, n, channels] if channels == c && v == k => (q, [b, n, c]),
                    _ => {
                        let reason = format!("`k` and `v` have shapes {k:?} and {v:?}, expected [B, N, {c}]");
                        return Err(reason.into());
                    }
                }
            }
        };
        expect_mask(key[0], key[1])?;
        if self.first_key >= key[1] {
            return Err(format!("has {} keys, none from {} on", key[1], self.first_key).into());
        }
        match *query {
            [b, n, channels] if channels == c && (b == 1 || b == key[0]) => {
                expect_bias(n, key[1])?;
                Ok(vec![key[0], n, c])
            }
            [b, channels] if channels == c && b == key[0] => {
                expect_bias(1, key[1])?;
                Ok(vec![b, c])
            }
            _ => {
                let images = key[0];
                let expected = format!("[{images} or 1, N, {c}] or [{images}, {c}]");
                Err(OpError::layout("`q`", query, expected))
            }
        }
    }
}

/// Q, K or V in an operand.
struct Packed<'a, T> {
    values: &'a [T],
    tokens: usize,
    /// Stride of tokens in elements.
    stride: usize,
    /// Offset of the first channel in a token.
    offset: usize,
    /// True if the whole batch shares one image's tokens.
    shared: bool,
}

impl<'a, T: Real> Packed<'a, T> {
    fn new(array: &'a Array<T>, offset: usize) -> Self {
        let (batch, tokens, stride) = match *array.shape() {
            [batch, stride] => (batch, 1, stride),
            _ => array.extents().into(),
        };
        Self {
            values: array.values(),
            tokens,
            stride,
            offset,
            shared: batch == 1,
        }
    }

    /// Returns the channels of a token from the first one on.
    fn token(&self, b: usize, token: usize) -> &'a [T] {
        let b = if self.shared { 0 } else { b };
        &self.values[(b * self.tokens + token) * self.stride + self.offset..]
    }
}

/// Operands of attention.
struct Scores<'a, T> {
    spec: &'a Attention,
    q: Packed<'a, T>,
    k: Packed<'a, T>,
    v: Packed<'a, T>,
    bias: Option<&'a [T]>,
    key_mask: Option<&'a [T]>,
}

impl<'a, T: Real> Scores<'a, T> {
    fn new(spec: &'a Attention, operands: &[&'a Array<T>]) -> Self {
        let [q, k, v] = spec
            .places()
            .map(|(operand, offset)| Packed::new(operands[operand], offset));
        Self {
            spec,
            q,
            k,
            v,
            bias: spec.bias_operand().map(|index| operands[index].values()),
            key_mask: spec.key_mask_operand().map(|index| operands[index].values()),
        }
    }

    /// Returns the keys that a query sees.
    fn keys(&self, b: usize, query: usize, visible: impl Fn(usize, usize, usize) -> bool) -> Vec<usize> {
        let own = |key: usize| {
            self.key_mask
                .is_none_or(|mask| mask[b * self.k.tokens + key] != T::ZERO)
        };
        (self.spec.first_key..self.k.tokens)
            .filter(|&key| (!self.spec.causal || key <= query) && own(key) && visible(b, query, key))
            .collect()
    }

    /// Returns the scores of one head's query and `keys`.
    fn of(&self, b: usize, query: usize, head: usize, keys: &[usize]) -> Vec<T> {
        let first = head * self.spec.head_dim;
        let q = &self.q.token(b, query)[first..][..self.spec.head_dim];
        let score = |&key: &usize| {
            let place = (head * self.q.tokens + query) * self.k.tokens + key;
            let bias = self.bias.map_or(T::ZERO, |bias| bias[place]);
            T::from_f32(self.spec.scale) * dot(q, &self.k.token(b, key)[first..][..q.len()]) + bias
        };
        keys.iter().map(score).collect()
    }

    fn attend(&self, y: &mut Array<T>, visible: &(impl Fn(usize, usize, usize) -> bool + Sync)) {
        let queries = self.q.tokens;
        let head_dim = self.spec.head_dim;
        let rows = y.values_mut().par_chunks_mut(self.spec.heads * head_dim);
        rows.enumerate().for_each(|(row, y)| {
            let (b, query) = (row / queries, row % queries);
            let keys = self.keys(b, query, visible);
            for (head, y) in y.chunks_mut(head_dim).enumerate() {
                let mut weights = self.of(b, query, head, &keys);
                softmax(&mut weights);
                for (&key, &weight) in keys.iter().zip(&weights) {
                    let v = &self.v.token(b, key)[head * head_dim..][..head_dim];
                    for (y, &v) in y.iter_mut().zip(v) {
                        *y += weight * v;
                    }
                }
            }
        });
    }

    fn statistics(&self, y: &mut Array<T>, visible: &(impl Fn(usize, usize, usize) -> bool + Sync)) {
        let (queries, heads) = (self.q.tokens, self.spec.heads);
        let rows = y.values_mut().par_chunks_mut(3).enumerate();
        rows.for_each(|(row, y)| {
            let (b, head, query) = (row / queries / heads, row / queries % heads, row % queries);
            let mut p = self.of(b, query, head, &self.keys(b, query, visible));
            let row_max = p.iter().copied().fold(T::NEG_INFINITY, T::max);
            let sum: T = p.iter().map(|&score| (score - row_max).exp()).sum();
            softmax(&mut p);
            let entropy: T = p.iter().filter(|&&p| p > T::ZERO).map(|&p| -p * p.ln()).sum();
            let largest = p.iter().copied().fold(T::ZERO, T::max);
            y.copy_from_slice(&[row_max + sum.ln(), largest, entropy]);
        });
    }
}

impl Definition for Attention {
    const NAME: &'static str = "attention";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}×{}", self.heads, self.head_dim)?;
        if self.first_key > 0 {
            write!(f, " keys {}..", self.first_key)?;
        }
        f.write_str(if self.causal { " causal" } else { "" })?;
        f.write_str(match self.operands {
            AttentionOperands::Separate => "",
            AttentionOperands::PackedQkv => " packed-qkv",
            AttentionOperands::PackedKv => " packed-kv",
        })?;
        f.write_str(if self.bias { " +bias" } else { "" })?;
        f.write_str(if self.key_mask { " +key-mask" } else { "" })?;
        f.write_str(if self.statistics { " +statistics" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let attended = self.attended(operands)?;
        if self.causal {
            let keys = operands.get(self.operands.keys()).map_or(0, |keys| keys[1]);
            if self.first_key > 0 || self.key_mask || attended.get(1) != Some(&keys) || attended.len() != 3 {
                return Err(format!(
                    "is causal, which takes as many queries as its {keys} keys, and no key mask"
                )
                .into());
            }
        }
        let statistics = self.statistics.then(|| {
            let queries = if attended.len() == 3 { attended[1] } else { 1 };
            vec![attended[0], self.heads, queries, 3]
        });
        Ok(std::iter::once(attended).chain(statistics).collect())
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            0 => dtype,
            _ => DType::F32,
        }
    }

    /// Two GEMMs, and four operations per score for scale and softmax. A bias adds one per score. The statistics add a logarithm, a maximum
    /// and a sum per score.
    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let keys = self.keys(operands) as u64;
        let queries = count(&results[0]) / self.head_dim as u64;
        let scores = if self.causal {
            queries * (keys + 1) / 2
        } else {
            queries * keys
        };
        let statistics = if self.statistics { 3 } else { 0 };
        scores * (4 * self.head_dim as u64 + 4 + u64::from(self.bias) + statistics)
    }

    fn locality(&self, index: usize) -> Locality {
        match index {
            0 => Locality::Queries,
            _ => Locality::Images,
        }
    }

    /// A token of the result needs only the same token of the queries.
    fn tokenwise(&self) -> Option<Vec<usize>> {
        (self.operands != AttentionOperands::PackedQkv).then(|| vec![0])
    }

    fn division(&self, blocks: usize) -> Option<Division> {
        let operands = match self.operands {
            AttentionOperands::Separate => vec![(0, 1), (1, 1), (2, 1)],
            AttentionOperands::PackedQkv => vec![(0, 3)],
            AttentionOperands::PackedKv => vec![(0, 1), (1, 2)],
        };
        // A key mask is the same for all ranks, and statistics belong to all heads: neither can be divided.
        (blocks == 1 && !self.statistics).then(|| Division {
            operands,
            constants: self.bias_operand().into_iter().collect(),
            unit: Some(self.head_dim),
        })
    }

    fn of_rank(&self, ranks: usize) -> Self {
        Self {
            heads: self.heads / ranks,
            ..*self
        }
    }

    fn operand_share(&self, index: usize, _shape: &[usize]) -> OperandShare {
        if Some(index) == self.bias_operand() {
            OperandShare::Heads
        } else {
            OperandShare::Channels
        }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        self.compute_masked(operands, results, |_, _, _| true);
    }

    fn cases(list: &mut Cases<Self>) {
        cases::add(list);
    }

    fn tolerance(&self, index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let keys = operands[self.operands.keys()].shape()[1];
        if index == 1 {
            // The scores are not rounded to the dtype. An error of a score is an error of ln Σ e^s. For the entropy it is multiplied by up
            // to Σ p·|ln p + H| ≤ 2·H ≤ 2·ln(keys).
            return (2.0 + 2.0 * (keys as f64).ln()) * tolerance(DType::F32, keys + self.head_dim);
        }
        // The scores' error, which grows with head_dim, is an error of the exponential too. Adding a bias rounds the scores once more.
        (2.0 + f64::from(self.bias)) * tolerance(dtype, keys + self.head_dim)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        if gradients.get(1).is_some_and(Option::is_some) {
            return Err(OpError::derivative(
                "the statistics of attention have no derivative",
            ));
        }
        let gradient = only_gradient(gradients)?;
        let saved = if self.statistics { node.outputs } else { &[] };
        let operands = [node.inputs, saved, &[gradient]].concat();
        let results = builder.push_node(AttentionBackward(*self), operands)?;
        let mut of_operands: Gradients = results.into_iter().map(Some).collect();
        of_operands.resize(node.inputs.len(), None);
        Ok(of_operands)
    }
}
