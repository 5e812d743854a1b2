//! Operands of a head of attention: its tokens, and the bias and mask of its scores.

use hipvit_graph::op::{Attention, OpError};
use rten_tensor::Matrix;

use crate::{Operands, gemm};

/// Queries, keys or values in an operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens<'a> {
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
    pub(crate) fn of(operands: &Operands<'a>, index: usize, offset: usize) -> Result<Self, OpError> {
        Self::of_values(operands.batched_shape(index)?, operands.values(index)?, offset)
    }

    /// Returns the tokens in `values` of this shape, from channel `offset` on.
    pub(crate) fn of_values(shape: &[usize], values: &'a [f32], offset: usize) -> Result<Self, OpError> {
        let (images, count, stride) = match *shape {
            [b, n, channels] => (b, n, channels),
            [b, channels] => (b, 1, channels),
            _ => return Err(format!("an operand has shape {shape:?}, expected tokens").into()),
        };
        let data = values.get(offset..);
        Ok(Self {
            data: data.ok_or_else(|| OpError::memory("an operand is too short"))?,
            count,
            stride,
            shared: images == 1,
        })
    }

    /// Returns the tokens of image `b`, from channel `channel` on.
    pub(crate) fn of_image(self, b: usize, channel: usize) -> Result<Self, OpError> {
        let image = if self.shared { 0 } else { b };
        let start = image * self.count * self.stride + channel;
        let data = self
            .data
            .get(start..)
            .ok_or_else(|| OpError::memory("an operand is too short"))?;
        Ok(Self { data, ..self })
    }

    /// Returns the tokens of an image without the first `count`.
    pub(crate) fn after(self, count: usize) -> Result<Self, OpError> {
        let data = self.data.get(count * self.stride..);
        Ok(Self {
            data: data.ok_or_else(|| OpError::memory("an operand is too short"))?,
            count: self.count.saturating_sub(count),
            ..self
        })
    }

    /// Returns the elements from token `first` to the last of `rows` tokens, of which only the first `columns` channels are included.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn rows(self, first: usize, rows: usize, columns: usize) -> Result<&'a [f32], OpError> {
        let start = first * self.stride;
        let end = start + rows.saturating_sub(1) * self.stride + columns;
        self.data
            .get(start..end)
            .ok_or_else(|| OpError::memory("an operand is too short"))
    }

    /// Returns `columns` channels of `rows` tokens from token `first` on, as a matrix.
    pub(crate) fn matrix(self, first: usize, rows: usize, columns: usize) -> Result<Matrix<'a>, OpError> {
        let data = self
            .data
            .get(first * self.stride..)
            .ok_or_else(|| OpError::memory("an operand is too short"))?;
        gemm::strided(data, rows, columns, self.stride)
    }
}

/// Number of scores that a thread computes at once. For a few hundred tokens they fit the L2 cache with prepacked keys and values; for many
/// tokens this bounds them.
pub(crate) const SCORES: usize = 48 * 1024;

/// Bias and key mask of a head's scores.
#[derive(Clone, Copy)]
pub(crate) struct Extras<'a> {
    pub(crate) bias: Option<Bias<'a>>,
    pub(crate) mask: Option<&'a [f32]>,
}

impl Extras<'_> {
    /// Adds to rows of `keys` scores, of the queries from `first` on. Leaves scores beyond the keys of bias and mask unchanged.
    pub(crate) fn add(
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
pub(crate) fn mask_of_image(
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

/// Bias of a head's scores, `[queries, keys]`.
#[derive(Clone, Copy)]
pub(crate) struct Bias<'a> {
    values: &'a [f32],
    keys: usize,
}

impl<'a> Bias<'a> {
    pub(super) fn of_head(
        bias: &'a [f32],
        head: usize,
        [queries, keys]: [usize; 2],
    ) -> Result<Self, OpError> {
        let size = queries * keys;
        let values = bias.get(head * size..(head + 1) * size);
        Ok(Self {
            values: values.ok_or_else(|| OpError::memory("its bias is too short"))?,
            keys,
        })
    }

    /// Adds to rows of `keys` scores, of the queries from `query` on and the keys from `first_key` on.
    pub(super) fn add(
        self,
        query: usize,
        first_key: usize,
        keys: usize,
        scores: &mut [f32],
    ) -> Result<(), OpError> {
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
