//! Attributes of linear layers.

use crate::op::{Activation, Rounding};

/// `(x [..,K], weight [N,K], bias [N]?, residual [..,N]?) → activation(x · weightᵀ + bias) + residual`, optionally with rounded operands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Linear {
    /// True if the operand `bias` exists.
    pub bias: bool,
    /// Activation applied after the bias.
    pub activation: Option<Activation>,
    /// True if the operand `residual`, added last, exists.
    pub residual: bool,
    /// Rounding of x before the multiplication. The weight then has the matching dtype: E4M3 with a scale per row for [`Rounding::Float8`],
    /// int8 with a scale per row for [`Rounding::Int8`], bf16 for [`Rounding::Bf16`].
    pub rounding: Option<Rounding>,
}
