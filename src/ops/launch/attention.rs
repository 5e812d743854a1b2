//! The fused attention kernel, `attention_<D>_<dtype>`.

use super::{Launch, Properties, launch, pack};
use crate::DType;

/// The head sizes that there are entries for; a head takes the first that it fits.
pub const HEAD_DIMS: [u32; 5] = [32, 64, 80, 96, 128];

/// Queries of a block, at least, and waves that share them. Blocks that take more leave some with nothing to do.
const QUERIES: u64 = 64;
const WAVES: u32 = 4;

/// A bound of [`Visibility`](super::arguments::Visibility) that keeps nothing out.
pub const UNBOUNDED: i32 = i32::MAX;

/// What a launch of attention is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Images of the batch.
    pub images: u64,
    /// Heads of an image.
    pub heads: u64,
    /// Queries of a head.
    pub queries: u64,
    /// Channels of a head.
    pub head_dim: u32,
}

/// The size of the entry that takes heads of `head_dim` channels. Where there is none, attention is two products and a
/// softmax.
pub fn entry_dim(head_dim: u32) -> Option<u32> {
    HEAD_DIMS.into_iter().find(|d| (1..=*d).contains(&head_dim))
}

/// The op part of the entry's name, and the launch.
///
/// # Errors
/// There is no kernel for heads of this size, or the device cannot launch it.
pub fn plan(shape: Shape, dtype: DType, properties: &Properties) -> Result<(String, Launch), String> {
    let head_dim = shape.head_dim;
    let padded = entry_dim(head_dim)
        .ok_or_else(|| format!("has heads of {head_dim} channels; the fused kernel takes 1 to 128"))?;
    let blocks = shape.images * shape.heads * shape.queries.div_ceil(QUERIES);
    let launch = launch(
        blocks,
        WAVES * properties.wave_size,
        lds_bytes(padded, dtype),
        properties,
    )?;
    Ok((format!("attention_{padded}"), launch))
}

/// The most LDS that the kernel's layouts take: a tile of K, and one of V as it is or transposed; or all queries.
fn lds_bytes(head_dim: u32, dtype: DType) -> u32 {
    let pad = pack(dtype) as u32;
    let keys = if dtype == DType::F32 { 32 } else { 64 };
    let row = head_dim + pad;
    let values = (keys * row).max(head_dim * (keys + pad));
    (keys * row + values).max(QUERIES as u32 * row) * dtype.size() as u32
}
