//! Errors of operands that an op rejects.

use super::Shape;

/// Reason why an op rejects its operands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The op takes another number of operands.
    #[error("takes {expected} operands, got {found}")]
    Count {
        /// Number of operands that the op takes.
        expected: usize,
        /// Number of operands that the node has.
        found: usize,
    },
    /// An operand is missing.
    #[error("its operand `{0}` is missing")]
    Missing(&'static str),
    /// There are operands after the last one of the op.
    #[error("has {0} operands too many")]
    Surplus(usize),
    /// The shape of an operand does not fit the other operands and the attributes.
    #[error("`{operand}` has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Name of the operand.
        operand: &'static str,
        /// Shape of the operand.
        found: Shape,
        /// Shape that the op takes.
        expected: Shape,
    },
    /// An operand does not have the expected layout.
    #[error("{operand} has shape {found:?}, expected {expected}")]
    Layout {
        /// Name of the operand.
        operand: &'static str,
        /// Shape of the operand.
        found: Shape,
        /// Layout that the op takes.
        expected: String,
    },
    /// The memory of an operand or a result is not what the plan or the extents say.
    #[error("{0}")]
    Memory(String),
    /// An op that another crate defines does not accept its operands.
    #[error("{op}: {source}")]
    Custom {
        /// Name of the op.
        op: &'static str,
        /// Cause.
        source: Box<OpError>,
    },
    /// The op has no derivative, or its derivative is not valid.
    #[error("{0}")]
    Derivative(String),
    /// The attributes contradict each other or the operands.
    #[error("{0}")]
    Attributes(String),
}

impl OpError {
    /// Returns an error of memory that is not what the plan or the extents say.
    pub fn memory(reason: impl std::fmt::Display) -> Self {
        Self::Memory(reason.to_string())
    }

    /// Returns an error of the op's derivative.
    pub fn derivative(reason: impl std::fmt::Display) -> Self {
        Self::Derivative(reason.to_string())
    }

    /// Returns an error of an operand that does not have the layout `expected`.
    pub fn layout(operand: &'static str, found: &[usize], expected: impl Into<String>) -> Self {
        Self::Layout {
            operand,
            found: found.to_vec(),
            expected: expected.into(),
        }
    }
}

impl From<String> for OpError {
    fn from(reason: String) -> Self {
        Self::Attributes(reason)
    }
}

impl From<&str> for OpError {
    fn from(reason: &str) -> Self {
        Self::Attributes(reason.into())
    }
}

impl From<OpError> for String {
    fn from(error: OpError) -> Self {
        error.to_string()
    }
}
