//! Attributes of the derivative of multi-head attention.

use crate::op::Attention;

/// Derivative of an [`Attention`]: `(its operands …, (o, statistics)?, dy) → the gradient of each operand but the key mask`.
///
/// With [`Attention::statistics`], both results of the forward pass are operands, so that the softmax is not computed again:
/// `P = e^(s − ln Σ e^s)` and `dS = P · (dP − Σ o · dy)` with `dP = dy · Vᵀ`. Otherwise they are computed from the scores.
/// <https://arxiv.org/abs/2205.14135>
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionBackward(pub Attention);

impl AttentionBackward {
    /// Returns the number of operands of the forward pass.
    pub fn forward_operands(&self) -> usize {
        self.gradients() + usize::from(self.0.key_mask)
    }

    /// Returns the number of results.
    pub(super) fn gradients(&self) -> usize {
        self.0.operands.count() + usize::from(self.0.bias)
    }

    /// Returns the index of the forward pass's output, if it is an operand. Its statistics follow it.
    pub fn saved_operand(&self) -> Option<usize> {
        self.0.statistics.then(|| self.forward_operands())
    }
}
