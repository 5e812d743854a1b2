//! Derivative of slices by their indices.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{Definition, Locality, OpError, Shape, gather};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers};
use crate::dtype::DType;
use crate::tolerance::tolerance;

/// `(indices, dy) → dx [rows, …]` of a [`Gather`](super::Gather) along the first axis: row i is the sum of the slices of dy at the places of
/// `indices` that hold i. They are added in the order of the places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherBackward {
    /// Number of slices of x.
    pub rows: usize,
}

impl Definition for GatherBackward {
    const NAME: &'static str = "gather_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} rows", self.rows)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [indices, dy] = exactly(operands)?;
        match dy.strip_prefix(indices) {
            Some(inner) if self.rows > 0 => one([&[self.rows], inner].concat()),
            _ => {
                let rows = self.rows;
                Err(format!("cannot add slices of {dy:?} at indices {indices:?} to {rows} rows").into())
            }
        }
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            0 => DType::I32,
            _ => dtype,
        }
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        count(operands[1])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let indices = operands[0].values();
        let inner = results[0].values().len() / self.rows;
        let slices = operands[1].values().chunks_exact(inner.max(1));
        let sums = results[0].values_mut();
        for (&at, slice) in indices.iter().zip(slices) {
            let row = gather::index(at, self.rows) * inner;
            let sums = sums[row..row + inner].iter_mut();
            sums.zip(slice).for_each(|(sum, &value)| *sum += value);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let dy = activation(&[batch, tokens, channels]);
            // Rows without a place, and rows with many.
            for rows in [3, 2 * batch * tokens + 1] {
                let indices = integers(&[batch, tokens], rows as i32);
                cases.push(Self { rows }, vec![indices, dy.clone()]);
            }
        });
    }

    /// A row is the sum of all slices at most.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        tolerance(dtype, operands[0].values().len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_with_equal_indices_are_added() {
        let indices = Array::new([2, 2], vec![2.0, 0.0, -1.0, 9.0]).unwrap();
        let dy = Array::new([2, 2, 2], vec![1.0, 2.0, 3.0, 4.0, 10.0, 20.0, 100.0, 200.0]).unwrap();
        let dx = GatherBackward { rows: 3 }.eval(&[&indices, &dy]).unwrap();
        assert_eq!(dx[0].shape(), [3, 2]);
        assert_eq!(dx[0].values(), [3.0, 4.0, 0.0, 0.0, 111.0, 222.0]);
        assert!(GatherBackward { rows: 0 }.eval(&[&indices, &dy]).is_err());
        assert!(GatherBackward { rows: 3 }.eval(&[&dy, &indices]).is_err());
    }
}
