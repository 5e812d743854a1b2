//! Candidates for a problem, and the origin of a choice.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::key::{HIPSPARSELT, MIOPEN};
use crate::kernels::pattern_attention::tile::AttentionTile;

/// A way to compute a [`Problem`](super::Problem), as selection files name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Builtin kernels: fused attention, or the patch matrix and a linear layer.
    #[serde(rename = "own")]
    Builtin,
    /// The builtin GEMM with a packed 2:4 sparse weight.
    #[serde(rename = "sparse")]
    SparseGemm,
    /// The builtin GEMM of few rows with a fused epilogue.
    Gemv,
    /// The builtin int8 GEMM with a fused epilogue.
    Int8,
    /// The builtin attention with a pattern, with another tile than its default.
    Tile(AttentionTile),
    /// MIOpen's convolution or attention.
    Miopen,
    /// rocBLAS, by its own selection of an algorithm, then a builtin kernel for bias, activation and residual.
    Rocblas,
    /// hipBLASLt.
    Hipblaslt {
        /// Number of the algorithm in the order of the library's heuristics.
        algorithm: usize,
        /// True if the library's [epilogue](super::LinearShape::epilogue) computes the rest of the layer, not a builtin kernel.
        /// For FP8 with a scale for each row, the rest includes the scales.
        epilogue: bool,
    },
    /// hipSPARSELt, with a 2:4 sparse weight that it has compressed.
    Hipsparselt {
        /// Number of the algorithm. `None` for the library's own choice.
        algorithm: Option<usize>,
        /// True if the library's epilogue computes the rest of the layer, not a builtin kernel.
        epilogue: bool,
    },
}

impl Choice {
    /// Returns true if the choice skips the zeros of 2:4 sparse weights.
    pub fn is_for_packed(self) -> bool {
        matches!(self, Self::SparseGemm | Self::Hipsparselt { .. })
    }

    /// Returns true if a library's epilogue computes the rest of the layer.
    pub(in crate::exec) fn has_epilogue(self) -> bool {
        matches!(
            self,
            Self::Hipblaslt { epilogue: true, .. } | Self::Hipsparselt { epilogue: true, .. }
        )
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Builtin => f.write_str("own kernels"),
            Self::SparseGemm => f.write_str("sparse_gemm"),
            Self::Gemv => f.write_str("gemv"),
            Self::Int8 => f.write_str("int8_gemm"),
            Self::Tile(tile) => write!(f, "tile {tile}"),
            Self::Miopen => f.write_str(MIOPEN),
            Self::Rocblas => f.write_str("rocBLAS"),
            Self::Hipblaslt { algorithm, epilogue } => {
                let epilogue = if *epilogue { " with epilogue" } else { "" };
                write!(f, "hipBLASLt {algorithm}{epilogue}")
            }
            Self::Hipsparselt { algorithm, epilogue } => {
                let number = algorithm.map(|number| format!(" {number}")).unwrap_or_default();
                let epilogue = if *epilogue { " with epilogue" } else { "" };
                write!(f, "{HIPSPARSELT}{number}{epilogue}")
            }
        }
    }
}

/// Origin of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured by `hipvit tune`.
    Tuned,
    /// Measured on such a GPU, and shipped with the crate.
    Shipped,
    /// The rule of the library, without a measurement.
    Rule,
    /// Requested by an option.
    #[serde(rename = "asked")]
    Requested,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tuned => "tuned",
            Self::Shipped => "shipped",
            Self::Rule => "rule",
            Self::Requested => "asked",
        })
    }
}
