//! Attention, forward and backward. The probabilities are kept: they are what attention maps show.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, s};
use rayon::prelude::*;

use super::backward::Rules;
use super::program::{Real, Run, Saved, gemm, strided};
use hipvit::graph::Node;
use hipvit::ops::{Attention, AttentionOperands};

/// Where Q, K or V lies: operand, first channel, elements per token, tokens, images.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) operand: usize,
    offset: usize,
    stride: usize,
    pub(crate) tokens: usize,
    batch: usize,
}

impl Part {
    /// Q, K and V of an attention node.
    pub(crate) fn of<T: Real>(run: &Run<'_, T>, node: &Node, spec: &Attention) -> [Self; 3] {
        let c = spec.heads * spec.head_dim;
        match spec.operands {
            AttentionOperands::Separate => [(0, 0), (1, 0), (2, 0)],
            AttentionOperands::PackedQkv => [(0, 0), (0, c), (0, 2 * c)],
            AttentionOperands::PackedKv => [(0, 0), (1, 0), (1, c)],
        }
        .map(|(operand, offset)| {
            let (batch, tokens, stride) = match *run.operand_shape(node, operand) {
                [batch, stride] => (batch, 1, stride),
                [batch, tokens, stride] => (batch, tokens, stride),
                _ => (1, 0, 1),
            };
            Self {
                operand,
                offset,
                stride,
                tokens,
                batch,
            }
        })
    }

    /// Where the first element of an image's head is; one image may serve all.
    fn first(&self, b: usize, channel: usize) -> usize {
        let b = if self.batch == 1 { 0 } else { b };
        b * self.tokens * self.stride + self.offset + channel
    }

    /// A head's channels of one token.
    pub(crate) fn token(&self, b: usize, token: usize, channels: Range<usize>) -> Range<usize> {
        let first = self.first(b, channels.start) + token * self.stride;
        first..first + channels.len()
    }

    /// A head, `[tokens, head_dim]`.
    fn head<'v, T>(&self, values: &'v [T], b: usize, head: usize, d: usize) -> ArrayView2<'v, T> {
        let first = self.first(b, head * d);
        let last = first + (self.tokens - 1) * self.stride + d;
        strided(&values[first..last], self.tokens, d, self.stride)
    }

    /// Adds to a head of `values`.
    fn add<T: Real>(&self, values: &mut [T], b: usize, head: usize, addend: &Array2<T>) {
        let d = addend.ncols();
        for (token, row) in addend.rows().into_iter().enumerate() {
            let range = self.token(b, token, head * d..(head + 1) * d);
            values[range].iter_mut().zip(row).for_each(|(v, &a)| *v += a);
        }
    }
}

fn times<T: Real>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>) -> Array2<T> {
    let mut c = Array2::zeros((a.nrows(), b.ncols()));
    gemm(a, b, c.view_mut());
    c
}

