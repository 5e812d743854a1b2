//! Elements of a tensor by indices of their own.

use std::fmt;

use super::operands::{exactly, one};
use super::{
    Definition, Gradients, GraphBuilder, Locality, MulScalar, NodeValues, OpError, ScatterElements,
    ScatterReduction, Shape, gather, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(x, indices) → y` with the extents of `indices`: an element of y is that of x at the same place, except for the axis, where `indices`
/// has its index. Extents other than the axis may be smaller than those of x. Elements may be of any dtype. A negative index counts from the
/// end. Indices beyond an end become the last or first index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherElements {
    /// Index of the axis.
    pub axis: usize,
}

impl Definition for GatherElements {
    const NAME: &'static str = "gather_elements";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " axis {}", self.axis)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, indices] = exactly(operands)?;
        if !gather::fit(x, indices, self.axis) {
            let axis = self.axis;
            return Err(format!("cannot gather {indices:?} elements of {x:?} along axis {axis}").into());
        }
        one(indices)
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

    fn elements_read(&self, _index: usize, _operands: &[&[usize]], results: &[Shape]) -> usize {
        results[0].iter().product()
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [x, indices] = [operands[0], operands[1]];
        let mut place = vec![0; indices.shape().len()];
        for (y, &at) in results[0].values_mut().iter_mut().zip(indices.values()) {
            let mut offset = 0;
            for (axis, (&extent, &place)) in x.shape().iter().zip(&place).enumerate() {
                let place = if axis == self.axis {
                    gather::index(at, extent)
                } else {
                    place
                };
                offset = offset * extent + place;
            }
            *y = x.values()[offset];
            for (place, &extent) in place.iter_mut().zip(indices.shape()).rev() {
                *place += 1;
                if *place < extent {
                    break;
                }
                *place = 0;
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let x = activation(&[batch, tokens, channels]);
            let rows = integers(&[batch, 5, channels], tokens as i32);
            cases.push(Self { axis: 1 }, vec![x.clone(), rows]);
            let columns = integers(&[batch, tokens.div_ceil(2), 7], channels as i32);
            cases.push(Self { axis: 2 }, vec![x.clone(), columns]);
            let images = integers(&[2, tokens, channels], batch as i32);
            cases.push(Self { axis: 0 }, vec![x, images]);
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
        let (x, indices) = (node.inputs[0], node.inputs[1]);
        let zeros = builder.push(MulScalar(0.0), [x])?;
        let add = ScatterElements {
            axis: self.axis,
            reduction: ScatterReduction::Add,
        };
        let d_x = builder.push(add, [zeros, indices, only_gradient(gradients)?])?;
        Ok(vec![Some(d_x), None])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_element_has_its_own_index() {
        let x = Array::new([3, 2], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let indices = Array::new([2, 2], vec![2.0, 0.0, -2.0, 9.0]).unwrap();
        let y = GatherElements { axis: 0 }.eval(&[&x, &indices]).unwrap();
        assert_eq!(
            (y[0].shape(), y[0].values()),
            (&[2, 2][..], &[4.0, 1.0, 2.0, 5.0][..])
        );
        let y = GatherElements { axis: 1 }.eval(&[&x, &indices]).unwrap();
        assert_eq!(y[0].values(), [1.0, 0.0, 2.0, 3.0]);
        assert!(GatherElements { axis: 2 }.eval(&[&x, &indices]).is_err());
        assert!(GatherElements { axis: 0 }.eval(&[&indices, &x]).is_ok());
        assert!(GatherElements { axis: 1 }.eval(&[&indices, &x]).is_err());
    }
}
