//! Concatenation along an axis.

use std::fmt;

use super::operands::one;
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, Slice, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(x …) → the operands after each other along an axis`. Their other extents are equal. Elements may be of any dtype, the same for all
/// operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concat {
    /// Index of the axis.
    pub axis: usize,
}

impl Definition for Concat {
    const NAME: &'static str = "concat";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " axis {}", self.axis)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let axis = self.axis;
        let Some((first, rest)) = operands.split_first() else {
            return Err("takes at least 1 operand".into());
        };
        let mut shape = first.to_vec();
        if axis >= shape.len() {
            return Err(format!("{shape:?} has no axis {axis}").into());
        }
        for x in rest {
            let is_like =
                x.len() == shape.len() && (0..x.len()).all(|other| other == axis || x[other] == shape[other]);
            if !is_like {
                return Err(format!("cannot concatenate {operands:?} along axis {axis}").into());
            }
            shape[axis] += x[axis];
        }
        one(shape)
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let row = |x: &Array<T>| x.shape()[self.axis..].iter().product::<usize>();
        let width = row(&results[0]);
        let mut start = 0;
        for x in operands {
            let len = row(x);
            let rows = results[0].values_mut().chunks_exact_mut(width);
            for (y, x) in rows.zip(x.values().chunks_exact(len)) {
                y[start..start + len].copy_from_slice(x);
            }
            start += len;
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let x = activation(&[batch, tokens, channels]);
            cases.push(
                Self { axis: 1 },
                vec![activation(&[batch, channels]), activation(&[batch, 7])],
            );
            cases.push(
                Self { axis: 2 },
                vec![x.clone(), x.clone(), activation(&[batch, tokens, 8])],
            );
            cases.push(
                Self { axis: 1 },
                vec![x.clone(), activation(&[batch, 3, channels]), x.clone()],
            );
            cases.push(Self { axis: 0 }, vec![x.clone(), x]);
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
        let gradient = only_gradient(gradients)?;
        let (mut start, mut parts) = (0, Vec::with_capacity(node.inputs.len()));
        for &id in node.inputs {
            let len = builder.shape(id)[self.axis];
            let slice = Slice::new(self.axis, start, len);
            parts.push(Some(builder.push(slice, [gradient])?));
            start += len;
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_follow_each_other_along_the_axis() {
        let array = |shape: [usize; 2], values: &[f64]| Array::new(shape, values.to_vec()).unwrap();
        let (x, y) = (array([2, 1], &[1.0, 2.0]), array([2, 2], &[3.0, 4.0, 5.0, 6.0]));
        let joined = Concat { axis: 1 }.eval(&[&x, &y]).unwrap();
        assert_eq!(joined[0].values(), [1.0, 3.0, 4.0, 2.0, 5.0, 6.0]);
        let joined = Concat { axis: 0 }.eval(&[&y, &y]).unwrap();
        assert_eq!(joined[0].shape(), [4, 2]);
        assert!(Concat { axis: 0 }.eval(&[&x, &y]).is_err());
        assert!(Concat { axis: 2 }.eval(&[&x]).is_err());
    }
}
