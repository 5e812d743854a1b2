//! Position embeddings, resampled to the grid of patches that each image has.

use super::Array;
use super::array::extents;
use super::grid_mask::grid;

/// By the definition: a cell's weight falls linearly with its distance, to 0 at the width of the coarser grid's cell, and the
/// weights are normalised.
pub(super) fn grid_positions(x: &Array, table: &Array, image: &Array, y: &mut Array) {
    let [batch, tokens, d] = extents(x);
    let side = table.shape()[0];
    for b in 0..batch {
        let [rows, columns] = grid(image, b, tokens);
        for token in 0..tokens {
            let patch = if token < rows * columns { token } else { 0 };
            let vertical = weights(side, rows, patch / columns);
            let horizontal = weights(side, columns, patch % columns);
            for c in 0..d {
                let cells = (0..side * side).map(|cell| {
                    vertical[cell / side] * horizontal[cell % side] * table.values()[cell * d + c]
                });
                let at = (b * tokens + token) * d + c;
                y.values_mut()[at] = x.values()[at] + cells.sum::<f64>();
            }
        }
    }
}

/// Of all `from` cells for output `index` of `to`.
fn weights(from: usize, to: usize, index: usize) -> Vec<f64> {
    let scale = from as f64 / to as f64;
    let centre = scale * (index as f64 + 0.5);
    let weight = |cell: usize| (1.0 - (cell as f64 + 0.5 - centre).abs() / scale.max(1.0)).max(0.0);
    let sum: f64 = (0..from).map(weight).sum();
    (0..from).map(|cell| weight(cell) / sum).collect()
}
