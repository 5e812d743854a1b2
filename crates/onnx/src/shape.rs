//! Shapes of tensors: their extents, axes and numbers of elements, which may depend on the batch size.

use crate::dim::{Dim, Linear};
use crate::error::{Refusal, refuse};

/// Largest rank of a tensor. ONNX has no limit; models stay far below.
pub(crate) const MOST_AXES: usize = 16;

/// Returns the number of elements. Refuses shapes whose product overflows.
pub(crate) fn count(shape: &[usize]) -> Result<usize, Refusal> {
    // Zeros hide factors that overflow when only some of the extents are multiplied.
    let nonzero = shape.iter().filter(|&&extent| extent != 0);
    let product = nonzero.copied().try_fold(1usize, usize::checked_mul);
    match product.filter(|&product| product <= isize::MAX as usize / 16) {
        Some(_) if shape.contains(&0) => Ok(0),
        Some(product) => Ok(product),
        None => refuse!("has the shape {shape:?}, whose number of elements overflows"),
    }
}

pub(crate) fn fixed(shape: &[usize]) -> Vec<Dim> {
    shape.iter().copied().map(Dim::Fixed).collect()
}

/// Formats a shape, such as `[B, 3, 224, 224]`.
pub(crate) fn show(dims: &[Dim]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", dims.join(", "))
}

/// Returns the index of an axis that may count from the end.
pub(crate) fn axis(axis: i64, rank: usize) -> Result<usize, Refusal> {
    let signed = rank as i64;
    let index = if axis < 0 {
        axis.checked_add(signed)
    } else {
        Some(axis)
    };
    match index.filter(|index| (0..signed).contains(index)) {
        Some(index) => Ok(index as usize),
        None => refuse!("has the axis {axis}, but its operand has {rank} axes"),
    }
}

/// Returns extents that may depend on the batch size.
pub(crate) fn dims(extents: &[Linear]) -> Result<Vec<Dim>, Refusal> {
    if extents.len() > MOST_AXES {
        refuse!(
            "has {} axes, but at most {MOST_AXES} are supported",
            extents.len()
        );
    }
    let mut dims = Vec::with_capacity(extents.len());
    for extent in extents {
        match extent.dim() {
            Some(dim) => dims.push(dim),
            None => refuse!(
                "has the extent {} + {}·B, which is neither fixed nor a multiple of the batch size",
                extent.constant,
                extent.batch
            ),
        }
    }
    Ok(dims)
}

/// Returns the product of extents. Refuses products that are not linear in the batch size.
pub(crate) fn product(extents: impl IntoIterator<Item = Linear>) -> Result<Linear, Refusal> {
    let mut product = Linear::new(1);
    for extent in extents {
        product = match product.checked_mul(extent) {
            Some(product) => product,
            None => {
                refuse!("has a number of elements that overflows, or is not a multiple of the batch size")
            }
        };
    }
    Ok(product)
}

/// Returns the extents of two tensors that are combined element by element.
pub(crate) fn broadcast(x: &[Dim], y: &[Dim]) -> Result<Vec<Dim>, Refusal> {
    let rank = x.len().max(y.len());
    let padded = |dims: &[Dim], index: usize| {
        let missing = rank - dims.len();
        index
            .checked_sub(missing)
            .map_or(Dim::Fixed(1), |index| dims[index])
    };
    let mut dims = Vec::with_capacity(rank);
    for index in 0..rank {
        dims.push(match (padded(x, index), padded(y, index)) {
            (x, y) if x == y => x,
            (Dim::Fixed(1), dim) | (dim, Dim::Fixed(1)) => dim,
            _ => refuse!("cannot broadcast {} and {}", show(x), show(y)),
        });
    }
    Ok(dims)
}
