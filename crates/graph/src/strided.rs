//! Strided views of row-major tensors: transpositions, slices and repetitions without copies.

use crate::op::Shape;

/// Elements of a row-major tensor in another order. The element at the indices `i` is element `offset + Σ i·strides` of the tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Extents of the view, outermost first.
    pub extents: Shape,
    /// Distance in elements between neighbours along each axis. Negative if the view reverses the axis, 0 if it repeats elements.
    pub strides: Vec<isize>,
    /// Index of the first element.
    pub offset: usize,
}

impl View {
    /// Returns the view of a whole tensor.
    pub fn of(shape: &[usize]) -> Self {
        Self {
            extents: shape.to_vec(),
            strides: strides(shape),
            offset: 0,
        }
    }

    /// Returns the view with its axes in the order `axes`, a permutation.
    #[must_use]
    pub fn permuted(&self, axes: &[usize]) -> Self {
        Self {
            extents: axes.iter().map(|&axis| self.extents[axis]).collect(),
            strides: axes.iter().map(|&axis| self.strides[axis]).collect(),
            offset: self.offset,
        }
    }

    /// Returns the view of `len` indices of an axis: `start`, `start + step` and so on. They must be within the axis.
    #[must_use]
    pub fn sliced(mut self, axis: usize, start: usize, len: usize, step: isize) -> Self {
        self.offset = self
            .offset
            .wrapping_add_signed(self.strides[axis] * start as isize);
        self.extents[axis] = len;
        self.strides[axis] *= step;
        self
    }

    /// Returns the view repeated to `extents` by NumPy's rules of broadcasting. The extents must be valid.
    #[must_use]
    pub fn expanded(&self, extents: &[usize]) -> Self {
        let missing = extents.len() - self.extents.len();
        let stride = |axis: usize| match axis.checked_sub(missing) {
            Some(own) if self.extents[own] == extents[axis] => self.strides[own],
            _ => 0,
        };
        Self {
            extents: extents.to_vec(),
            strides: (0..extents.len()).map(stride).collect(),
            offset: self.offset,
        }
    }

    /// Returns the same elements in the same order with the fewest axes.
    #[must_use]
    pub fn merged(&self) -> Self {
        let mut merged = Self {
            extents: Vec::with_capacity(self.extents.len()),
            strides: Vec::with_capacity(self.extents.len()),
            offset: self.offset,
        };
        for (&extent, &stride) in self.extents.iter().zip(&self.strides) {
            if extent == 1 {
                continue;
            }
            match (merged.extents.last_mut(), merged.strides.last_mut()) {
                (Some(outer), Some(outer_stride)) if *outer_stride == stride * extent as isize => {
                    *outer *= extent;
                    *outer_stride = stride;
                }
                _ => {
                    merged.extents.push(extent);
                    merged.strides.push(stride);
                }
            }
        }
        merged
    }

    /// Returns the number of elements of the view.
    pub fn len(&self) -> usize {
        self.extents.iter().product()
    }

    /// Returns true if the view has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the index in the tensor of each element, in the order of the view.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        let mut at = vec![0; self.extents.len()];
        let mut next = self.offset;
        (0..self.len()).map(move |_| {
            let index = next;
            for (axis, position) in at.iter_mut().enumerate().rev() {
                *position += 1;
                next = next.wrapping_add_signed(self.strides[axis]);
                if *position < self.extents[axis] {
                    break;
                }
                next = next.wrapping_add_signed(-self.strides[axis] * *position as isize);
                *position = 0;
            }
            index
        })
    }
}

/// Returns the strides of a row-major tensor.
pub fn strides(shape: &[usize]) -> Vec<isize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis] as isize;
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_those_of_numpy() {
        let indices = |view: &View| view.indices().collect::<Vec<_>>();
        let x = View::of(&[2, 3]);
        assert_eq!(indices(&x), [0, 1, 2, 3, 4, 5]);
        assert_eq!(indices(&x.permuted(&[1, 0])), [0, 3, 1, 4, 2, 5]);
        assert_eq!(indices(&x.clone().sliced(1, 2, 2, -2)), [2, 0, 5, 3]);
        let repeated = View::of(&[3, 1]).expanded(&[2, 3, 2]);
        assert_eq!(indices(&repeated), [0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2]);
        assert_eq!(indices(&View::of(&[])), [0]);
    }

    #[test]
    fn merged_axes_keep_the_order() {
        let x = View::of(&[2, 3, 4, 5]);
        assert_eq!(x.merged().extents, [120]);
        for view in [
            x.permuted(&[0, 2, 3, 1]),
            x.permuted(&[2, 3, 0, 1]),
            x.clone().sliced(1, 0, 2, 1),
            View::of(&[1, 4, 5]).expanded(&[3, 4, 5]),
        ] {
            let merged = view.merged();
            assert!(merged.extents.len() < view.extents.len());
            assert!(view.indices().eq(merged.indices()));
        }
    }
}
