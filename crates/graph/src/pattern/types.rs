//! Types of expressions, and the range of indices.

use std::fmt;

/// Most queries or keys of attention with a pattern. Sums of up to four indices are exact in an f32.
pub const MAX_TOKENS: usize = 1 << 22;

/// Type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// Truth value.
    Bool,
    /// 32-bit signed integer.
    Int,
    /// Floating-point number: f32 on devices.
    Float,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "a truth value",
            Self::Int => "an integer",
            Self::Float => "a float",
        })
    }
}
