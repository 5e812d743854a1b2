//! Slice of a tensor along one axis.

use std::fmt;

use super::operands::{exactly, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;

/// `(x) → x[.., start..start + len, ..]` along an axis after the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Index of the axis, at least 1.
    pub axis: usize,
    /// First index of the slice.
    pub start: usize,
    /// Length of the slice.
    pub len: usize,
}

impl Definition for Slice {
    const NAME: &'static str = "slice";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " axis {} {}..{}", self.axis, self.start, self.start + self.len)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        let mut shape = x.to_vec();
        match shape.get_mut(self.axis) {
            Some(extent) if self.axis > 0 && self.len > 0 && self.start + self.len <= *extent => {
                *extent = self.len;
                one(shape)
            }
            _ => Err(format!("{x:?} does not have this part").into()),
        }
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn elements_read(&self, _index: usize, _operands: &[&[usize]], results: &[Shape]) -> usize {
        results[0].iter().product()
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let shape = operands[0].shape();
        let inner: usize = shape[self.axis + 1..].iter().product();
        let from = operands[0].values().chunks_exact(shape[self.axis] * inner);
        let to = results[0].values_mut().chunks_exact_mut(self.len * inner);
        for (to, from) in to.zip(from) {
            to.copy_from_slice(&from[self.start * inner..][..self.len * inner]);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            for axis in [1, 2] {
                let start = shape[axis] / 3;
                let op = Self {
                    axis,
                    start,
                    len: (shape[axis] - start).div_ceil(2),
                };
                cases.push(op, vec![activation(&shape)]);
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }
}
