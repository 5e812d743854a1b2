//! Position embeddings, resampled to the grid of patches that each image has.

use super::*;

pub(super) fn shape(inputs: &[&[usize]]) -> Result<Shape, String> {
    let [x, table, image] = operands(inputs)?;
    let (batch, patches) = grid_mask::extents(image)?;
    let &[side, columns, channels] = table else {
        return Err(format!("`table` has shape {table:?}, expected [S, S, D]"));
    };
    if side != columns || side == 0 {
        return Err(format!(
            "`table` is of {side}×{columns} positions, not of a square"
        ));
    }
    expect("x", x, &[batch, patches, channels])?;
    Ok(x.to_vec())
}

/// Four weighted positions are added to each token, more where an image has fewer rows or columns than the table.
pub(super) fn flops(output: &[usize]) -> u64 {
    9 * count(output)
}
