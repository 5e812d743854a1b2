//! Elements of a tensor that are replaced or combined with others, by indices of their own.

use std::fmt;

use super::operands::{count, exactly, expect, one};
use super::{Definition, Locality, OpError, Shape, gather};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers};
use crate::dtype::DType;
use crate::strided::strides;
use crate::tolerance::{narrow, rounded, tolerance};

/// `(x, indices, updates) → y` with the extents of x: an element of `updates` goes to the same place, except for the axis, where `indices` has its
/// index. Updates of one element are applied in order. Extents of the updates other than the axis may be smaller than those of x. Elements may
/// be of any dtype. A negative index counts from the end. Indices beyond an end become the last or first index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScatterElements {
    /// Index of the axis.
    pub axis: usize,
    /// What an update does to its element.
    pub reduction: ScatterReduction,
}

/// What an update does to its element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduction {
    /// It replaces the element.
    Replace,
    /// It is added.
    Add,
    /// It is a factor.
    Mul,
    /// The larger one stays.
    Max,
    /// The smaller one stays.
    Min,
}

impl ScatterReduction {
    /// All reductions.
    pub const ALL: [Self; 5] = [Self::Replace, Self::Add, Self::Mul, Self::Max, Self::Min];

    fn apply<T: Real>(self, x: T, update: T) -> T {
        match self {
            Self::Replace => update,
            Self::Add => x + update,
            Self::Mul => x * update,
            Self::Max => x.max(update),
            Self::Min => -(-x).max(-update),
        }
    }
}

/// Places of the updates in a tensor.
#[derive(Clone, Debug)]
pub struct Places {
    /// Extents of x before the axis, and the strides of the updates there.
    outer: Vec<(usize, usize, usize)>,
    extent: usize,
    updates: usize,
    /// Elements of x and of the updates for each index of the axis.
    inner: [usize; 2],
    /// Place in x of each element of the updates behind the axis.
    places: Vec<usize>,
    op: ScatterElements,
}

impl ScatterElements {
    /// Returns the places of updates `[..indices]` in a tensor `[..x]`.
    pub fn places(&self, x: &[usize], indices: &[usize]) -> Places {
        let axis = self.axis;
        let distances = strides(indices);
        let outer = (0..axis).map(|at| (x[at], indices[at], distances[at].unsigned_abs()));
        let (of_x, of_indices) = (&x[axis + 1..], &indices[axis + 1..]);
        let steps = strides(of_x);
        let inner: [usize; 2] = [of_x, of_indices].map(|extents| extents.iter().product());
        let place = |index: usize| {
            let (mut rest, mut place) = (index, 0);
            for (&extent, step) in of_indices.iter().zip(&steps).rev() {
                place += rest % extent * step.unsigned_abs();
                rest /= extent;
            }
            place
        };
        Places {
            outer: outer.collect(),
            extent: x[axis],
            updates: indices[axis],
            inner,
            places: (0..inner[1]).map(place).collect(),
            op: *self,
        }
    }
}

impl Places {
    /// Returns the number of elements of a slab: those of x from the axis on.
    pub fn slab(&self) -> usize {
        self.extent * self.inner[0]
    }

    /// Applies the updates of slab `index` to its elements.
    pub fn apply<T: Real>(&self, index: usize, slab: &mut [T], indices: &[T], updates: &[T]) {
        let (mut rest, mut start) = (index, 0);
        for &(extent, of_updates, distance) in self.outer.iter().rev() {
            let at = rest % extent;
            if at >= of_updates {
                return;
            }
            start += at * distance;
            rest /= extent;
        }
        let [of_x, of_updates] = self.inner;
        for update in 0..self.updates {
            let row = start + update * of_updates;
            for (offset, &place) in self.places.iter().enumerate() {
                let at = gather::index(indices[row + offset], self.extent);
                let y = &mut slab[at * of_x + place];
                *y = self.op.reduction.apply(*y, updates[row + offset]);
            }
        }
    }
}

