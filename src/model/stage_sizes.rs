//! Sizes that the stages of all hierarchies have, and the limit of all models.

/// Maximum number of elements in the tokens of an image. It keeps a wrong configuration from requesting terabytes.
pub(super) const MAX_ELEMENTS: usize = 1 << 28;

/// Sizes of the blocks of one stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct StageSizes {
    pub(super) dim: usize,
    pub(super) depth: usize,
    pub(super) heads: usize,
    /// Number of channels between the two layers of the feed-forward network.
    pub(super) hidden: usize,
}
