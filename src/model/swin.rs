//! Stages of Swin and Swin V2, and the bias of attention inside of their windows.
//!
//! Swin: <https://arxiv.org/abs/2103.14030>. Swin V2: <https://arxiv.org/abs/2111.09883>.

use super::invalid::Invalid;
use super::norm::Norm;
use super::positions::Grid;
use super::relative::TableFitting;
use super::stage_sizes::{MAX_ELEMENTS, StageSizes};
use crate::ops::{RelativeBias, TokenOrder};

/// Stages with different grids, and attention inside of windows.
#[derive(Clone, Debug)]
pub(super) struct Swin {
    pub(super) version: Version,
    pub(super) stages: Vec<Stage>,
    /// Norm of merged patches.
    pub(super) merging_norm: Norm,
    /// Rule by which a table of the bias is fitted to a window of another size. Without it, it must have the model's.
    pub(super) fitting: Option<TableFitting>,
    /// True if the layers that merge patches belong to the stage before them.
    pub(super) merges_after: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Norms before attention and feed-forward network, a bias by a table, and a norm before merged patches are
    /// projected.
    V1,
    /// Norms after attention and feed-forward network, cosine attention, a bias by a network, and a norm after merged
    /// patches are projected.
    V2,
}

/// Blocks with the same grid.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) dim: usize,
    pub(super) depth: usize,
    pub(super) heads: usize,
    /// Number of channels between the two layers of the feed-forward network.
    pub(super) hidden: usize,
    pub(super) grid: Grid,
    /// Rows and columns of a window.
    pub(super) window: Grid,
    /// Rows and columns by which every second block shifts the windows.
    pub(super) shift: Grid,
    /// Rows and columns that are rolled to shift the windows: those of the grid, or of the padded grid.
    pub(super) rolled: Grid,
    /// Size of the windows for which the network of the bias was trained. Only in V2.
    pub(super) trained_window: Grid,
}

impl Stage {
    /// Returns true if the windows of block `index` of the stage are shifted.
    pub(super) fn is_shifted(&self, index: usize) -> bool {
        index % 2 == 1 && self.shift != [0, 0]
    }

    /// Returns the order of the tokens by windows.
    pub(super) fn order(&self, is_shifted: bool) -> TokenOrder {
        let windows = TokenOrder::windows(self.grid, self.window);
        if is_shifted {
            // Rolling all rows or columns has no effect.
            let shift = [0, 1].map(|axis| self.shift[axis] % self.rolled[axis].max(1));
            windows.rolled(shift, self.rolled)
        } else {
            windows
        }
    }

    /// Returns true if the grid is no multiple of the window.
    pub(super) fn is_padded(&self) -> bool {
        self.order(false).padded(self.grid) != self.grid
    }

    /// Returns the number of distances between the tokens of a window.
    pub(super) fn distances(&self) -> usize {
        self.window.map(|n| 2 * n - 1).iter().product()
    }

    /// Returns the number of tokens of a window.
    pub(super) fn window_tokens(&self) -> usize {
        self.window[0] * self.window[1]
    }

    /// Returns the sizes of the blocks.
    pub(super) fn sizes(&self) -> StageSizes {
        StageSizes {
            dim: self.dim,
            depth: self.depth,
            heads: self.heads,
            hidden: self.hidden,
        }
    }

    /// Estimates the floating-point operations of an image in the stage.
    pub(super) fn flops(&self) -> u128 {
        let [rows, columns] = self.grid.map(|n| n as u128);
        let per_token = 4u128.saturating_mul((self.dim * self.hidden) as u128);
        let mlp = (rows * columns * self.depth as u128).saturating_mul(per_token);
        self.attention_flops().saturating_add(mlp)
    }

    /// Estimates the floating-point operations of an image in the stage, without those of the feed-forward network.
    fn attention_flops(&self) -> u128 {
        let tokens: usize = self.order(false).padded(self.grid).iter().product();
        let per_token = 4 * self.dim + 2 * self.window_tokens();
        (2 * tokens as u128)
            .saturating_mul(self.dim as u128)
            .saturating_mul(per_token as u128)
            .saturating_mul(self.depth as u128)
    }

    /// Checks that the sizes fit each other.
    fn check(&self) -> Result<(), Invalid> {
        let Self {
            dim,
            heads,
            hidden,
            grid,
            window,
            ..
        } = self;
        if *heads == 0 || !dim.is_multiple_of(*heads) {
            return Err(format!("{dim} channels do not divide among {heads} heads").into());
        }
        if *hidden == 0 {
            return Err("the feed-forward network has no channels".into());
        }
        let bias = self
            .window_tokens()
            .saturating_pow(2)
            .saturating_mul(heads * RelativeBias::KINDS);
        let tokens = self.order(false).padded(*grid).iter().product::<usize>();
        if bias > MAX_ELEMENTS || tokens.saturating_mul(*dim) > MAX_ELEMENTS {
            return Err(format!(
                "windows of {}×{} in a grid of {}×{} with {dim} channels are too large",
                window[0], window[1], grid[0], grid[1]
            )
            .into());
        }
        Ok(())
    }
}

/// Windows of a block.
#[derive(Clone, Copy)]
pub(super) struct Windows<'a> {
    pub(super) swin: &'a Swin,
    pub(super) stage: &'a Stage,
    pub(super) is_shifted: bool,
    /// Order of the tokens outside of attention.
    pub(super) stream: TokenOrder,
}

impl Windows<'_> {
    /// Returns the order of the tokens in attention.
    pub(super) fn order(&self) -> TokenOrder {
        self.stage.order(self.is_shifted)
    }
}

impl Swin {
    /// Checks that the sizes fit each other.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        if self.stages.is_empty() {
            return Err("the model has no stages".into());
        }
        self.stages.iter().try_for_each(Stage::check)
    }
}

/// Returns the grids of `count` stages. Each stage merges 2 × 2 patches, and pads an odd row or column.
pub(super) fn grids(first: Grid, count: usize) -> impl Iterator<Item = Grid> {
    std::iter::successors(Some(first), |grid| Some(grid.map(|n| n.div_ceil(2)))).take(count)
}

/// Returns the coordinates of each distance in a window, `[distances, 2]`, as the network of Swin V2's bias takes them.
pub(super) fn coordinates(window: Grid, trained: Grid) -> Vec<f32> {
    let reference = if trained[0] > 0 { trained } else { window };
    // Distances grow by their logarithm, from −1 to 1 for twice the reference.
    let coordinate = |index: usize, axis: usize| {
        let distance = index as f64 - (window[axis] - 1) as f64;
        let scaled = 8.0 * distance / reference[axis].saturating_sub(1).max(1) as f64;
        (scaled.signum() * (scaled.abs() + 1.0).log2() / 3.0) as f32
    };
    let [rows, columns] = window.map(|n| 2 * n - 1);
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column]));
    all.flat_map(|[row, column]| [coordinate(row, 0), coordinate(column, 1)])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are from timm's `SwinTransformerV2Block` for windows of 2×3 that were trained as 4×4.
    #[test]
    fn coordinates_are_those_of_timm() {
        let found = coordinates([2, 3], [4, 4]);
        let [far, near] = [0.887_655, 0.624_823];
        let across = [-far, -near, 0.0, near, far];
        let expected = [-near, 0.0, near].map(|down| across.map(|across| [down, across]));
        let expected = expected.as_flattened().as_flattened();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
        }
    }
}
