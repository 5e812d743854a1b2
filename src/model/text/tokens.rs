//! Tokens of a text.

/// Tokens of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Token ids, including the tokens before and after the text.
    pub ids: Vec<u32>,
    /// True if the text was longer than the context.
    pub truncated: bool,
}
