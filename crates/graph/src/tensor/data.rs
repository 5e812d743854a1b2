//! Representation of tensors. An assembled tensor consists of parts of other tensors.

use std::ops::Range;
use std::sync::Arc;

use crate::dtype::DType;

/// Bytes at a stable address while a [`Tensor`] refers to them, such as a mapped file.
pub trait Bytes: AsRef<[u8]> + Send + Sync {}
impl<T: AsRef<[u8]> + Send + Sync> Bytes for T {}

/// A constant of a model: row-major, contiguous, cheap to clone.
#[derive(Clone)]
pub struct Tensor {
    pub(super) shape: Vec<usize>,
    pub(super) dtype: DType,
    pub(super) data: Data,
}

/// Storage of a tensor's elements.
#[derive(Clone)]
pub(super) enum Data {
    Owned(Arc<[f32]>),
    /// Little-endian elements of `dtype` at `range` of `bytes`.
    View {
        bytes: Arc<dyn Bytes>,
        range: Range<usize>,
        /// True if the bytes belong to a weight file.
        mapped: bool,
    },
    /// 8-bit elements at `range` of `bytes`, with the scale `scales[i]` for those of row i.
    Scaled {
        bytes: Arc<dyn Bytes>,
        range: Range<usize>,
        mapped: bool,
        scales: Arc<[f32]>,
    },
    /// Rows of other tensors, one after the other. They are written where they are read.
    Assembled(Arc<[Part]>),
}

/// Rows of an assembled tensor.
#[derive(Clone)]
pub(super) struct Part {
    /// Stored elements: never an assembled tensor.
    pub(super) tensor: Tensor,
    /// One factor for each row of `tensor` in each list. They are multiplied in this order, and each product is rounded to f32.
    pub(super) factors: Vec<Arc<[f32]>>,
}
