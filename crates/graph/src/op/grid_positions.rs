//! Position embeddings, resampled to each image's grid of patches.

use super::grid_mask::{self, grid};
use super::operands::{count, exactly, expect, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{AWKWARD, Cases, Scale, activation, parameter};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// Adds a position table to the tokens of images of any aspect ratio: `(x [B,P,D], table [S,S,D], pixels u8 [B,H,W,3]) → [B,P,D]`.
///
/// The table is resampled to each image's grid of patches, bilinear and antialiased as in PyTorch. The pixels are the graph's input in the
/// form of [`patch_grid`](crate::patch_grid). Tokens beyond an image's patches get the position of its first patch.
/// <https://arxiv.org/abs/2502.14786>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridPositions;

/// Returns the normalised weights of all `from` cells for output `index` of `to`. A cell's weight falls linearly with its distance, to 0 at
/// the width of a cell of the coarser grid.
fn weights(from: usize, to: usize, index: usize) -> Vec<f64> {
    let scale = from as f64 / to as f64;
    let centre = scale * (index as f64 + 0.5);
    let weight = |cell: usize| (1.0 - (cell as f64 + 0.5 - centre).abs() / scale.max(1.0)).max(0.0);
    let sum: f64 = (0..from).map(weight).sum();
    (0..from).map(|cell| weight(cell) / sum).collect()
}

impl Definition for GridPositions {
    const NAME: &'static str = "grid_positions";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, table, image] = exactly(operands)?;
        let (batch, patches) = grid_mask::extents(image)?;
        let &[side, columns, channels] = table else {
            return Err(OpError::layout("`table`", table, "[S, S, D]"));
        };
        if side != columns || side == 0 {
            return Err(format!("`table` is of {side}×{columns} positions, not of a square").into());
        }
        expect("x", x, &[batch, patches, channels])?;
        one(x)
    }

    /// Four weighted positions are added to each token. More if an image has fewer rows or columns than the table.
    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        9 * count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let (x, table, images) = (operands[0], operands[1], operands[2]);
        let [batch, tokens, d] = x.extents();
        let side = table.shape()[0];
        for b in 0..batch {
            let [rows, columns] = grid(images, b, tokens);
            for token in 0..tokens {
                let patch = if token < rows * columns { token } else { 0 };
                let vertical = weights(side, rows, patch / columns);
                let horizontal = weights(side, columns, patch % columns);
                for c in 0..d {
                    let cells = (0..side * side).map(|cell| {
                        let weight = vertical[cell / side] * horizontal[cell % side];
                        T::from_f64(weight) * table.values()[cell * d + c]
                    });
                    let at = (b * tokens + token) * d + c;
                    results[0].values_mut()[at] = x.values()[at] + cells.sum::<T>();
                }
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, .. } => add(cases, [sizes.tokens, sizes.channels()], 16),
            Scale::Awkward => {
                for (a, side) in AWKWARD.iter().zip([1, 3, 16, 2, 7, 5]) {
                    add(cases, [a.tokens, a.channels], side);
                }
            }
            Scale::Heads => {}
        }
    }

    /// Weights are quotients of sums over at most all cells of each axis of the table.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let side = operands[1].shape().first().copied().unwrap_or(1);
        narrow(dtype) + 4.0 * tolerance(DType::F32, 2 * side)
    }
}

/// Adds a case of one image: the graph of a single op cannot take a batch of tokens beside images.
fn add(cases: &mut Cases<GridPositions>, [tokens, channels]: [usize; 2], side: usize) {
    let operands = vec![
        activation(&[1, tokens, channels]),
        parameter(&[side, side, channels]),
        grid_mask::flexible(1, tokens),
    ];
    cases.push(GridPositions, operands);
}
