//! NumPy broadcasting of operands to a result.

use crate::op::{OpError, Shape};

/// Returns the shape of the result of operands of these shapes by NumPy's rules.
///
/// # Errors
///
/// [`OpError`] if extents differ and none of them is 1.
pub(super) fn shape(operands: &[&[usize]]) -> Result<Shape, OpError> {
    let rank = operands.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![1; rank];
    for shape in operands {
        let axes = result[rank - shape.len()..].iter_mut();
        for (to, &extent) in axes.zip(*shape) {
            match (*to, extent) {
                (_, 1) => {}
                (1, extent) => *to = extent,
                (found, extent) if found == extent => {}
                _ => return Err(format!("cannot broadcast the shapes {operands:?} to one").into()),
            }
        }
    }
    Ok(result)
}

/// Extents of a result and strides of its operands, in elements. Axes that all operands traverse alike are one axis. The last stride of an
/// operand is 0 or 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// Extents of the result, outermost first. At least one.
    pub extents: Vec<usize>,
    /// For each operand, its strides. 0 for an axis along which it repeats.
    pub strides: Vec<Vec<usize>>,
}

impl Broadcast {
    /// Creates the strides of operands of shapes that broadcast to `result`.
    pub fn new(operands: &[&[usize]], result: &[usize]) -> Self {
        let strides = operands.iter().map(|shape| strides(shape, result.len()));
        let mut all = Self {
            extents: result.to_vec(),
            strides: strides.collect(),
        };
        for axis in (0..result.len()).rev() {
            all.merge(axis);
        }
        if all.extents.is_empty() {
            all.extents.push(1);
            all.strides.iter_mut().for_each(|strides| strides.push(0));
        }
        all
    }

    /// Removes the axis if its extent is 1, or if one step along it is the same as all steps along the next axis.
    fn merge(&mut self, axis: usize) {
        let extent = self.extents[axis];
        if extent == 1 {
            self.remove(axis);
            return;
        }
        let Some(&inner) = self.extents.get(axis + 1) else {
            return;
        };
        if self.strides.iter().all(|s| s[axis] == s[axis + 1] * inner) {
            self.extents[axis + 1] *= extent;
            self.remove(axis);
        }
    }

    fn remove(&mut self, axis: usize) {
        self.extents.remove(axis);
        for strides in &mut self.strides {
            strides.remove(axis);
        }
    }

    /// Returns the number of elements of the result.
    pub fn count(&self) -> usize {
        self.extents.iter().product()
    }

    /// Returns true if the operand has an element of its own for each element of the result, in the same order.
    pub fn is_whole(&self, operand: usize) -> bool {
        matches!(self.strides[operand].as_slice(), [1]) || self.count() == 1
    }

    /// Writes the elements of an operand for the result's elements from number `start` on.
    pub fn gather<T: Copy>(&self, operand: usize, values: &[T], start: usize, out: &mut [T]) {
        let strides = &self.strides[operand];
        let last = self.extents.len() - 1;
        let (inner, stride) = (self.extents[last], strides[last]);
        let mut position = start;
        let mut out = out;
        while !out.is_empty() {
            let (mut row, column) = (position / inner, position % inner);
            let mut offset = column * stride;
            for (&extent, &stride) in self.extents[..last].iter().zip(strides).rev() {
                offset += row % extent * stride;
                row /= extent;
            }
            let len = (inner - column).min(out.len());
            let (piece, rest) = out.split_at_mut(len);
            if stride == 0 {
                piece.fill(values[offset]);
            } else {
                piece.copy_from_slice(&values[offset..offset + len]);
            }
            position += len;
            out = rest;
        }
    }
}

/// Returns the strides of a row-major operand along the `rank` axes of a result. 0 for an axis along which it repeats.
fn strides(shape: &[usize], rank: usize) -> Vec<usize> {
    let mut strides = vec![0; rank];
    let mut step = 1;
    for (to, &extent) in strides.iter_mut().rev().zip(shape.iter().rev()) {
        if extent != 1 {
            *to = step;
        }
        step *= extent;
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_of_numpy() {
        assert_eq!(shape(&[&[2, 1, 4], &[3, 1], &[]]).unwrap(), [2, 3, 4]);
        assert_eq!(shape(&[&[]]).unwrap(), [0; 0]);
        let error = shape(&[&[2, 3], &[4]]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot broadcast the shapes [[2, 3], [4]] to one"
        );
    }

    #[test]
    fn axes_are_merged() {
        for (operands, result, extents) in [
            (vec![&[2, 3, 4][..], &[2, 3, 4]], vec![2, 3, 4], vec![24]),
            (vec![&[2, 3, 4], &[]], vec![2, 3, 4], vec![24]),
            (vec![&[2, 3, 4], &[4]], vec![2, 3, 4], vec![6, 4]),
            (vec![&[2, 3, 4], &[2, 1, 1]], vec![2, 3, 4], vec![2, 12]),
            (
                vec![&[2, 3, 1, 4], &[2, 1, 5, 4]],
                vec![2, 3, 5, 4],
                vec![2, 3, 5, 4],
            ),
            (vec![&[1, 1]], vec![1, 1], vec![1]),
        ] {
            let broadcast = Broadcast::new(&operands, &result);
            assert_eq!(broadcast.extents, extents);
            assert!(broadcast.strides.iter().all(|s| s.len() == extents.len()));
            assert!(broadcast.strides.iter().flatten().all(|&s| s <= 20));
        }
        let broadcast = Broadcast::new(&[&[2, 3, 4], &[2, 1, 4], &[]], &[2, 3, 4]);
        assert_eq!(broadcast.strides, [[12, 4, 1], [4, 0, 1], [0, 0, 0]]);
        assert!(!broadcast.is_whole(0) && !broadcast.is_whole(2));
    }

    #[test]
    fn elements_are_those_of_the_indices() {
        let shapes: [&[usize]; 3] = [&[2, 3, 1, 5], &[4, 1], &[2, 1, 4, 5]];
        let result = shape(&shapes).unwrap();
        let broadcast = Broadcast::new(&shapes, &result);
        for (operand, of_operand) in shapes.iter().enumerate() {
            let values: Vec<usize> = (0..of_operand.iter().product()).collect();
            for (start, len) in [(0, 120), (7, 50), (119, 1)] {
                let mut out = vec![0; len];
                broadcast.gather(operand, &values, start, &mut out);
                for (index, &found) in out.iter().enumerate() {
                    let mut rest = start + index;
                    let mut indices = [0; 4];
                    for axis in (0..4).rev() {
                        indices[axis] = rest % result[axis];
                        rest /= result[axis];
                    }
                    let own = &indices[4 - of_operand.len()..];
                    let expected = own.iter().zip(*of_operand).fold(0, |offset, (&index, &extent)| {
                        offset * extent + if extent == 1 { 0 } else { index }
                    });
                    assert_eq!(found, expected);
                }
            }
        }
    }
}
