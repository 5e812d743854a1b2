//! The largest or smallest elements of rows.

use std::cmp::Ordering;
use std::fmt;

use super::operands::{count, exactly};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers};
use crate::dtype::DType;

/// `(x [..,N]) → (values [..,k], indices [..,k])`: the k largest or smallest elements of each row in order, and their indices in i32.
/// Equal elements are ordered by their index. NaN counts as the largest element.
/// Elements may be of any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK {
    /// Number of elements.
    pub k: usize,
    /// True for the largest elements.
    pub largest: bool,
}

impl TopK {
    /// Writes the indices of the first elements of `row` into `order`, whose capacity is kept.
    pub fn select<T: Real>(&self, row: &[T], order: &mut Vec<usize>) {
        order.clear();
        order.extend(0..row.len());
        let compare = |&a: &usize, &b: &usize| {
            let ordering = ascending(row[a], row[b]);
            let ordering = if self.largest {
                ordering.reverse()
            } else {
                ordering
            };
            ordering.then(a.cmp(&b))
        };
        if self.k < row.len() {
            order.select_nth_unstable_by(self.k, compare);
            order.truncate(self.k);
        }
        order.sort_unstable_by(compare);
    }
}

/// Compares numbers. NaN is larger than all others.
fn ascending<T: Real>(a: T, b: T) -> Ordering {
    let is_nan = |x: T| x.partial_cmp(&x).is_none();
    a.partial_cmp(&b).unwrap_or_else(|| is_nan(a).cmp(&is_nan(b)))
}

impl Definition for TopK {
    const NAME: &'static str = "top_k";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.largest { "largest" } else { "smallest" };
        write!(f, " {} {order}", self.k)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        match x.split_last() {
            Some((&length, outer)) if self.k <= length => {
                let shape = [outer, &[self.k]].concat();
                Ok(vec![shape.clone(), shape])
            }
            _ => Err(format!("cannot take {} elements of the rows of {x:?}", self.k).into()),
        }
    }

    fn result_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            1 => DType::I32,
            _ => dtype,
        }
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let length = operands[0].shape().last().copied().unwrap_or(0);
        if self.k == 0 {
            return;
        }
        let [values, indices] = results else { return };
        let of_results = values.values_mut().chunks_exact_mut(self.k);
        let of_results = of_results.zip(indices.values_mut().chunks_exact_mut(self.k));
        let mut order = Vec::new();
        for (row, (values, indices)) in operands[0].values().chunks_exact(length).zip(of_results) {
            self.select(row, &mut order);
            for ((value, index), &at) in values.iter_mut().zip(indices).zip(&order) {
                *value = row[at];
                *index = T::from_f64(at as f64);
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            for (k, largest) in [(1, true), (channels.div_ceil(3), true), (channels, false)] {
                let x = activation(&[batch, tokens, channels]);
                cases.push(Self { k, largest }, vec![x.clone()]);
                cases.push_result(1, Self { k, largest }, vec![x]);
            }
            if cases.is_micro() {
                let op = Self { k: 5, largest: true };
                cases.push(op, vec![integers(&[3, 300], 50)]);
                cases.push_result(1, op, vec![integers(&[3, 300], 50)]);
                // Long rows, whose starts have different alignments.
                let op = Self { k: 64, largest: true };
                cases.push(op, vec![activation(&[3, 4999])]);
                cases.push_result(1, op, vec![activation(&[3, 4999])]);
                // One with more equal elements than a block keeps.
                for (k, largest, range) in [(1, true, 5000), (64, true, 5000), (7, false, 5000), (5, true, 3)]
                {
                    let op = Self { k, largest };
                    cases.push(op, vec![integers(&[3, 5000], range)]);
                    cases.push_result(1, op, vec![integers(&[3, 5000], range)]);
                }
            }
        });
    }

    /// Elements are moved, and indices are exact.
    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_elements_keep_their_order() {
        let x = Array::new([2, 4], vec![1.0, 3.0, 3.0, -1.0, 0.0, f64::NAN, 5.0, 0.0]).unwrap();
        let largest = TopK { k: 2, largest: true }.eval(&[&x]).unwrap();
        assert_eq!(largest[0].values()[..2], [3.0, 3.0]);
        assert!(largest[0].values()[2].is_nan() && largest[0].values()[3] == 5.0);
        assert_eq!(largest[1].values(), [1.0, 2.0, 1.0, 2.0]);
        let smallest = TopK { k: 3, largest: false }.eval(&[&x]).unwrap();
        assert_eq!(smallest[0].values(), [-1.0, 1.0, 3.0, 0.0, 0.0, 5.0]);
        assert_eq!(smallest[1].values(), [3.0, 0.0, 1.0, 0.0, 3.0, 2.0]);
        assert!(TopK { k: 5, largest: true }.eval(&[&x]).is_err());
    }
}
