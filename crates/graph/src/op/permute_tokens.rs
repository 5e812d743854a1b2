//! Order of the tokens of a grid: by rows, or by windows.

mod order;

use std::fmt;

pub use self::order::TokenOrder;
use super::operands::{exactly, one};
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale, activation};
use crate::dtype::DType;
use crate::value::ValueId;

/// Puts the tokens of each image's grid in another order: `(x) → y`, in the shapes of [`TokenOrder`].
///
/// It partitions a grid into windows, reverses this, rolls the grid, and merges neighbouring tokens (Swin).
/// <https://arxiv.org/abs/2103.14030>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermuteTokens {
    /// Rows and columns of the grid.
    pub grid: [usize; 2],
    /// Order of the operand. Its padding is dropped.
    pub from: TokenOrder,
    /// Order of the result. Its padding is zeros.
    pub to: TokenOrder,
}

impl PermuteTokens {
    /// Returns the token of an image of the operand that each token of an image of the result is. `None` for padding.
    ///
    /// If an order is [merged](TokenOrder::merged), tokens are counted as if it were not.
    pub fn sources(&self) -> Vec<Option<usize>> {
        let tokens = 0..self.to.tokens(self.grid);
        tokens
            .map(|token| {
                let cell = self.to.cell(self.grid, token)?;
                Some(self.from.token(self.grid, cell))
            })
            .collect()
    }
}

impl Definition for PermuteTokens {
    const NAME: &'static str = "permute_tokens";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " {}×{} {} → {}",
            self.grid[0], self.grid[1], self.from, self.to
        )
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        for order in [self.from, self.to] {
            order.check(self.grid)?;
        }
        let (images, channels) = self.from.extents(self.grid, x)?;
        one(self.to.shape(self.grid, images, channels))
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn locality(&self, _index: usize) -> Locality {
        // The first extent counts windows, not images.
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let Ok((images, channels)) = self.from.extents(self.grid, operands[0].shape()) else {
            return;
        };
        let [of_x, of_y] = [self.from, self.to].map(|order| order.tokens(self.grid) * channels);
        let sources = self.sources();
        for image in 0..images {
            let x = &operands[0].values()[image * of_x..][..of_x];
            let y = &mut results[0].values_mut()[image * of_y..][..of_y];
            for (y, source) in y.chunks_mut(channels).zip(&sources) {
                if let Some(source) = source {
                    y.copy_from_slice(&x[source * channels..][..channels]);
                }
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                let side = sizes.tokens.isqrt().max(1);
                add(
                    cases,
                    sizes.batch,
                    [side, side],
                    [side.min(7); 2],
                    sizes.channels(),
                );
            }
            Scale::Awkward => {
                // Channels that are no multiple of a vector, and grids that are no multiple of a window.
                add(cases, 1, [1, 1], [1, 1], 1);
                add(cases, 2, [6, 9], [3, 4], 33);
                add(cases, 3, [5, 3], [7, 2], 8);
                add(cases, 1, [14, 14], [7, 7], 96);
            }
            Scale::Heads => {}
        }
    }

    /// Elements are moved.
    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        _node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        // Each token of the grid is once in every order, so the transposed map is the inverse one.
        let inverse = Self {
            from: self.to,
            to: self.from,
            ..*self
        };
        Ok(vec![Some(builder.push(inverse, [only_gradient(gradients)?])?)])
    }
}

