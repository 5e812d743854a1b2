//! What a caller can ask of selection: which candidates count, what sums over GPUs, which sparse weights stay packed.

use std::time::Duration;

/// How sessions select kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectOptions {
    /// Whether a library's epilogue may do what follows a GEMM.
    pub epilogues: bool,
    /// Whether measured choices are used; the rule alone otherwise.
    pub measured: bool,
    /// Whether an image's results must have the same bits at any batch size.
    pub reproducible: bool,
    /// What sums over the GPUs of a tensor-parallel model.
    pub all_reduce: AllReduceKind,
    /// Maximum time that a GPU waits for the others.
    pub collective_timeout: Duration,
    /// Which 2:4 sparse weights stay packed.
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

/// What sums over the GPUs of a tensor-parallel model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllReduceKind {
    /// The crate's own kernel for small messages, if 2 to 4 GPUs can access each other's memory; else RCCL.
    #[default]
    Auto,
    /// The crate's own kernel, for messages of any size.
    Direct,
    /// RCCL.
    Library,
}

/// Which 2:4 sparse weights of linear layers, in f16 or bf16, stay packed on a GPU that can skip their zeros: 9/16 of the memory, and
/// hipSPARSELt or the crate's kernel computes their layers at any batch size. Decided when the weights are uploaded; the others are
/// unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sparse {
    /// Those of layers that one of the two was measured to be fastest at, with each number of rows that was measured.
    #[default]
    Auto,
    /// All: for hipSPARSELt, if it is there, unless the crate's kernel was measured to be faster.
    On,
    /// All, for the crate's kernel.
    Own,
    /// None.
    Off,
}
