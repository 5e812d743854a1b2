//! Logits of images and texts in the reference.

use super::attributes::ContrastiveKind;
use crate::array::{Array, Real};
use crate::softmax::log_sum_exp;

/// The logits `scale · similarity + bias`.
pub(in crate::op) struct Logits<'a, T> {
    /// Number of images, and of texts.
    pub(in crate::op) pairs: usize,
    /// Factor of the similarities.
    pub(in crate::op) scale: T,
    bias: T,
    similarity: &'a [T],
}

impl<'a, T: Real> Logits<'a, T> {
    pub(in crate::op) fn new(kind: ContrastiveKind, operands: &[&'a Array<T>]) -> Self {
        let [pairs, _] = operands[0].extents();
        Self {
            pairs,
            scale: operands[1].values()[0].exp(),
            bias: if kind.has_bias() {
                operands[2].values()[0]
            } else {
                T::ZERO
            },
            similarity: operands[0].values(),
        }
    }

    /// Returns the logit of an image and a text.
    pub(in crate::op) fn at(&self, image: usize, text: usize) -> T {
        self.scaled(image, text) + self.bias
    }

    /// Returns the logit without the bias: its derivative with respect to the logarithm of the scale.
    pub(in crate::op) fn scaled(&self, image: usize, text: usize) -> T {
        self.scale * self.similarity[image * self.pairs + text]
    }

    /// Returns `ln Σ e^logit` of each row and of each column.
    pub(in crate::op) fn log_sums(&self) -> (Vec<T>, Vec<T>) {
        let of = |index: usize| {
            let row = (0..self.pairs).map(|j| self.at(index, j));
            let column = (0..self.pairs).map(|j| self.at(j, index));
            (log_sum_exp(row), log_sum_exp(column))
        };
        (0..self.pairs).map(of).unzip()
    }
}