/// Adds partition into windows, its reverse, a shift of the windows with each way of padding, and the merging of 2 × 2 tokens.
fn add(
    cases: &mut Cases<PermuteTokens>,
    images: usize,
    grid: [usize; 2],
    window: [usize; 2],
    channels: usize,
) {
    let rows = TokenOrder::rows(grid);
    let windows = TokenOrder::windows(grid, window);
    let shift = [0, 1].map(|axis| (window[axis] / 2).min(grid[axis] - 1));
    let rolled = windows.rolled(shift, grid);
    let padded = windows.rolled(shift, windows.padded(grid));
    let merged = TokenOrder::merged(grid, [2, 2]);
    for (from, to) in [
        (rows, windows),
        (rolled, rows),
        (windows, rolled),
        (padded, windows),
        (rows, padded),
        (padded, merged),
        (merged, rows),
    ] {
        let x = activation(&from.shape(grid, images, channels));
        cases.push(PermuteTokens { grid, from, to }, vec![x]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permuted(op: PermuteTokens, x: &[f64]) -> Array<f64> {
        let images = x.len() / op.from.tokens(op.grid);
        let x = Array::new(op.from.shape(op.grid, images, 1), x.to_vec()).unwrap();
        op.eval(&[&x]).unwrap().swap_remove(0)
    }

    fn numbers(count: u8) -> Vec<f64> {
        (1..=count).map(f64::from).collect()
    }

    /// `window_partition(torch.roll(x, (-1, -2), (0, 1)), (2, 2))` of a grid of 2 × 4.
    #[test]
    fn windows_are_those_of_the_rolled_grid() {
        let grid = [2, 4];
        let to = TokenOrder::windows(grid, [2, 2]).rolled([1, 2], grid);
        let op = PermuteTokens {
            grid,
            from: TokenOrder::rows(grid),
            to,
        };
        let y = permuted(op, &numbers(8));
        assert_eq!(y.shape(), [2, 4, 1]);
        assert_eq!(y.values(), [7.0, 8.0, 3.0, 4.0, 5.0, 6.0, 1.0, 2.0]);
    }

    /// timm rolls the grid and pads it then, transformers rolls the padded grid.
    #[test]
    fn padding_is_zeros_at_the_end_of_the_grid_or_rolled_with_it() {
        let grid = [1, 3];
        let windows = TokenOrder::windows(grid, [1, 2]);
        let of = |to| {
            let from = TokenOrder::rows(grid);
            permuted(PermuteTokens { grid, from, to }, &numbers(3))
        };
        assert_eq!(of(windows.rolled([0, 1], grid)).values(), [2.0, 3.0, 1.0, 0.0]);
        let padded = windows.rolled([0, 1], windows.padded(grid));
        assert_eq!(of(padded).values(), [2.0, 3.0, 0.0, 1.0]);
        let back = PermuteTokens {
            grid,
            from: padded,
            to: TokenOrder::rows(grid),
        };
        assert_eq!(permuted(back, &[2.0, 3.0, 9.0, 1.0]).values(), numbers(3));
    }

    /// `torch.cat([x[0::2, 0::2], x[1::2, 0::2], x[0::2, 1::2], x[1::2, 1::2]], -1)`, as Swin merges patches.
    #[test]
    fn merged_tokens_are_column_by_column() {
        let grid = [3, 4];
        let op = PermuteTokens {
            grid,
            from: TokenOrder::rows(grid),
            to: TokenOrder::merged(grid, [2, 2]),
        };
        let y = permuted(op, &[numbers(12), numbers(12)].concat());
        assert_eq!(y.shape(), [2, 4, 4]);
        let image = [
            [1.0, 5.0, 2.0, 6.0],
            [3.0, 7.0, 4.0, 8.0],
            [9.0, 0.0, 10.0, 0.0],
            [11.0, 0.0, 12.0, 0.0],
        ];
        assert_eq!(y.values(), [image, image].as_flattened().as_flattened());
    }

    #[test]
    fn wrong_orders_are_refused() {
        let grid = [4, 4];
        let rows = TokenOrder::rows(grid);
        let refused = |to, shape: &[usize]| {
            let op = PermuteTokens { grid, from: rows, to };
            op.shapes(&[shape]).unwrap_err().to_string()
        };
        let windows = TokenOrder::windows(grid, [2, 2]);
        assert_eq!(
            refused(windows, &[2, 15, 8]),
            "x has shape [2, 15, 8], expected [1·B, 16, D]"
        );
        assert_eq!(
            refused(windows.rolled([2, 4], grid), &[2, 16, 8]),
            "rolls 4 rows or columns of 4"
        );
        assert_eq!(
            refused(TokenOrder::windows(grid, [0, 2]), &[2, 16, 8]),
            "has a grid or a window without tokens"
        );
    }
}
