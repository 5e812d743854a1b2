//! Attributes of attention with a pattern.

use std::sync::Arc;

use crate::op::attention::{Attention, AttentionOperands};
use crate::pattern::{Number, Pattern, PatternError, Program};

/// Multi-head attention whose score and mask are a [pattern](crate::pattern), `softmax(f(scale · Q·Kᵀ)) · V`.
///
/// The operands are those of [`AttentionOperands`], then the captured tensors, in the order of [`Program::tensors`]. A query without
/// visible keys gets zeros. With [`log_sum_exp`](Self::log_sum_exp), the second result is `f32 [B,heads,Nq]`: `ln Σ e^s` over the
/// visible keys of a query, or −∞.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternAttention {
    /// Number of heads.
    pub heads: usize,
    /// Channels per head.
    pub head_dim: usize,
    /// Factor of `Q·Kᵀ`, usually `1/√head_dim`.
    pub scale: f32,
    /// Layout of the operands.
    pub operands: AttentionOperands,
    /// Score and mask.
    pub program: Arc<Program>,
    /// Values of the program's scalars.
    pub scalars: Vec<Number>,
    /// True if `ln Σ e^s` is a second result.
    pub log_sum_exp: bool,
}

impl PatternAttention {
    /// Creates attention with `pattern`, which has no scalars.
    ///
    /// # Errors
    ///
    /// [`PatternError`] if the pattern is invalid.
    pub fn new(
        (heads, head_dim): (usize, usize),
        scale: f32,
        operands: AttentionOperands,
        pattern: &Pattern,
    ) -> Result<Self, PatternError> {
        Ok(Self {
            heads,
            head_dim,
            scale,
            operands,
            program: Arc::new(pattern.compile()?),
            scalars: Vec::new(),
            log_sum_exp: false,
        })
    }

    /// Returns attention without the pattern.
    pub fn plain(&self) -> Attention {
        Attention {
            heads: self.heads,
            head_dim: self.head_dim,
            scale: self.scale,
            operands: self.operands,
            ..Attention::default()
        }
    }

    /// Returns the operands that are captured tensors.
    pub fn captured<'o, T>(&self, operands: &'o [T]) -> &'o [T] {
        operands.get(self.operands.count()..).unwrap_or(&[])
    }
}
