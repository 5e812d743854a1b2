//! Transposition of each image's tokens and channels.

use super::Array;
use super::array::extents;
use crate::ops::{Combine, Transpose};

pub(super) fn transpose(spec: Transpose, operands: &[&Array], result: &mut Array) {
    let [_, kept, width] = extents(result);
    let (rows, columns) = (width - spec.pad, kept + spec.crop);
    let x = operands[0].values();
    let other = operands.last().map_or(&[] as &[f64], |y| y.values());
    for (i, v) in result.values_mut().iter_mut().enumerate() {
        let (image, column, row) = (i / width / kept, i / width % kept, i % width);
        let mut value = 0.0;
        if row < rows {
            value = x[(image * rows + row) * columns + column];
            if spec.scale {
                value *= operands[1].values()[row];
            }
        }
        *v = match spec.combine {
            None => value,
            Some(Combine::Add) => value + other[i],
            Some(Combine::Multiply) => value * other[i],
        };
    }
}
