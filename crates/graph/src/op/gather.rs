//! Slices of a tensor by their indices.

use std::fmt;

use super::operands::{exactly, one};
use super::{
    Definition, GatherBackward, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers, parameter};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(x, indices) → the slices of x at these indices of an axis`: the extents of `indices` take the place of the axis. Elements may be of any
/// dtype. A negative index counts from the end. Indices beyond an end become the last or first index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gather {
    /// Index of the axis.
    pub axis: usize,
}

/// Returns the index that an element of `indices` stands for, on an axis of `extent` slices.
pub fn index<T: Real>(element: T, extent: usize) -> usize {
    let (index, extent) = (element.to_f64(), extent as f64);
    let from_start = if index < 0.0 { index + extent } else { index };
    from_start.clamp(0.0, extent - 1.0) as usize
}

/// Returns true if indices of these extents name elements of `x` along the axis: other extents are at most those of `x`.
pub(super) fn fit(x: &[usize], indices: &[usize], axis: usize) -> bool {
    let fits = |(at, (&extent, &most)): (usize, (&usize, &usize))| {
        if at == axis { most > 0 } else { extent <= most }
    };
    axis < x.len() && x.len() == indices.len() && indices.iter().zip(x).enumerate().all(fits)
}

impl Definition for Gather {
    const NAME: &'static str = "gather";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " axis {}", self.axis)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, indices] = exactly(operands)?;
        match x.get(self.axis) {
            Some(&extent) if extent > 0 => {
                let (outer, inner) = (&x[..self.axis], &x[self.axis + 1..]);
                one([outer, indices, inner].concat())
            }
            _ => Err(format!("cannot gather slices of {x:?} along axis {}", self.axis).into()),
        }
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

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], results: &[Shape]) -> usize {
        match index {
            0 => results[0].iter().product(),
            _ => operands[index].iter().product(),
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let (x, indices) = (operands[0], operands[1].values());
        let extent = x.shape()[self.axis];
        let inner: usize = x.shape()[self.axis + 1..].iter().product();
        let slices = x.values().chunks_exact(extent * inner);
        let rows = results[0].values_mut().chunks_exact_mut(indices.len() * inner);
        for (rows, slices) in rows.zip(slices) {
            for (row, &at) in rows.chunks_exact_mut(inner).zip(indices) {
                row.copy_from_slice(&slices[index(at, extent) * inner..][..inner]);
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            // An embedding, tokens, and channels.
            let table = parameter(&[11, channels]);
            cases.push(Self { axis: 0 }, vec![table, integers(&[batch, tokens], 11)]);
            let x = activation(&[batch, tokens, channels]);
            cases.push(Self { axis: 1 }, vec![x.clone(), integers(&[5], tokens as i32)]);
            cases.push(Self { axis: 2 }, vec![x, integers(&[2, 3], channels as i32)]);
            if cases.is_micro() {
                let indices = integers(&[2, 7], 60);
                cases.push(Self { axis: 1 }, vec![integers(&[3, 60], 50), indices]);
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
        if self.axis != 0 {
            return Err(OpError::derivative(
                "slices along another axis than the first have no derivative",
            ));
        }
        let gradient = only_gradient(gradients)?;
        let (x, indices) = (node.inputs[0], node.inputs[1]);
        let op = GatherBackward {
            rows: builder.shape(x)[0],
        };
        Ok(vec![Some(builder.push(op, [indices, gradient])?), None])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_take_the_place_of_the_axis() {
        let x = Array::new([2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let indices = Array::new([1, 4], vec![2.0, -1.0, 0.0, 7.0]).unwrap();
        let y = Gather { axis: 1 }.eval(&[&x, &indices]).unwrap();
        assert_eq!(y[0].shape(), [2, 1, 4]);
        assert_eq!(y[0].values(), [2.0, 2.0, 0.0, 2.0, 5.0, 5.0, 3.0, 5.0]);
        let scalar = Array::new([], vec![-2.0]).unwrap();
        let y = Gather { axis: 0 }.eval(&[&x, &scalar]).unwrap();
        assert_eq!((y[0].shape(), y[0].values()), (&[3][..], &[0.0, 1.0, 2.0][..]));
        assert!(Gather { axis: 2 }.eval(&[&x, &scalar]).is_err());
    }
}
