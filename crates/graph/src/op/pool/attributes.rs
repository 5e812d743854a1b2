//! Attributes of pooling.

/// Selects or combines the tokens that represent the image: `[B,N,D] → [B,D]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// The token with this index.
    Token(usize),
    /// The mean of all tokens but the first `skip`.
    Mean {
        /// Number of leading tokens to skip.
        skip: usize,
    },
    /// Maximum of each channel over all tokens but the first `skip`.
    Max {
        /// Number of leading tokens to skip.
        skip: usize,
    },
}

impl Pool {
    /// Returns the range of tokens that are read, out of `tokens`.
    pub fn tokens(self, tokens: usize) -> std::ops::Range<usize> {
        match self {
            Self::Token(index) => index..index + 1,
            Self::Mean { skip } | Self::Max { skip } => skip..tokens,
        }
    }
}
