//! What can be selected, and where a choice comes from.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::store::{HIPSPARSELT, MIOPEN};

/// What can compute a [`Problem`](super::Problem).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Candidate {
    /// The crate's own kernels: fused attention, or the patch matrix and a linear layer.
    Own,
    /// The crate's own kernel for a 2:4 sparse weight that is packed.
    Sparse,
    /// The crate's own kernel for bytes, with all that follows.
    Int8,
    /// MIOpen: its convolution or its attention.
    Miopen,
    /// rocBLAS by its own selection, then a kernel for bias, activation and residual.
    Rocblas,
    /// hipBLASLt.
    Hipblaslt {
        /// The number of the algorithm in the order of the library's heuristics.
        algorithm: usize,
        /// Whether the library's [epilogue](super::LinearShape::epilogue) does the rest, or a kernel.
        /// Of FP8 with a scale for each row, the scales are part of the rest.
        epilogue: bool,
    },
    /// hipSPARSELt, for a 2:4 sparse weight that it has compressed.
    Hipsparselt {
        /// The library's number of the algorithm; `None` for its own choice.
        algorithm: Option<usize>,
        /// As hipBLASLt's.
        epilogue: bool,
    },
}

impl Candidate {
    /// Whether it is for packed 2:4 sparse weights.
    pub fn is_for_packed(self) -> bool {
        matches!(self, Self::Sparse | Self::Hipsparselt { .. })
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own kernels"),
            Self::Sparse => f.write_str("sparse_gemm"),
            Self::Int8 => f.write_str("int8_gemm"),
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

/// Where a choice comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Measured by `hipvit tune`.
    Tuned,
    /// Measured on such a GPU; shipped with the crate.
    Shipped,
    /// The rule.
    Rule,
    /// An option.
    Asked,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tuned => "tuned",
            Self::Shipped => "shipped",
            Self::Rule => "rule",
            Self::Asked => "asked",
        })
    }
}
