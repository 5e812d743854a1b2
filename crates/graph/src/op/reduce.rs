//! Sums, means, extrema and norms along axes.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{
    Definition, Expand, Gradients, GraphBuilder, Locality, MulScalar, NodeValues, OpError, Reshape, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, activation};
use crate::dtype::DType;
use crate::softmax::log_sum_exp;
use crate::strided::View;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x) → one number for all elements along some axes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reduce {
    /// The number.
    pub kind: ReduceKind,
    /// Indices of the axes, ascending.
    pub axes: Vec<usize>,
    /// True if the result has an extent of 1 for each of the axes. Otherwise it lacks them.
    pub keep: bool,
}

/// The number that [`Reduce`] computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceKind {
    /// `Σ x`.
    Sum,
    /// `Σ x / n`.
    Mean,
    /// The largest element.
    Max,
    /// The smallest element.
    Min,
    /// `Π x`.
    Prod,
    /// `Σ |x|`.
    L1,
    /// `√Σ x²`.
    L2,
    /// `Σ x²`.
    SumSquare,
    /// `ln Σ eˣ`.
    LogSumExp,
}

impl ReduceKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Sum,
        Self::Mean,
        Self::Max,
        Self::Min,
        Self::Prod,
        Self::L1,
        Self::L2,
        Self::SumSquare,
        Self::LogSumExp,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Max => "max",
            Self::Min => "min",
            Self::Prod => "product",
            Self::L1 => "l1",
            Self::L2 => "l2",
            Self::SumSquare => "sum of squares",
            Self::LogSumExp => "log-sum-exp",
        }
    }

    fn of<T: Real>(self, elements: &[T]) -> T {
        let all = elements.iter().copied();
        match self {
            Self::Sum => all.sum(),
            Self::Mean => all.sum::<T>() / T::from_f64(elements.len() as f64),
            Self::Max => all.fold(T::NEG_INFINITY, T::max),
            Self::Min => -all.map(|x| -x).fold(T::NEG_INFINITY, T::max),
            Self::Prod => all.fold(T::ONE, |product, x| product * x),
            Self::L1 => all.map(T::abs).sum(),
            Self::L2 => all.map(|x| x * x).sum::<T>().sqrt(),
            Self::SumSquare => all.map(|x| x * x).sum(),
            Self::LogSumExp => log_sum_exp(all),
        }
    }
}

impl Reduce {
    /// Returns the view of an operand with the axes last, and the number of elements along them.
    pub fn view(&self, shape: &[usize]) -> (View, usize) {
        let is_kept = |axis: &usize| !self.axes.contains(axis);
        let axes: Vec<usize> = (0..shape.len())
            .filter(is_kept)
            .chain(self.axes.iter().copied())
            .collect();
        let length = self.axes.iter().map(|&axis| shape[axis]).product();
        (View::of(shape).permuted(&axes), length)
    }

    /// Returns the elements before, along and after the axes. `None` if another axis is between them.
    pub fn middle(&self, shape: &[usize]) -> Option<[usize; 3]> {
        let is_long = |axis: &usize| shape[*axis] != 1;
        let mut axes = self.axes.iter().copied().filter(is_long);
        let Some(first) = axes.next() else {
            return Some([shape.iter().product(), 1, 1]);
        };
        let last = axes.next_back().unwrap_or(first);
        let mut between = (first..=last).filter(is_long);
        let is_together = between.all(|axis| self.axes.contains(&axis));
        let [outer, length, inner] = [&shape[..first], &shape[first..=last], &shape[last + 1..]];
        is_together.then(|| [outer, length, inner].map(|extents| extents.iter().product()))
    }
}

