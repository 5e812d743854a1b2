//! Attention as matrices per head, with its probabilities. Its derivative and attention maps need them.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, s};
use rayon::prelude::*;

use super::Attention;
use crate::array::{Array, Real};
use crate::matmul::{product, strided};
use crate::pattern::Extents;

/// Location of queries, keys or values in their operand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) operand: usize,
    offset: usize,
    /// Stride of tokens in elements.
    stride: usize,
    pub(super) tokens: usize,
    /// Number of images, or 1 if the batch shares one image's tokens.
    images: usize,
}

impl Place {
    /// Returns the location of the channels from `offset` on in operand `operand` of this shape.
    pub(super) fn new((operand, offset): (usize, usize), shape: &[usize]) -> Self {
        let (images, tokens, stride) = match *shape {
            [images, stride] => (images, 1, stride),
            [images, tokens, stride] => (images, tokens, stride),
            _ => (1, 0, 1),
        };
        Self {
            operand,
            offset,
            stride,
            tokens,
            images,
        }
    }

    fn first(&self, image: usize, channel: usize) -> usize {
        let image = if self.images == 1 { 0 } else { image };
        image * self.tokens * self.stride + self.offset + channel
    }

    /// Returns a head with `d` channels, `[tokens, d]`.
    pub(super) fn head<'v, T>(&self, values: &'v [T], [image, head, d]: [usize; 3]) -> ArrayView2<'v, T> {
        let first = self.first(image, head * d);
        let end = first + self.tokens.saturating_sub(1) * self.stride + d;
        strided(&values[first..end], [self.tokens, d], self.stride)
    }

    /// Adds `addend` to a head of `values`.
    pub(super) fn add<T: Real>(&self, values: &mut [T], [image, head]: [usize; 2], addend: &Array2<T>) {
        let d = addend.ncols();
        for (token, row) in addend.rows().into_iter().enumerate() {
            let first = self.first(image, head * d) + token * self.stride;
            let sum = values[first..first + d].iter_mut();
            sum.zip(row).for_each(|(sum, &addend)| *sum += addend);
        }
    }
}

/// Operands of attention.
pub(super) struct Heads<'a, T> {
    spec: &'a Attention,
    pub(super) operands: &'a [&'a Array<T>],
    pub(super) q: Place,
    pub(super) k: Place,
    pub(super) v: Place,
}

impl<'a, T: Real> Heads<'a, T> {
    pub(super) fn new(spec: &'a Attention, operands: &'a [&'a Array<T>]) -> Self {
        let [q, k, v] = spec
            .places()
            .map(|place| Place::new(place, operands[place.0].shape()));
        Self {
            spec,
            operands,
            q,
            k,
            v,
        }
    }

    /// Returns the number of images.
    pub(super) fn images(&self) -> usize {
        self.k.images
    }

    /// Returns the extents of the scores.
    pub(super) fn extents(&self) -> Extents {
        Extents {
            heads: self.spec.heads,
            queries: self.q.tokens,
            keys: self.k.tokens,
        }
    }

    /// Returns a head of queries, keys or values.
    pub(super) fn of(&self, place: &Place, [image, head]: [usize; 2]) -> ArrayView2<'a, T> {
        place.head(
            self.operands[place.operand].values(),
            [image, head, self.spec.head_dim],
        )
    }

    /// Returns a head's scores, `[queries, keys]`, with −∞ for keys that a query does not see.
    pub(super) fn scores(&self, [image, head]: [usize; 2]) -> Array2<T> {
        let (q, k) = (self.of(&self.q, [image, head]), self.of(&self.k, [image, head]));
        let mut scores = product(q, k.t());
        let scale = T::from_f32(self.spec.scale);
        scores.mapv_inplace(|score| scale * score);
        let [queries, keys] = [self.q.tokens, self.k.tokens];
        if let Some(index) = self.spec.bias_operand() {
            let bias = &self.operands[index].values()[head * queries * keys..][..queries * keys];
            scores.zip_mut_with(&strided(bias, [queries, keys], keys), |score, &bias| {
                *score += bias;
            });
        }
        scores
            .slice_mut(s![.., ..self.spec.first_key])
            .fill(T::NEG_INFINITY);
        for (query, mut row) in scores
            .rows_mut()
            .into_iter()
            .enumerate()
            .filter(|_| self.spec.causal)
        {
            row.slice_mut(s![query + 1..]).fill(T::NEG_INFINITY);
        }
        if let Some(index) = self.spec.key_mask_operand() {
            let mask = &self.operands[index].values()[image * keys..][..keys];
            for (key, _) in mask.iter().enumerate().filter(|(_, seen)| **seen == T::ZERO) {
                scores.column_mut(key).fill(T::NEG_INFINITY);
            }
        }
        scores
    }
}

/// Computes the softmax of each row. A row without a finite score becomes zeros.
pub(super) fn softmax_rows<T: Real>(mut scores: ArrayViewMut2<'_, T>) {
    for mut row in scores.rows_mut() {
        let row_max = row.fold(T::NEG_INFINITY, |largest, &score| largest.max(score));
        if row_max == T::NEG_INFINITY {
            row.fill(T::ZERO);
            continue;
        }
        row.mapv_inplace(|score| (score - row_max).exp());
        let sum = row.sum();
        row.mapv_inplace(|weight| weight / sum);
    }
}

impl Attention {
    /// Computes the attention probabilities `[B,heads,Nq,N]`. Rows sum to 1, or to 0 for a query without visible keys. [`Attention`] must
    /// accept the operands.
    pub fn probabilities<T: Real>(&self, operands: &[&Array<T>]) -> Array<T> {
        let heads = Heads::new(self, operands);
        let (queries, keys) = (heads.q.tokens, heads.k.tokens);
        let mut result = Array::zeros(vec![heads.images(), self.heads, queries, keys]);
        let of_heads = result.values_mut().par_chunks_mut((queries * keys).max(1));
        of_heads.enumerate().for_each(|(index, probabilities)| {
            let mut scores = heads.scores([index / self.heads, index % self.heads]);
            softmax_rows(scores.view_mut());
            probabilities
                .iter_mut()
                .zip(scores)
                .for_each(|(to, from)| *to = from);
        });
        result
    }
}
