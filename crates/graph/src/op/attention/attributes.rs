//! Attributes of attention, and where its operands are.

/// Multi-head scaled dot-product attention, `softmax(scale · Q·Kᵀ + bias) · V`. <https://arxiv.org/abs/1706.03762>
///
/// The operands are those of [`AttentionOperands`], then the bias, then the key mask. With [`statistics`](Self::statistics), the second
/// result is `f32 [B,heads,Nq,3]` for any dtype of the activations. Its channels are `ln Σ e^s` over a query's scores `s`, the largest
/// probability, and the entropy `−Σ p·ln p` in nats. A query whose keys are all masked gets −∞, 0 and 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attention {
    /// Number of heads.
    pub heads: usize,
    /// Channels per head.
    pub head_dim: usize,
    /// Factor of `Q·Kᵀ`, usually `1/√head_dim`.
    pub scale: f32,
    /// Layout of the operands.
    pub operands: AttentionOperands,
    /// Index of the first attended key. Earlier keys and their values are ignored.
    pub first_key: usize,
    /// True if the last operand is a key mask `[B,N]` from [`GridMask`](crate::op::GridMask). Keys with 0 are ignored with their values. An
    /// image without keys gets zeros.
    pub key_mask: bool,
    /// True if the last operand before the key mask is `bias [heads,Nq,N]`, which is added to the scores of each image.
    pub bias: bool,
    /// True if a query attends only to the keys up to its own position. Requires as many queries as keys.
    pub causal: bool,
    /// True if the statistics of the softmax are a second result.
    pub statistics: bool,
}

/// Operands for Q, K and V of [`Attention`]. With `C = heads · head_dim`, the result is `[B,Nq,C]`. It is `[B,C]` if q is `[B,C]`, one
/// query per image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttentionOperands {
    /// `(q [B or 1,Nq,C], k [B,N,C], v [B,N,C])`.
    Separate,
    /// `(qkv [B,N,3·C])`. A token has all its queries, then its keys, then its values.
    #[default]
    PackedQkv,
    /// `(q [B or 1,Nq,C], kv [B,N,2·C])`.
    PackedKv,
}

impl AttentionOperands {
    /// Returns the operand that contains the keys.
    pub fn keys(self) -> usize {
        match self {
            Self::PackedQkv => 0,
            Self::Separate | Self::PackedKv => 1,
        }
    }

    /// Returns the number of operands before the bias.
    pub fn count(self) -> usize {
        match self {
            Self::PackedQkv => 1,
            Self::PackedKv => 2,
            Self::Separate => 3,
        }
    }
}

impl Attention {
    /// Returns the operands that contain queries, keys and values, and the channel at which each starts.
    pub fn places(&self) -> [(usize, usize); 3] {
        let channels = self.heads * self.head_dim;
        match self.operands {
            AttentionOperands::Separate => [(0, 0), (1, 0), (2, 0)],
            AttentionOperands::PackedQkv => [(0, 0), (0, channels), (0, 2 * channels)],
            AttentionOperands::PackedKv => [(0, 0), (1, 0), (1, channels)],
        }
    }

    /// Returns the index of the bias operand. `None` without a bias.
    pub fn bias_operand(&self) -> Option<usize> {
        self.bias.then_some(self.operands.count())
    }

    /// Returns the index of the key mask operand. `None` without a key mask.
    pub fn key_mask_operand(&self) -> Option<usize> {
        self.key_mask
            .then_some(self.operands.count() + usize::from(self.bias))
    }

    /// Returns the number of keys that a query attends to.
    pub fn keys(&self, operands: &[&[usize]]) -> usize {
        let keys = operands.get(self.operands.keys()).and_then(|shape| shape.get(1));
        keys.map_or(0, |keys| keys.saturating_sub(self.first_key))
    }
}
