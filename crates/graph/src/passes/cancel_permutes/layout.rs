//! Orders of axes.

use crate::op::{Reshape, Shape};

/// Extents of a value at two batch sizes, which tell the extent that grows with the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extents {
    pub(super) at_1: Shape,
    pub(super) at_2: Shape,
}

impl Extents {
    /// Returns the extents with axes of 1 before the others.
    pub(super) fn with_rank(mut self, rank: usize) -> Self {
        for shape in [&mut self.at_1, &mut self.at_2] {
            let missing = rank.saturating_sub(shape.len());
            shape.splice(0..0, std::iter::repeat_n(1, missing));
        }
        self
    }

    /// Returns the extents with axis `i` at place `axes[i]`.
    pub(super) fn permuted(&self, axes: &[usize]) -> Self {
        Self {
            at_1: scattered(&self.at_1, axes),
            at_2: scattered(&self.at_2, axes),
        }
    }

    /// Returns the reshape to these extents.
    pub(super) fn reshape(&self) -> Reshape {
        Reshape {
            batch: (0..self.at_1.len()).find(|&axis| self.at_1[axis] != self.at_2[axis]),
            extents: self.at_1.clone(),
        }
    }
}

/// Returns `values` with element `i` at place `axes[i]`.
pub(super) fn scattered(values: &[usize], axes: &[usize]) -> Vec<usize> {
    let mut placed = vec![0; values.len()];
    for (&value, &axis) in values.iter().zip(axes) {
        placed[axis] = value;
    }
    placed
}

/// Returns the permutation that undoes `axes`.
pub(super) fn inverse(axes: &[usize]) -> Vec<usize> {
    scattered(&(0..axes.len()).collect::<Vec<_>>(), axes)
}

/// Returns the permutation of a base of which `from` are the axes of a value, to a base of which `to` are.
pub(super) fn between(from: &[usize], to: &[usize]) -> Vec<usize> {
    scattered(from, to)
}

/// Returns true if a permutation to a result of these extents moves no element: it only moves axes of extent 1.
pub(super) fn keeps_order(axes: &[usize], result: &[usize]) -> bool {
    let moved = axes.iter().zip(result).filter(|&(_, &extent)| extent != 1);
    moved.map(|(axis, _)| axis).is_sorted()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_compose() {
        let to_first = [0, 3, 1, 2];
        assert_eq!(inverse(&to_first), [0, 2, 3, 1]);
        assert_eq!(between(&to_first, &to_first), [0, 1, 2, 3]);
        assert_eq!(between(&to_first, &[0, 1, 2, 3]), to_first);
        assert_eq!(between(&[0, 1, 2, 3], &to_first), inverse(&to_first));
        assert!(keeps_order(&to_first, &[2, 5, 1, 1]));
        assert!(!keeps_order(&to_first, &[2, 5, 3, 1]));
    }
}
