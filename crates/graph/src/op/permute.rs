//! Permutation of axes.

use std::fmt;

use ndarray::{ArrayView, ArrayViewMut, IxDyn, Zip};

use super::operands::{exactly, one};
use super::{Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(x) → x with its axes in another order`: axis `i` of the result is axis `axes[i]` of x. Elements may be of any dtype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permute {
    /// Axes of x in the order of the result.
    pub axes: Vec<usize>,
}

impl Permute {
    /// Returns the permutation from channels first to channels last, `[B, C, …]` to `[B, …, C]`, of tensors of this rank.
    pub fn to_channels_last(rank: usize) -> Self {
        let axes = (0..rank.min(1)).chain(2..rank).chain(1..rank.min(2));
        Self { axes: axes.collect() }
    }

    /// Returns the permutation that restores the order of axes.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let mut axes = vec![0; self.axes.len()];
        for (to, &from) in self.axes.iter().enumerate() {
            axes[from] = to;
        }
        Self { axes }
    }

    /// Returns the permutation that has the effect of this one followed by `next`.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        Self {
            axes: next.axes.iter().map(|&axis| self.axes[axis]).collect(),
        }
    }

    /// Returns true if the order of axes does not change.
    pub fn is_identity(&self) -> bool {
        self.axes.iter().enumerate().all(|(to, &from)| to == from)
    }
}

impl Definition for Permute {
    const NAME: &'static str = "permute";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {:?}", self.axes)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        let mut sorted = self.axes.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..x.len()) {
            return Err(format!("{:?} is not an order of the axes of {x:?}", self.axes).into());
        }
        one(self.axes.iter().map(|&axis| x[axis]).collect::<Shape>())
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, y] = [operands[0].shape(), results[0].shape()].map(IxDyn);
        let x = ArrayView::from_shape(x, operands[0].values());
        let y = ArrayViewMut::from_shape(y, results[0].values_mut());
        if let (Ok(x), Ok(y)) = (x, y) {
            Zip::from(y)
                .and(x.permuted_axes(&self.axes[..]))
                .par_for_each(|y, &x| *y = x);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        let permute = |axes: &[usize]| Self { axes: axes.into() };
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let split = [batch, tokens, 2, channels];
            cases.push(permute(&[0, 2, 1]), vec![activation(&[batch, tokens, channels])]);
            cases.push(permute(&[2, 0, 1]), vec![activation(&[batch, tokens, channels])]);
            cases.push(permute(&[2, 0, 1, 3]), vec![activation(&split)]);
            if cases.is_micro() {
                cases.push(permute(&[0, 2, 1]), vec![integers(&[2, 9, 70], 50)]);
                // A copy, rows that move, tiles that transpose, and axes that merge with no other.
                cases.push(permute(&[0, 1, 2]), vec![activation(&[2, 3, 8])]);
                cases.push(permute(&[1, 0, 2]), vec![activation(&[5, 3, 16])]);
                cases.push(permute(&[0, 3, 2, 1]), vec![activation(&[2, 33, 5, 37])]);
                cases.push(
                    permute(&[5, 2, 3, 0, 4, 1]),
                    vec![activation(&[2, 3, 2, 5, 2, 3])],
                );
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        _node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let gradient = only_gradient(gradients)?;
        Ok(vec![Some(builder.push(self.inverse(), [gradient])?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_compose() {
        let to_last = Permute::to_channels_last(4);
        assert_eq!(to_last.axes, [0, 2, 3, 1]);
        assert_eq!(to_last.inverse().axes, [0, 3, 1, 2]);
        assert!(to_last.then(&to_last.inverse()).is_identity());
        assert_eq!(Permute::to_channels_last(2).axes, [0, 1]);
        let x = Array::new([1, 2, 3, 1], (0..6).map(f64::from).collect()).unwrap();
        let y = to_last.eval(&[&x]).unwrap();
        assert_eq!(y[0].shape(), [1, 3, 1, 2]);
        assert_eq!(y[0].values(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert!(Permute { axes: vec![0, 0] }.shapes(&[&[2, 2]]).is_err());
    }
}