impl Definition for Reduce {
    const NAME: &'static str = "reduce";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {} {:?}", self.kind.name(), self.axes)?;
        f.write_str(if self.keep { " keep" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        let is_ascending = self.axes.is_sorted_by(|a, b| a < b);
        if !is_ascending || self.axes.last().is_some_and(|&axis| axis >= x.len()) || count(x) == 0 {
            return Err(format!("cannot reduce the axes {:?} of {x:?}", self.axes).into());
        }
        let extent = |(axis, &extent): (usize, &usize)| {
            if self.axes.contains(&axis) {
                self.keep.then_some(1)
            } else {
                Some(extent)
            }
        };
        one(x.iter().enumerate().filter_map(extent).collect::<Shape>())
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        let of_element = match self.kind {
            ReduceKind::L1 | ReduceKind::L2 | ReduceKind::SumSquare => 2,
            ReduceKind::LogSumExp => 3,
            _ => 1,
        };
        of_element * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let (view, length) = self.view(operands[0].shape());
        let x: Vec<T> = view.indices().map(|index| operands[0].values()[index]).collect();
        for (y, x) in results[0].values_mut().iter_mut().zip(x.chunks_exact(length)) {
            *y = self.kind.of(x);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        let reduce = |kind, axes: &[usize]| Self {
            kind,
            axes: axes.into(),
            keep: true,
        };
        cases.for_each_shape(|cases, shape, every_form| {
            for axes in [&[1][..], &[2], &[1, 2]] {
                cases.push(reduce(ReduceKind::Mean, axes), vec![activation(&shape)]);
            }
            cases.push(reduce(ReduceKind::Sum, &[0]), vec![activation(&shape)]);
            for kind in ReduceKind::ALL.into_iter().filter(|_| every_form) {
                // Products of numbers around 1 neither overflow nor vanish.
                let [mean, spread] = if kind == ReduceKind::Prod {
                    [1.0, 0.1]
                } else {
                    [0.0, 1.0]
                };
                let x = Operand {
                    mean,
                    spread,
                    ..activation(&shape)
                };
                cases.push(reduce(kind, &[2]), vec![x.clone()]);
                cases.push(reduce(kind, &[0, 1]), vec![x]);
            }
            if cases.is_micro() {
                let x = activation(&[2, 3, 5, 7]);
                let without = Self {
                    keep: false,
                    ..reduce(ReduceKind::Sum, &[1, 3])
                };
                cases.push(without, vec![x.clone()]);
                cases.push(reduce(ReduceKind::Max, &[0, 2]), vec![x.clone()]);
                cases.push(reduce(ReduceKind::LogSumExp, &[0, 1, 2, 3]), vec![x]);
            }
        });
    }

    /// A sum of n terms has an error of about `tolerance(n) · √Σx²` if partial sums grow at random. It is divided by the largest result,
    /// which may be small by cancellation.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let (view, length) = self.view(operands[0].shape());
        let x: Vec<f64> = view.indices().map(|index| operands[0].values()[index]).collect();
        let rows = x.chunks_exact(length.max(1));
        let largest = rows
            .clone()
            .map(|row| self.kind.of(row).abs())
            .fold(0.0, f64::max);
        let of_rows = |error: &dyn Fn(&[f64]) -> f64| {
            rows.clone().map(error).fold(0.0, f64::max) / largest.max(f64::MIN_POSITIVE)
        };
        let sum = tolerance(DType::F32, length);
        let l2 = |row: &[f64]| ReduceKind::L2.of(row);
        let errors = match self.kind {
            ReduceKind::Max | ReduceKind::Min => return 0.0,
            ReduceKind::Sum => sum * of_rows(&l2),
            ReduceKind::Mean => sum * of_rows(&l2) / length.max(1) as f64,
            ReduceKind::L1 | ReduceKind::L2 | ReduceKind::SumSquare => sum,
            ReduceKind::Prod => f64::from(f32::EPSILON) * length as f64,
            // Each exponential has the rounding error of its argument, up to the spread of the row.
            ReduceKind::LogSumExp => {
                let spread = |row: &[f64]| {
                    let max = ReduceKind::Max.of(row);
                    1.0 + max.abs() + (max - ReduceKind::Min.of(row))
                };
                sum * of_rows(&spread)
            }
        };
        narrow(dtype) + errors
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let mut gradient = only_gradient(gradients)?;
        let x = node.inputs[0];
        let (shape, at_2) = (builder.shape(x).to_vec(), builder.shape_at(x, 2)?);
        let batch = (0..shape.len()).find(|&axis| shape[axis] != at_2[axis]);
        match self.kind {
            ReduceKind::Sum => {}
            ReduceKind::Mean if batch.is_none_or(|axis| !self.axes.contains(&axis)) => {
                let length: usize = self.axes.iter().map(|&axis| shape[axis]).product();
                gradient = builder.push(MulScalar(1.0 / length as f32), [gradient])?;
            }
            ReduceKind::Mean => return Err(OpError::derivative("a mean over images has no derivative")),
            kind => {
                return Err(OpError::derivative(format!(
                    "its {} has no derivative",
                    kind.name()
                )));
            }
        }
        if !self.keep {
            let kept = |axis: usize| if self.axes.contains(&axis) { 1 } else { shape[axis] };
            let reshape = Reshape {
                extents: (0..shape.len()).map(kept).collect(),
                batch: batch.filter(|axis| !self.axes.contains(axis)),
            };
            gradient = builder.push(reshape, [gradient])?;
        }
        let expand = Expand {
            like: batch.map(|axis| (axis, shape[axis])),
            extents: shape,
            batch,
        };
        let mut operands = vec![gradient];
        operands.extend(batch.map(|_| x));
        Ok(vec![Some(builder.push(expand, operands)?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_that_of_its_name() {
        let x = Array::new([1, 3], vec![1.0, -2.0, 4.0]).unwrap();
        let expected = [
            (ReduceKind::Sum, 3.0),
            (ReduceKind::Mean, 1.0),
            (ReduceKind::Max, 4.0),
            (ReduceKind::Min, -2.0),
            (ReduceKind::Prod, -8.0),
            (ReduceKind::L1, 7.0),
            (ReduceKind::L2, 21f64.sqrt()),
            (ReduceKind::SumSquare, 21.0),
            (
                ReduceKind::LogSumExp,
                (1f64.exp() + (-2f64).exp() + 4f64.exp()).ln(),
            ),
        ];
        for (kind, value) in expected {
            let reduce = Reduce {
                kind,
                axes: vec![1],
                keep: false,
            };
            let y = reduce.eval(&[&x]).unwrap();
            assert_eq!(y[0].shape(), [1]);
            assert!((y[0].values()[0] - value).abs() < 1e-12, "{kind:?}");
        }
    }

    #[test]
    fn axes_may_be_apart() {
        let x = Array::new([2, 3, 2], (0..12).map(f64::from).collect()).unwrap();
        let reduce = Reduce {
            kind: ReduceKind::Sum,
            axes: vec![0, 2],
            keep: true,
        };
        let y = reduce.eval(&[&x]).unwrap();
        assert_eq!(
            (y[0].shape(), y[0].values()),
            (&[1, 3, 1][..], &[14.0, 22.0, 30.0][..])
        );
        assert_eq!(reduce.middle(&[2, 3, 2]), None);
        assert_eq!(reduce.middle(&[2, 1, 5, 7]), Some([1, 10, 7]));
        assert_eq!(reduce.middle(&[4, 3, 1]), Some([1, 4, 3]));
        assert_eq!(reduce.middle(&[1, 3, 1]), Some([3, 1, 1]));
        let descending = Reduce {
            axes: vec![2, 0],
            ..reduce
        };
        assert!(descending.eval(&[&x]).is_err());
    }
}
