//! Division of tensors among ranks.

use std::fmt;

use crate::array::{Array, Real};
use crate::op::OpError;

/// What ranks compute from their tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExchangeKind {
    /// Every rank gets the sums over the ranks.
    Sum,
    /// Each rank gets its part of the sums: of each tensor as many elements as the others, in the order of the ranks. The last parts are
    /// padded with zeros.
    Scatter,
    /// Every rank gets the tensors whose parts the ranks have.
    Gather,
}

impl fmt::Display for ExchangeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Scatter => "scatter",
            Self::Gather => "gather",
        })
    }
}

/// Returns the number of elements of each rank's part of a tensor with `elements` elements.
pub fn part_len(elements: usize, ranks: usize) -> usize {
    elements.div_ceil(ranks)
}

/// Returns the part of `rank`, padded with zeros.
pub(super) fn padded_part<T: Real>(values: &[T], rank: usize, ranks: usize) -> Vec<T> {
    let len = part_len(values.len(), ranks);
    let start = (rank * len).min(values.len());
    let end = (start + len).min(values.len());
    let mut part = values[start..end].to_vec();
    part.resize(len, T::ZERO);
    part
}

/// Returns the parts of all tensors, with the first rank's parts first.
pub(super) fn padded<T: Real>(tensors: &[&Array<T>], ranks: usize) -> Vec<T> {
    let of_rank = |rank| {
        tensors
            .iter()
            .flat_map(move |tensor| padded_part(tensor.values(), rank, ranks))
    };
    (0..ranks).flat_map(of_rank).collect()
}

/// Returns a tensor of these elements.
pub(super) fn array<T: Real, const N: usize>(shape: [usize; N], values: Vec<T>) -> Result<Array<T>, OpError> {
    Array::new(shape, values).ok_or_else(|| "has no elements of its shape".into())
}
