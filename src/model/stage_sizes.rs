//! Sizes that the stages of all hierarchies have.

/// Sizes of the blocks of one stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageSizes {
    pub(super) dim: usize,
    pub(super) depth: usize,
    pub(super) heads: usize,
    /// Number of channels between the two layers of the feed-forward network.
    pub(super) hidden: usize,
}
