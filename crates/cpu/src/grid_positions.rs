//! Position embeddings, resampled to each image's grid of patches.

use hipvit_graph::op::{GridPositions, OpError};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};
use hipvit_image::patch_grid::{self, PatchGrid};

impl CpuOp for GridPositions {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let &[side, ..] = operands.shape(1)? else {
            return Err("takes a table of positions".into());
        };
        let [x, table] = [operands.values(0)?, operands.values(1)?];
        add_positions(x, table, side, operands.images(2)?, results[0])?;
        Ok(())
    }
}

/// Adds positions from a table of `side × side` to `x [B,N,D]`, for images of this height and width.
fn add_positions(
    x: &[f32],
    table: &[f32],
    side: usize,
    (pixels, size): (&[u8], [usize; 2]),
    out: &mut [f32],
) -> Result<(), OpError> {
    let patches = patch_grid::most_patches(size).max(1);
    let channels = table.len() / (side * side).max(1);
    let each = (patches * channels).max(1);
    let images = pixels.par_chunks_exact((size[0] * size[1] * 3).max(1));
    let rows = out.par_chunks_exact_mut(each).zip(x.par_chunks_exact(each));
    rows.zip(images).try_for_each_item(|((out, x), image)| {
        let grid =
            PatchGrid::read(image, size, patches).ok_or_else(|| OpError::memory("the image is too short"))?;
        let [rows, columns] =
            [grid.rows, grid.columns].map(|to| (0..to).map(|i| taps(side, to, i)).collect());
        let [rows, columns]: [Vec<Vec<(usize, f64)>>; 2] = [rows, columns];
        let tokens = out
            .par_chunks_exact_mut(channels)
            .zip(x.par_chunks_exact(channels));
        tokens.enumerate().for_each_item(|(token, (out, x))| {
            let patch = if token < grid.patches() { token } else { 0 };
            out.copy_from_slice(x);
            for &(row, row_weight) in &rows[patch / grid.columns] {
                for &(column, weight) in &columns[patch % grid.columns] {
                    let weight = (row_weight * weight) as f32;
                    let position = &table[(row * side + column) * channels..][..channels];
                    out.iter_mut()
                        .zip(position)
                        .for_each(|(out, p)| *out += weight * p);
                }
            }
        });
        Ok(())
    })
}

/// Returns the inputs of output `index` of `to`, and their weights. They are those of PyTorch's antialiased bilinear interpolation without
/// `align_corners`: a triangle as wide as two cells of the coarser grid.
fn taps(from: usize, to: usize, index: usize) -> Vec<(usize, f64)> {
    let scale = from as f64 / to as f64;
    let (centre, widening) = (scale * (index as f64 + 0.5), scale.max(1.0));
    let begin = (centre - widening).max(0.0) as usize;
    let end = ((centre + widening) as usize + 1).min(from);
    let weight = |cell: usize| (1.0 - (cell as f64 + 0.5 - centre).abs() / widening).max(0.0);
    let sum: f64 = (begin..end).map(weight).sum();
    (begin..end)
        .map(|cell| (cell, weight(cell) / sum))
        .filter(|tap| tap.1 > 0.0)
        .collect()
}
