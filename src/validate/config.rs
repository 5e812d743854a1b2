//! The sizes that ops are validated at.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::{Error, Result};

/// A set of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Config {
    /// 1×2×32×16 (batch × heads × tokens × channels of a head).
    Micro,
    /// 1×4×64×32.
    Small,
    /// 2×8×512×64.
    Realistic,
    /// 4×16×1024×64.
    Large,
    /// 8×32×2048×128.
    Xlarge,
    /// 1, 63, 64, 65, 197 and 257 tokens with channels that fit no vector, and every form of every op.
    Awkward,
}

/// What a [`Config`] but the awkward one says; all shapes follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Images.
    pub batch: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Tokens of an image.
    pub tokens: usize,
    /// Channels of a head.
    pub head_dim: usize,
}

impl Config {
    /// All, the smaller ones first.
    pub const ALL: [Self; 6] = [
        Self::Micro,
        Self::Small,
        Self::Realistic,
        Self::Large,
        Self::Xlarge,
        Self::Awkward,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Micro => "micro",
            Self::Small => "small",
            Self::Realistic => "realistic",
            Self::Large => "large",
            Self::Xlarge => "xlarge",
            Self::Awkward => "awkward",
        }
    }

    /// The sizes; the awkward ones are many.
    pub fn sizes(self) -> Option<Sizes> {
        let [batch, heads, tokens, head_dim] = match self {
            Self::Micro => [1, 2, 32, 16],
            Self::Small => [1, 4, 64, 32],
            Self::Realistic => [2, 8, 512, 64],
            Self::Large => [4, 16, 1024, 64],
            Self::Xlarge => [8, 32, 2048, 128],
            Self::Awkward => return None,
        };
        Some(Sizes {
            batch,
            heads,
            tokens,
            head_dim,
        })
    }
}

impl Sizes {
    /// Channels of a token.
    pub fn channels(self) -> usize {
        self.heads * self.head_dim
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Config {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|config| config.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::argument("config", format!("`{text}` is not one of {names}"))
        })
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
