//! Sizes of the sequences that images of any aspect ratio are packed into.

use super::positions::{Grid, GridTable};

/// Sizes of packed sequences, and how their positions are interpolated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Height and width of a patch, in pixels.
    pub(super) patch: usize,
    /// Number of patches in a sequence.
    pub(super) patches: usize,
    /// Maximum number of images in a sequence.
    pub(super) images: usize,
    /// Number of tokens before the patches of each image.
    pub(super) prefix: usize,
    /// Maximum number of patches of an image.
    pub(super) largest: usize,
    pub(super) table: Table,
}

/// A learned table that is interpolated to the grid of each image.
#[derive(Clone, Copy, Debug)]
pub(super) enum Table {
    /// `side × side` positions of SigLIP 2.
    Square { side: usize },
    /// Positions of timm's NaFlexViT.
    Grid(GridTable),
}

impl Layout {
    /// Returns height and width of the pixels of a sequence: its patches, one below the other.
    pub(super) fn size(&self) -> Grid {
        [self.patches * self.patch, self.patch]
    }

    /// Returns the number of prefix tokens of all images.
    pub(super) fn prefixes(&self) -> usize {
        self.images * self.prefix
    }

    /// Returns the number of tokens in a sequence.
    pub(super) fn tokens(&self) -> usize {
        self.patches.saturating_add(self.prefixes())
    }

    /// Returns the bytes of a patch.
    pub(super) fn patch_bytes(&self) -> usize {
        self.patch * self.patch * 3
    }
}
