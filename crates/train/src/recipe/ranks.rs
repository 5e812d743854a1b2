//! Keys of a recipe for runs on several ranks.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Division of states among ranks, and the exchange of gradients. Without effect in a single process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RankKeys {
    /// What the ranks divide.
    pub shard: Shard,
    /// Number of consecutive ranks that divide, such as those of a host. Other groups of ranks have copies. 0: all ranks.
    pub group: usize,
    /// Form of gradients on the way between ranks.
    pub wire: Wire,
    /// Compression of the gradients of large matrices.
    pub compression: Compression,
    /// Rank of the matrices of [`Compression::Powersgd`].
    pub rank: usize,
}

impl Default for RankKeys {
    fn default() -> Self {
        Self {
            shard: Shard::default(),
            group: 0,
            wire: Wire::default(),
            compression: Compression::default(),
            rank: 4,
        }
    }
}

/// What ranks divide among themselves, beside the images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Shard {
    /// Nothing.
    #[default]
    None,
    /// The states of the optimiser, and moving averages.
    Optimizer,
    /// These, and the sums of gradients.
    Gradients,
    /// These, and the weights.
    Parameters,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "optimizer" => Ok(Self::Optimizer),
            "gradients" => Ok(Self::Gradients),
            "parameters" => Ok(Self::Parameters),
            _ => Err(format!(
                "`{text}` is none of none, optimizer, gradients, parameters"
            )),
        }
    }
}

/// Form of gradients on the way between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wire {
    /// 32 bits.
    #[default]
    F32,
    /// Rounded to bf16. Sums are in f32.
    Bf16,
}

/// Compression of gradients between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Compression {
    /// None.
    #[default]
    None,
    /// Products of two matrices of low rank, with error feedback. <https://arxiv.org/abs/1905.13727>
    Powersgd,
}
