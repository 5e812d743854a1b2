//! Errors of patterns.

use super::types::{MAX_TOKENS, Type};

/// Reason why a pattern is invalid, or does not accept its tensors and scalars.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// An operand has another type than the operator takes.
    #[error("{place}: is {found}, expected {expected}")]
    Type {
        /// Path to the expression, such as `score: add[1]`.
        place: String,
        /// Type of the expression.
        found: Type,
        /// What the operator takes.
        expected: &'static str,
    },
    /// An operator has another number of operands.
    #[error("{place}: takes {expected} operands, got {found}")]
    Count {
        /// Path to the expression.
        place: String,
        /// Number of operands that the operator takes.
        expected: usize,
        /// Number of operands that it has.
        found: usize,
    },
    /// There are more queries or keys than patterns index.
    #[error("attention has {0} queries or keys, and a pattern indexes at most {most}. Use fewer tokens", most = MAX_TOKENS)]
    Tokens(usize),
    /// The mask reads the score.
    #[error("{place}: a mask cannot depend on the score. Use the key, the query or a tensor")]
    Score {
        /// Path to the expression.
        place: String,
    },
    /// A tensor or scalar is used with two types or two numbers of indices.
    #[error("{place}: `{name}` is {found} here and {before} before. Use two names")]
    Conflict {
        /// Path to the second use.
        place: String,
        /// Name of the tensor or scalar.
        name: String,
        /// How it is used here.
        found: String,
        /// How it was used before.
        before: String,
    },
    /// A table has no elements, or a tensor no index.
    #[error("{place}: {reason}")]
    Invalid {
        /// Path to the expression.
        place: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A captured tensor or scalar is missing or has the wrong shape.
    #[error("`{name}`: {reason}")]
    Captured {
        /// Name of the tensor or scalar.
        name: String,
        /// What is wrong.
        reason: String,
    },
}
