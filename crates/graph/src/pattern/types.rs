//! Types of expressions.

use std::fmt;

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