impl Definition for ScatterElements {
    const NAME: &'static str = "scatter_elements";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " axis {}", self.axis)?;
        f.write_str(match self.reduction {
            ScatterReduction::Replace => "",
            ScatterReduction::Add => " add",
            ScatterReduction::Mul => " mul",
            ScatterReduction::Max => " max",
            ScatterReduction::Min => " min",
        })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, indices, updates] = exactly(operands)?;
        if !gather::fit(x, indices, self.axis) {
            let axis = self.axis;
            return Err(format!("cannot scatter {indices:?} elements to {x:?} along axis {axis}").into());
        }
        expect("updates", updates, indices)?;
        one(x)
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            1 => DType::I32,
            _ => dtype,
        }
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        match self.reduction {
            ScatterReduction::Replace => 0,
            _ => count(operands[1]),
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let places = self.places(operands[0].shape(), operands[1].shape());
        let y = results[0].values_mut();
        y.copy_from_slice(operands[0].values());
        for (index, slab) in y.chunks_exact_mut(places.slab().max(1)).enumerate() {
            places.apply(index, slab, operands[1].values(), operands[2].values());
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let x = activation(&[batch, tokens, channels]);
            for reduction in ScatterReduction::ALL {
                let op = |axis| Self { axis, reduction };
                let rows = [batch, 5, channels];
                cases.push(
                    op(1),
                    vec![x.clone(), integers(&rows, tokens as i32), activation(&rows)],
                );
                let columns = [batch, tokens.div_ceil(2), 7];
                cases.push(
                    op(2),
                    vec![
                        x.clone(),
                        integers(&columns, channels as i32),
                        activation(&columns),
                    ],
                );
            }
            let op = Self {
                axis: 0,
                reduction: ScatterReduction::Add,
            };
            let images = [4, tokens, channels];
            cases.push(op, vec![x, integers(&images, batch as i32), activation(&images)]);
            if cases.is_micro() {
                let updates = integers(&[3, 20], 15);
                cases.push(
                    Self { axis: 1, ..op },
                    vec![integers(&[3, 60], 50), integers(&[3, 20], 60), updates],
                );
            }
        });
    }

    /// Moved elements are exact. A sum or product has a rounding for each update of an element, relative to the largest partial result.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let updates = operands[1].shape()[self.axis];
        match self.reduction {
            ScatterReduction::Add => narrow(dtype) + tolerance(DType::F32, updates),
            ScatterReduction::Mul => rounded(dtype, updates as f64),
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_go_to_their_indices_in_order() {
        let x = Array::new([3, 2], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let indices = Array::new([3, 1], vec![2.0, -3.0, 2.0]).unwrap();
        let updates = Array::new([3, 1], vec![10.0, -7.0, 3.0]).unwrap();
        let y = |axis, reduction| {
            let op = ScatterElements { axis, reduction };
            op.eval(&[&x, &indices, &updates]).unwrap()[0].values().to_vec()
        };
        assert_eq!(y(0, ScatterReduction::Replace), [-7.0, 1.0, 2.0, 3.0, 3.0, 5.0]);
        assert_eq!(y(0, ScatterReduction::Add), [-7.0, 1.0, 2.0, 3.0, 17.0, 5.0]);
        assert_eq!(y(0, ScatterReduction::Mul), [0.0, 1.0, 2.0, 3.0, 120.0, 5.0]);
        assert_eq!(y(0, ScatterReduction::Max), [0.0, 1.0, 2.0, 3.0, 10.0, 5.0]);
        assert_eq!(y(0, ScatterReduction::Min), [-7.0, 1.0, 2.0, 3.0, 3.0, 5.0]);
        // Indices beyond an end are those of the end.
        assert_eq!(y(1, ScatterReduction::Replace), [0.0, 10.0, -7.0, 3.0, 4.0, 3.0]);
        let op = ScatterElements {
            axis: 0,
            reduction: ScatterReduction::Replace,
        };
        assert!(op.eval(&[&x, &indices, &x]).is_err());
        assert!(op.eval(&[&indices, &x, &x]).is_err());
        assert!(
            ScatterElements { axis: 1, ..op }
                .eval(&[&indices, &x, &x])
                .is_ok()
        );
    }
}
