//! Slice of a tensor along one axis.

use std::fmt;

use super::operands::{exactly, one};
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Pad, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers};
use crate::dtype::DType;
use crate::strided::View;
use crate::value::ValueId;

/// `(x) → the indices start, start + step … of an axis`, as many as `len`. Elements may be of any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Index of the axis.
    pub axis: usize,
    /// First index of the slice.
    pub start: usize,
    /// Number of indices.
    pub len: usize,
    /// Distance between indices, not 0. Negative to reverse the axis.
    pub step: isize,
}

impl Slice {
    /// Returns the slice of consecutive indices.
    pub fn new(axis: usize, start: usize, len: usize) -> Self {
        Self {
            axis,
            start,
            len,
            step: 1,
        }
    }

    /// Returns the view of an operand that is the slice.
    pub fn view(&self, shape: &[usize]) -> View {
        View::of(shape).sliced(self.axis, self.start, self.len, self.step)
    }

    /// Returns the largest index. `None` if an index is negative or not a number of the machine.
    fn largest(&self) -> Option<usize> {
        let last = isize::try_from(self.len.checked_sub(1)?).ok()?;
        let last = self.start.checked_add_signed(last.checked_mul(self.step)?)?;
        (self.step != 0).then_some(last.max(self.start))
    }
}

impl Definition for Slice {
    const NAME: &'static str = "slice";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, start, len, .. } = self;
        match self.step {
            1 => write!(f, " axis {axis} {start}..{}", start + len),
            step => write!(f, " axis {axis} {len} from {start} by {step}"),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        let mut shape = x.to_vec();
        match (shape.get_mut(self.axis), self.largest()) {
            (Some(extent), Some(largest)) if largest < *extent => {
                *extent = self.len;
                one(shape)
            }
            _ => Err(format!("{x:?} does not have this part").into()),
        }
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn elements_read(&self, _index: usize, _operands: &[&[usize]], results: &[Shape]) -> usize {
        results[0].iter().product()
    }

    fn locality(&self, _index: usize) -> Locality {
        if self.axis == 0 {
            Locality::Whole
        } else {
            Locality::Images
        }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let view = self.view(operands[0].shape());
        for (y, index) in results[0].values_mut().iter_mut().zip(view.indices()) {
            *y = operands[0].values()[index];
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            for axis in [1, 2] {
                let start = shape[axis] / 3;
                let len = (shape[axis] - start).div_ceil(2);
                cases.push(Self::new(axis, start, len), vec![activation(&shape)]);
                let every_other = Self {
                    axis,
                    start: 0,
                    len: shape[axis].div_ceil(2),
                    step: 2,
                };
                cases.push(every_other, vec![activation(&shape)]);
            }
            if cases.is_micro() {
                let last = Self {
                    axis: 1,
                    start: 40,
                    len: 14,
                    step: -3,
                };
                cases.push(last, vec![integers(&[3, 41], 50)]);
                let reversed = |axis, extent: usize, step| Self {
                    axis,
                    start: extent - 1,
                    len: 2,
                    step,
                };
                cases.push(reversed(0, 4, -3), vec![activation(&[4, 5])]);
                cases.push(reversed(1, 5, -1), vec![activation(&[4, 5])]);
                cases.push(Self::new(0, 1, 2), vec![activation(&[3, 5, 8])]);
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        if self.step != 1 {
            return Err(OpError::derivative("a slice with a step has no derivative"));
        }
        let gradient = only_gradient(gradients)?;
        let shape = builder.shape(node.inputs[0]);
        let mut pad = Pad::zeros(shape.len());
        pad.before[self.axis] = self.start;
        pad.after[self.axis] = shape[self.axis] - self.start - self.len;
        Ok(vec![Some(builder.push(pad, [gradient])?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_may_skip_and_reverse() {
        let x = Array::new([1, 5], (0..5).map(f64::from).collect()).unwrap();
        let slice = |start, len, step| Slice {
            axis: 1,
            start,
            len,
            step,
        };
        let values = |op: Slice| op.eval(&[&x]).map(|y| y[0].values().to_vec());
        assert_eq!(values(Slice::new(1, 1, 2)).unwrap(), [1.0, 2.0]);
        assert_eq!(values(slice(0, 3, 2)).unwrap(), [0.0, 2.0, 4.0]);
        assert_eq!(values(slice(4, 5, -1)).unwrap(), [4.0, 3.0, 2.0, 1.0, 0.0]);
        for outside in [slice(3, 3, 1), slice(1, 3, -1), slice(0, 0, 1), slice(0, 2, 0)] {
            assert!(values(outside).is_err(), "{outside:?}");
        }
        assert!(values(slice(0, usize::MAX, isize::MAX)).is_err());
    }
}
