//! Stages of Swin and Swin V2, and the bias of attention inside of their windows.
//!
//! Swin: <https://arxiv.org/abs/2103.14030>. Swin V2: <https://arxiv.org/abs/2111.09883>.

use super::invalid::Invalid;
use super::norm::Norm;
use super::positions::Grid;
use super::relative::TableFitting;
use crate::ops::TokenOrder;

/// Bias of the score of a query and a key that are neighbours only because the grid was rolled, as in both libraries.
const HIDDEN: f32 = -100.0;

/// Number of kinds of windows in a rolled grid: inside, at the right edge, at the lower edge, and in the corner.
pub(super) const KINDS: usize = 4;

/// Maximum number of elements of the bias of one block.
const MAX_ELEMENTS: usize = 1 << 28;

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

    /// Returns the number of tokens of a window.
    pub(super) fn window_tokens(&self) -> usize {
        self.window[0] * self.window[1]
    }

    /// Estimates the floating-point operations of an image in the stage, without those of the feed-forward network.
    pub(super) fn attention_flops(&self) -> u128 {
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
            .saturating_mul(heads * KINDS);
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
    /// Returns the rows and columns of tokens after the last block.
    pub(super) fn last_grid(&self) -> Option<Grid> {
        self.stages.last().map(|stage| stage.grid)
    }

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

/// Returns the numbers of distances between the tokens of a window, in rows and columns.
pub(super) fn distances(window: Grid) -> Grid {
    window.map(|n| 2 * n - 1)
}

/// Returns the bias of the scores, `[heads, tokens, tokens]`, by a table with a row for each distance.
pub(super) fn bias(table: &[f32], heads: usize, window: Grid) -> Vec<f32> {
    let [rows, columns] = window;
    let across = distances(window)[1];
    let tokens = rows * columns;
    let row_of = |query: usize, key: usize| {
        let down = query / columns + rows - 1 - key / columns;
        let right = query % columns + columns - 1 - key % columns;
        down * across + right
    };
    let mut bias = Vec::with_capacity(heads * tokens * tokens);
    for head in 0..heads {
        for query in 0..tokens {
            bias.extend((0..tokens).map(|key| table[row_of(query, key) * heads + head]));
        }
    }
    bias
}

/// Returns the bias of the scores in shifted windows, `[KINDS, heads, tokens, tokens]`, by that of other windows.
///
/// The last row and column of windows consist of two parts each, from opposite edges of the image.
pub(super) fn shifted_bias(bias: &[f32], window: Grid, shift: Grid) -> Vec<f32> {
    let columns = window[1];
    let tokens = window[0] * columns;
    let mut kinds = Vec::with_capacity(KINDS * bias.len());
    for kind in 0..KINDS {
        let is_last = [kind / 2 == 1, kind % 2 == 1];
        let part = |token: usize| {
            let place = [token / columns, token % columns];
            [0, 1].map(|axis| is_last[axis] && shift[axis] > 0 && place[axis] + shift[axis] >= window[axis])
        };
        let parts: Vec<[bool; 2]> = (0..tokens).map(part).collect();
        for (row, biases) in bias.chunks_exact(tokens).enumerate() {
            let of_query = parts[row % tokens];
            let keys = biases.iter().zip(&parts);
            kinds.extend(keys.map(
                |(bias, of_key)| {
                    if *of_key == of_query { *bias } else { bias + HIDDEN }
                },
            ));
        }
    }
    kinds
}

/// The network that makes the bias of Swin V2: a layer from two coordinates to `hidden` channels, and one to the heads.
pub(super) struct PositionNetwork<'a> {
    /// `[hidden, 2]`.
    pub(super) weight1: &'a [f32],
    /// `[hidden]`.
    pub(super) bias1: &'a [f32],
    /// `[heads, hidden]`.
    pub(super) weight2: &'a [f32],
}

impl PositionNetwork<'_> {
    /// Returns the table of the bias, with a row for each distance.
    pub(super) fn table(&self, window: Grid, trained: Grid) -> Vec<f32> {
        let hidden = self.bias1.len().max(1);
        let reference = if trained[0] > 0 { trained } else { window };
        // Distances grow by their logarithm, from −1 to 1 for twice the reference.
        let coordinate = |index: usize, axis: usize| {
            let distance = index as f64 - (window[axis] - 1) as f64;
            let scaled = 8.0 * distance / reference[axis].saturating_sub(1).max(1) as f64;
            scaled.signum() * (scaled.abs() + 1.0).log2() / 3.0
        };
        let [rows, columns] = distances(window);
        let mut table = Vec::with_capacity(rows * columns * self.weight2.len() / hidden);
        let mut layer = vec![0.0; hidden];
        for row in 0..rows {
            for column in 0..columns {
                let at = [coordinate(row, 0), coordinate(column, 1)];
                let weights = self.weight1.chunks_exact(2).zip(self.bias1);
                for (value, (weight, bias)) in layer.iter_mut().zip(weights) {
                    let sum = at[0] * f64::from(weight[0]) + at[1] * f64::from(weight[1]) + f64::from(*bias);
                    *value = sum.max(0.0);
                }
                table.extend(self.weight2.chunks_exact(hidden).map(|weights| {
                    let products = weights.iter().zip(&layer).map(|(w, x)| f64::from(*w) * x);
                    (16.0 / (1.0 + (-products.sum::<f64>()).exp())) as f32
                }));
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bias_is_that_of_the_distance() {
        // timm.models.swin_transformer.get_relative_position_index(1, 3) and (2, 2).
        let table: Vec<f32> = (0..9u8).map(f32::from).collect();
        assert_eq!(
            bias(&table, 1, [1, 3]),
            [2.0, 1.0, 0.0, 3.0, 2.0, 1.0, 4.0, 3.0, 2.0]
        );
        let expected = [
            [4.0, 3.0, 1.0, 0.0],
            [5.0, 4.0, 2.0, 1.0],
            [7.0, 6.0, 4.0, 3.0],
            [8.0, 7.0, 5.0, 4.0],
        ];
        assert_eq!(bias(&table, 1, [2, 2]), expected.as_flattened());
    }

    #[test]
    fn parts_of_windows_at_the_edges_do_not_see_each_other() {
        let kinds = shifted_bias(&[0.0; 16], [2, 2], [1, 0]);
        let (seen, hidden) = ([0.0; 4], HIDDEN);
        let split = [
            [0.0, 0.0, hidden, hidden],
            [0.0, 0.0, hidden, hidden],
            [hidden, hidden, 0.0, 0.0],
            [hidden, hidden, 0.0, 0.0],
        ];
        // Columns are not shifted, so the right edge is like the inside.
        let expected = [[seen; 4], [seen; 4], split, split];
        assert_eq!(kinds, expected.as_flattened().as_flattened());
    }
}
