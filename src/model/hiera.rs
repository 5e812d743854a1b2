//! Stages of Hiera: attention inside of windows in the first stages, and queries that are pooled between stages.
//!
//! Hiera: <https://arxiv.org/abs/2306.00989>. Positions of windows: <https://arxiv.org/abs/2311.05613>.

use super::invalid::Invalid;
use super::positions::Grid;
use super::stage_sizes::{MAX_ELEMENTS, StageSizes};

/// Rows and columns of tokens of which pooling keeps one.
pub(super) const POOL: Grid = [2, 2];

/// Rows and columns of pixels that a token is computed from.
pub(super) const KERNEL: [usize; 2] = [7, 7];

/// Rows and columns of zeros around the normalised image.
pub(super) const PADDING: usize = 3;

/// Stages with pooled queries between them.
#[derive(Clone, Debug)]
pub(super) struct Hiera {
    pub(super) stages: Vec<Stage>,
    /// True if a linear layer doubles the channels of the residual. Otherwise they are the maximum and the mean of the
    /// pooled tokens.
    pub(super) expands: bool,
    /// Rows and columns of the position table, beside a table of one window. `None` for one table of all tokens.
    pub(super) position_grid: Option<Grid>,
}

/// Blocks with the same grid. The queries of the first block are pooled, except in the first stage.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) sizes: StageSizes,
    pub(super) grid: Grid,
    /// Rows and columns of a window.
    pub(super) window: Grid,
    /// True if blocks attend inside of windows. The first block attends like the stage before, whose tokens it reads.
    pub(super) is_windowed: bool,
}

impl Stage {
    /// Returns the number of windows.
    pub(super) fn windows(&self) -> usize {
        [0, 1]
            .map(|axis| self.grid[axis] / self.window[axis])
            .iter()
            .product()
    }

    /// Returns the shape of an image's tokens, window by window: `[windows, tokens, D]` if attention is inside of windows, otherwise
    /// `[1, windows · tokens, D]`.
    pub(super) fn shape(&self, is_windowed: bool) -> [usize; 3] {
        let (windows, tokens) = (self.windows(), self.window.iter().product::<usize>());
        if is_windowed {
            [windows, tokens, self.sizes.dim]
        } else {
            [1, windows * tokens, self.sizes.dim]
        }
    }
}

impl Hiera {
    /// Estimates the floating-point operations of an image in each stage.
    pub(super) fn flops(&self) -> Vec<u128> {
        let stages = self.stages.iter().map(|stage| {
            let StageSizes {
                dim, depth, hidden, ..
            } = stage.sizes;
            let tokens = stage.grid.iter().product::<usize>();
            let seen = stage.shape(stage.is_windowed)[1];
            let per_token = 4 * dim + 2 * seen + 2 * hidden;
            (2 * tokens as u128)
                .saturating_mul(dim as u128)
                .saturating_mul(per_token as u128)
                .saturating_mul(depth as u128)
        });
        stages.collect()
    }

    /// Checks that the sizes fit each other.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        for Stage { sizes, grid, .. } in &self.stages {
            let StageSizes {
                dim, heads, hidden, ..
            } = *sizes;
            if heads == 0 || !dim.is_multiple_of(heads) {
                return Err(format!("{dim} channels do not divide among {heads} heads").into());
            }
            if hidden == 0 {
                return Err("the feed-forward network has no channels".into());
            }
            // The table of the positions may be larger than the grid.
            for [rows, columns] in self.position_grid.into_iter().chain([*grid]) {
                if rows.saturating_mul(columns).saturating_mul(dim) > MAX_ELEMENTS {
                    return Err(format!("{rows}×{columns} tokens of {dim} channels are too many").into());
                }
            }
        }
        Ok(())
    }
}
