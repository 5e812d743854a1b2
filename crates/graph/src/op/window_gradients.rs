//! Gradients of convolutions, as nodes of permutations and convolutions.
//!
//! A convolution and a transposed convolution of the same windows are adjoint, so each is the derivative of the other with respect to its image.
//! The gradient of a weight is a convolution too: images become channels, and the smaller map is its kernel.

use super::{Conv, GraphBuilder, OpError, Permute, Slice};
use crate::value::ValueId;

/// Windows of both convolutions.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowAttributes {
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) padding: [[usize; 2]; 2],
}

/// Refuses groups of channels, whose derivative is not composed.
pub(super) fn refuse_groups(groups: usize) -> Result<(), OpError> {
    if groups == 1 {
        return Ok(());
    }
    Err(OpError::derivative(format!(
        "a convolution in {groups} groups has no derivative"
    )))
}

/// Returns a weight `[K,kh,kw,C]` as `[C,kh,kw,K]`.
pub(super) fn swapped(builder: &mut dyn GraphBuilder, weight: ValueId) -> Result<ValueId, OpError> {
    let permute = Permute {
        axes: vec![3, 1, 2, 0],
    };
    builder.push(permute, [weight])
}

/// Returns `Σ large[b, i·stride + t·dilation − before, c] · small[b, i, k]` over images b and pixels i, as `[c, t, k]`.
pub(super) fn of_weight(
    builder: &mut dyn GraphBuilder,
    [large, small]: [ValueId; 2],
    windows: WindowAttributes,
) -> Result<ValueId, OpError> {
    let [large, small] = [swapped(builder, large)?, swapped(builder, small)?];
    let kernel = sides(builder, small)?;
    let conv = Conv {
        stride: windows.dilation,
        dilation: windows.stride,
        padding: windows.padding,
        ..Conv::new(kernel)
    };
    let product = builder.push(conv, [large, small])?;
    cut(builder, product, windows.kernel)
}

/// Returns the first rows and columns of a map `[B,H,W,C]`.
pub(super) fn cut(
    builder: &mut dyn GraphBuilder,
    mut map: ValueId,
    extents: [usize; 2],
) -> Result<ValueId, OpError> {
    for (axis, side) in extents.into_iter().enumerate() {
        if sides(builder, map)?[axis] != side {
            map = builder.push(Slice::new(1 + axis, 0, side), [map])?;
        }
    }
    Ok(map)
}

/// Returns the rows and columns of a map `[B,H,W,C]`.
pub(super) fn sides(builder: &dyn GraphBuilder, map: ValueId) -> Result<[usize; 2], OpError> {
    match *builder.shape(map) {
        [_, rows, columns, _] => Ok([rows, columns]),
        _ => Err(OpError::derivative("is no map")),
    }
}
