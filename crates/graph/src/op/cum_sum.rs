//! Running sums along an axis.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, activation, integers};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(x) → y`: an element of y is the sum of the elements of x up to it along an axis. Elements may be of any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CumSum {
    /// Index of the axis.
    pub axis: usize,
    /// True if an element is not part of its own sum.
    pub exclusive: bool,
    /// True for the sums of the elements from it on.
    pub reverse: bool,
}

impl Definition for CumSum {
    const NAME: &'static str = "cum_sum";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " axis {}", self.axis)?;
        f.write_str(if self.exclusive { " exclusive" } else { "" })?;
        f.write_str(if self.reverse { " reverse" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        if self.axis >= x.len() {
            return Err(format!("cannot sum {x:?} along axis {}", self.axis).into());
        }
        one(x)
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let shape = operands[0].shape();
        let extent = shape[self.axis];
        let inner: usize = shape[self.axis + 1..].iter().product();
        if extent * inner == 0 {
            return;
        }
        let mut sums = vec![T::ZERO; inner];
        let slabs = operands[0].values().chunks_exact(extent * inner);
        for (x, y) in slabs.zip(results[0].values_mut().chunks_exact_mut(extent * inner)) {
            sums.fill(T::ZERO);
            for step in 0..extent {
                let row = if self.reverse { extent - 1 - step } else { step };
                let row = row * inner..(row + 1) * inner;
                for ((sum, &x), y) in sums.iter_mut().zip(&x[row.clone()]).zip(&mut y[row]) {
                    let before = *sum;
                    *sum += x;
                    *y = if self.exclusive { before } else { *sum };
                }
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            for (axis, exclusive, reverse) in [
                (1, false, false),
                (2, true, false),
                (2, false, true),
                (0, true, true),
            ] {
                let op = Self {
                    axis,
                    exclusive,
                    reverse,
                };
                cases.push(op, vec![activation(&shape)]);
            }
            let op = Self {
                axis: 1,
                exclusive: false,
                reverse: false,
            };
            let positive = Operand {
                mean: 0.5,
                spread: 0.25,
                ..activation(&shape)
            };
            cases.push(op, vec![positive]);
            if cases.is_micro() {
                cases.push(op, vec![integers(&[3, 20], 15)]);
            }
        });
    }

    /// A sum of n terms has an error of up to n/2 roundings of the largest partial sum, about √n of them at random.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let most = |array: &Array| array.values().iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let result = self.eval(operands).ok().map_or(0.0, |results| most(&results[0]));
        // A result of zeros alone is exact.
        let ratio = if result > 0.0 {
            most(operands[0]) / result
        } else {
            1.0
        };
        narrow(dtype) + tolerance(DType::F32, operands[0].shape()[self.axis]) * ratio.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_run_along_the_axis() {
        let x = Array::new([2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let sums = |axis, exclusive, reverse| {
            let op = CumSum {
                axis,
                exclusive,
                reverse,
            };
            op.eval(&[&x]).unwrap()[0].values().to_vec()
        };
        assert_eq!(sums(1, false, false), [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
        assert_eq!(sums(1, true, false), [0.0, 1.0, 3.0, 0.0, 4.0, 9.0]);
        assert_eq!(sums(1, false, true), [6.0, 5.0, 3.0, 15.0, 11.0, 6.0]);
        assert_eq!(sums(0, true, true), [4.0, 5.0, 6.0, 0.0, 0.0, 0.0]);
    }
}
