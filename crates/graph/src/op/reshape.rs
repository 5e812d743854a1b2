//! Change of a shape.

use std::fmt;

use super::operands::{exactly, one};
use super::{
    Definition, ExpandAs, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::value::ValueId;

/// `(x) → the elements of x, in order, in another shape`. Elements may be of any dtype.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// Extents at batch 1.
    pub extents: Shape,
    /// Index of the extent that grows with the number of elements of x. `None` if the shape is the same for any batch size.
    pub batch: Option<usize>,
}

impl Definition for Reshape {
    const NAME: &'static str = "reshape";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {:?}", self.extents)?;
        match self.batch {
            Some(axis) => write!(f, " batch {axis}"),
            None => Ok(()),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        let mut shape = self.extents.clone();
        let elements: usize = x.iter().product();
        let at_batch_1: usize = shape.iter().product();
        let repeats = elements.checked_div(at_batch_1).unwrap_or(0);
        if repeats == 0 || repeats * at_batch_1 != elements {
            return Err(format!("cannot reshape {x:?} to {shape:?}").into());
        }
        match self.batch.map(|axis| shape.get_mut(axis)) {
            Some(Some(extent)) => *extent *= repeats,
            None if repeats == 1 => {}
            _ => return Err(format!("cannot reshape {x:?} to {shape:?}: no extent grows").into()),
        }
        one(shape)
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        results[0].values_mut().copy_from_slice(operands[0].values());
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            let [_, tokens, channels] = shape;
            let op = Self {
                extents: vec![tokens, 1, channels],
                batch: Some(1),
            };
            cases.push(op.clone(), vec![activation(&shape)]);
            cases.push_in_arena(op, vec![activation(&shape)]);
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
        // A repetition to as many elements.
        let gradient = only_gradient(gradients)?;
        Ok(vec![Some(builder.push(ExpandAs, [gradient, node.inputs[0]])?)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_extent_grows_with_the_batch() {
        let windows = Reshape {
            extents: vec![4, 9, 2],
            batch: Some(0),
        };
        assert_eq!(windows.shapes(&[&[1, 36, 2]]).unwrap(), [[4, 9, 2]]);
        assert_eq!(windows.shapes(&[&[3, 36, 2]]).unwrap(), [[12, 9, 2]]);
        assert!(windows.shapes(&[&[3, 35, 2]]).is_err());
        let fixed = Reshape {
            batch: None,
            ..windows
        };
        assert!(fixed.shapes(&[&[1, 36, 2]]).is_ok());
        assert!(fixed.shapes(&[&[2, 36, 2]]).is_err());
    }
}