pub(super) fn forward<T: Real>(run: &Run<'_, T>, node: &Node, spec: &Attention) -> (Vec<T>, Saved<T>) {
    let parts = Part::of(run, node, spec);
    let [q, k, v] = parts;
    let d = spec.head_dim;
    let c = spec.heads * d;
    let len: usize = run.shape(node.output()).iter().product();
    let batch = run.shape(node.output())[0];
    let scale = T::of(spec.scale.into());
    let bias = spec.bias.then(|| run.operand(node, spec.operands.count()));
    let heads: Vec<(Array2<T>, Array2<T>)> = (0..batch * spec.heads)
        .into_par_iter()
        .map(|index| {
            let (b, head) = (index / spec.heads, index % spec.heads);
            let of = |part: &Part| part.head(run.operand(node, part.operand), b, head, d);
            let mut p = times(of(&q), of(&k).t());
            for (query, mut row) in p.rows_mut().into_iter().enumerate() {
                row.mapv_inplace(|score| score * scale);
                if let Some(bias) = bias {
                    let first = (head * q.tokens + query) * k.tokens;
                    let bias = &bias[first..first + k.tokens];
                    row.iter_mut().zip(bias).for_each(|(score, &bias)| *score += bias);
                }
                // Left out as if masked: their probability is 0, and nothing flows back through them.
                row.slice_mut(s![..spec.first_key]).fill(T::neg_infinity());
                let row_max = row.fold(T::neg_infinity(), |max, &score| max.max(score));
                row.mapv_inplace(|score| (score - row_max).exp());
                let row_sum = row.sum();
                row.mapv_inplace(|score| score / row_sum);
            }
            let o = times(p.view(), of(&v));
            (p, o)
        })
        .collect();
    let mut y = vec![T::zero(); len];
    let mut probabilities = Vec::with_capacity(batch * spec.heads * q.tokens * k.tokens);
    let result = Part {
        operand: 0,
        offset: 0,
        stride: c,
        tokens: q.tokens,
        batch,
    };
    for (index, (p, o)) in heads.into_iter().enumerate() {
        result.add(&mut y, index / spec.heads, index % spec.heads, &o);
        probabilities.extend(p);
    }
    (y, Saved::Probabilities(probabilities))
}

/// Adds the gradients of Q, K and V to those of the operands: `gradients[i]` is operand i's.
pub(super) fn backward<T: Real>(
    run: &Run<'_, T>,
    node: &Node,
    spec: &Attention,
    probabilities: &[T],
    rules: Rules,
    dy: &[T],
    gradients: &mut [Vec<T>],
) {
    let parts = Part::of(run, node, spec);
    let [q, k, v] = parts;
    let d = spec.head_dim;
    let batch = run.shape(node.output())[0];
    let scale = T::of(spec.scale.into());
    let result = Part {
        operand: 0,
        offset: 0,
        stride: spec.heads * d,
        tokens: q.tokens,
        batch,
    };
    let half = T::of(0.5);
    let size = q.tokens * k.tokens;
    let heads: Vec<[Option<Array2<T>>; 3]> = (0..batch * spec.heads)
        .into_par_iter()
        .map(|index| {
            let (b, head) = (index / spec.heads, index % spec.heads);
            let of = |part: &Part| part.head(run.operand(node, part.operand), b, head, d);
            let p = strided(
                &probabilities[index * size..(index + 1) * size],
                q.tokens,
                k.tokens,
                k.tokens,
            );
            let d_o = result.head(dy, b, head, d);
            let mut d_v = times(p.t(), d_o);
            if rules == Rules::Conservative {
                return [None, None, Some(d_v)];
            }
            // softmax' · dP, where dP = dO · Vᵀ.
            let mut d_s = times(d_o, of(&v).t());
            for (mut row, p) in d_s.rows_mut().into_iter().zip(p.rows()) {
                let dot = row.iter().zip(p).fold(T::zero(), |sum, (&d, &p)| sum + d * p);
                row.zip_mut_with(&p, |d, &p| *d = p * (*d - dot) * scale);
            }
            let mut d_q = times(d_s.view(), of(&k));
            let mut d_k = times(d_s.t(), of(&q));
            if rules == Rules::AttnLrp {
                // Half of the relevance of a GEMM of two activations goes to each: P·V here, Q·Kᵀ before it.
                d_v.mapv_inplace(|g| g * half);
                d_q.mapv_inplace(|g| g * half * half);
                d_k.mapv_inplace(|g| g * half * half);
            }
            [Some(d_q), Some(d_k), Some(d_v)]
        })
        .collect();
    for (index, of_head) in heads.into_iter().enumerate() {
        for (part, gradient) in parts.iter().zip(of_head) {
            if let Some(gradient) = gradient {
                let (b, head) = (index / spec.heads, index % spec.heads);
                part.add(&mut gradients[part.operand], b, head, &gradient);
            }
        }
    }
}
