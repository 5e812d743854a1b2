//! Sizes that ops are validated at.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use hipvit::error::{Error, Result};
pub use hipvit::graph::cases::Sizes;

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
    /// 1, 63, 64, 65, 197 and 257 tokens with channels that are no multiple of a vector, and every form of every op.
    Awkward,
    /// Attention with heads of 64, 80, 96, 128 and 132 channels.
    Heads,
    /// Sizes of a model, written `B×H×N×D` on the command line with an `x` for each `×`.
    Custom(Sizes),
}

impl Config {
    /// All named sizes, the smaller ones first.
    pub const ALL: [Self; 7] = [
        Self::Micro,
        Self::Small,
        Self::Realistic,
        Self::Large,
        Self::Xlarge,
        Self::Awkward,
        Self::Heads,
    ];

    /// Returns the name on the command line. Custom sizes are written as numbers instead.
    pub fn name(self) -> &'static str {
        match self {
            Self::Micro => "micro",
            Self::Small => "small",
            Self::Realistic => "realistic",
            Self::Large => "large",
            Self::Xlarge => "xlarge",
            Self::Awkward => "awkward",
            Self::Heads => "heads",
            Self::Custom(_) => "custom",
        }
    }

    /// Returns the expected maximum time of attention at this size on any device in seconds. It is 0.1 s for
    /// the smallest and 300 s for the largest size, and interpolated by a power of the bytes between them.
    pub fn limit_seconds(self) -> Option<f64> {
        match self {
            Self::Micro => Some(0.1),
            Self::Small => Some(0.5),
            Self::Realistic => Some(10.0),
            Self::Large => Some(40.0),
            Self::Xlarge => Some(300.0),
            Self::Awkward | Self::Heads | Self::Custom(_) => None,
        }
    }

    /// Returns the sizes of the model. `None` if there are several.
    pub fn sizes(self) -> Option<Sizes> {
        let [batch, heads, tokens, head_dim] = match self {
            Self::Micro => [1, 2, 32, 16],
            Self::Small => [1, 4, 64, 32],
            Self::Realistic => [2, 8, 512, 64],
            Self::Large => [4, 16, 1024, 64],
            Self::Xlarge => [8, 32, 2048, 128],
            Self::Awkward | Self::Heads => return None,
            Self::Custom(sizes) => return Some(sizes),
        };
        Some(Sizes {
            batch,
            heads,
            tokens,
            head_dim,
        })
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Custom(sizes) => sizes.fmt(f),
            named => f.pad(named.name()),
        }
    }
}

impl FromStr for Config {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|config| config.name() == text);
        let custom = || parse_sizes(text).ok().map(Self::Custom);
        named.or_else(custom).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::argument(
                "config",
                format!("`{text}` is not one of {names}, nor BxHxNxD as in 8x12x197x64"),
            )
        })
    }
}

/// Parses sizes of the form `8x12x197x64`.
fn parse_sizes(text: &str) -> Result<Sizes> {
    let invalid = || Error::argument("config", format!("`{text}` is not of the form BxHxNxD"));
    let numbers: Vec<usize> = text
        .split('x')
        .map(|n| n.parse().ok().filter(|&n| (1..=1 << 20).contains(&n)))
        .collect::<Option<_>>()
        .ok_or_else(invalid)?;
    let [batch, heads, tokens, head_dim] = numbers[..] else {
        return Err(invalid());
    };
    // Far from overflow, also of a weight.
    if heads * head_dim > 1 << 16 || batch * tokens > 1 << 26 {
        return Err(invalid());
    }
    Ok(Sizes {
        batch,
        heads,
        tokens,
        head_dim,
    })
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
