//! Options of kernel selection.

use std::time::Duration;

/// Options of kernel selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectOptions {
    /// True if a library's epilogue may compute what follows a GEMM.
    pub epilogues: bool,
    /// True if measured choices are used. Otherwise only the rule is.
    pub measured: bool,
    /// True if an image's results must have the same bits at any batch size.
    pub reproducible: bool,
    /// Implementation of the all-reduces of a tensor-parallel model.
    pub all_reduce: AllReduceKind,
    /// Maximum time that a GPU waits for the other ranks.
    pub collective_timeout: Duration,
    /// 2:4 sparse weights that stay packed.
    pub sparse: Sparse,
}

impl Default for SelectOptions {
    fn default() -> Self {
        Self {
            epilogues: true,
            measured: true,
            reproducible: false,
            all_reduce: AllReduceKind::default(),
            collective_timeout: Duration::from_secs(300),
            sparse: Sparse::default(),
        }
    }
}

/// Implementation of the all-reduces of a tensor-parallel model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllReduceKind {
    /// The builtin kernel for small messages, if 2 to 4 GPUs can access each other's memory; otherwise RCCL.
    #[default]
    Auto,
    /// The builtin kernel, for messages of any size.
    Direct,
    /// RCCL.
    Library,
}

/// 2:4 sparse weights of linear layers that stay packed, in f16 or bf16, on a GPU that can skip their zeros.
///
/// A packed weight takes 9/16 of the memory. hipSPARSELt or the builtin kernel computes its layers at any batch size. The choice is made
/// when the weights are uploaded; the other weights are unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sparse {
    /// Weights of layers that were measured to be fastest packed, at each measured number of rows.
    #[default]
    Auto,
    /// All weights: for hipSPARSELt if it is available, unless the builtin kernel was measured to be faster.
    On,
    /// All weights, for the builtin kernel.
    Builtin,
    /// No weight.
    Off,
}
