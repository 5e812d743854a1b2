//! Repetition along axes by NumPy's rules of broadcasting.

use std::fmt;

use super::operands::one;
use super::{
    Definition, ExpandAs, Gradients, GraphBuilder, Locality, NodeValues, OpError, Reduce, ReduceKind, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::strided::View;
use crate::value::ValueId;

/// `(x, like?) → x, repeated to a shape` by NumPy's rules: axes are aligned at the last one, and missing axes and extents of 1 repeat.
/// Elements may be of any dtype. The elements of `like` are not read. <https://numpy.org/doc/stable/user/basics.broadcasting.html>
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expand {
    /// Extents at batch 1.
    pub extents: Shape,
    /// Index of the extent that grows with the batch. Without `like`, it is that of x.
    pub batch: Option<usize>,
    /// The operand `like` exists if this is `Some((axis, extent))`. The batch is its extent `axis` divided by `extent`.
    pub like: Option<(usize, usize)>,
}

impl Expand {
    /// Returns the number of times that extent `batch` is repeated for this batch.
    fn batch(&self, like: Option<&[usize]>) -> Option<usize> {
        let (axis, extent) = self.like?;
        let of_like = *like?.get(axis)?;
        (extent > 0 && of_like.is_multiple_of(extent)).then(|| of_like / extent)
    }

    fn shape(&self, x: &[usize], like: Option<&[usize]>) -> Option<Shape> {
        let mut shape = self.extents.clone();
        let missing = shape.len().checked_sub(x.len())?;
        if let Some(axis) = self.batch {
            let extent = shape.get_mut(axis)?;
            match self.like {
                Some(_) => *extent *= self.batch(like)?,
                None => *extent = *x.get(axis.checked_sub(missing)?)?,
            }
        }
        let mut pairs = x.iter().zip(&shape[missing..]);
        pairs
            .all(|(&own, &extent)| own == extent || own == 1)
            .then_some(shape)
    }
}

impl Definition for Expand {
    const NAME: &'static str = "expand";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {:?}", self.extents)?;
        match self.batch {
            Some(axis) => write!(f, " batch {axis}"),
            None => Ok(()),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let expected = 1 + usize::from(self.like.is_some());
        let (Some((x, rest)), true) = (operands.split_first(), operands.len() == expected) else {
            return Err(OpError::Count {
                expected,
                found: operands.len(),
            });
        };
        match self.shape(x, rest.first().copied()) {
            Some(shape) => one(shape),
            None => Err(format!("cannot expand {operands:?} to {:?}", self.extents).into()),
        }
    }

    fn keeps_dtype_of(&self) -> Option<usize> {
        Some(0)
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], _results: &[Shape]) -> usize {
        match index {
            0 => operands[0].iter().product(),
            _ => 0,
        }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let view = View::of(operands[0].shape()).expanded(results[0].shape());
        for (y, index) in results[0].values_mut().iter_mut().zip(view.indices()) {
            *y = operands[0].values()[index];
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let op = Self {
                extents: vec![1, tokens, channels],
                batch: Some(0),
                like: Some((0, 1)),
            };
            let like = activation(&[batch, 2]);
            for x in [&[1, channels][..], &[tokens, 1], &[1, tokens, channels]] {
                cases.push(op.clone(), vec![activation(x), like.clone()]);
            }
            let fixed = Self {
                extents: vec![batch, 3, tokens, channels],
                batch: None,
                like: None,
            };
            cases.push(fixed, vec![activation(&[batch, 1, tokens, channels])]);
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
        let x = node.inputs[0];
        let result = builder.shape_at(node.outputs[0], 2)?;
        let own = builder.shape_at(x, 2)?;
        let missing = result.len() - own.len();
        let is_repeated = |&axis: &usize| axis < missing || own[axis - missing] != result[axis];
        let axes: Vec<usize> = (0..result.len()).filter(is_repeated).collect();
        let mut sum = gradient;
        if !axes.is_empty() {
            let reduce = Reduce {
                kind: ReduceKind::Sum,
                axes,
                keep: false,
            };
            sum = builder.push(reduce, [gradient])?;
        }
        let mut gradients = vec![Some(builder.push(ExpandAs, [sum, x])?)];
        gradients.extend(self.like.map(|_| None));
        Ok(gradients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_is_that_of_the_second_operand() {
        let op = Expand {
            extents: vec![2, 3, 4],
            batch: Some(0),
            like: Some((1, 5)),
        };
        assert_eq!(op.shapes(&[&[3, 1], &[7, 5]]).unwrap(), [[2, 3, 4]]);
        assert_eq!(op.shapes(&[&[3, 1], &[7, 15]]).unwrap(), [[6, 3, 4]]);
        for invalid in [&[&[3, 1][..], &[7, 6]][..], &[&[3, 2], &[7, 5]], &[&[3, 1]]] {
            assert!(op.shapes(invalid).is_err(), "{invalid:?}");
        }
        let own = Expand {
            extents: vec![2, 3],
            batch: Some(0),
            like: None,
        };
        assert_eq!(own.shapes(&[&[2, 1]]).unwrap(), [[2, 3]]);
        assert_eq!(own.shapes(&[&[4, 1]]).unwrap(), [[4, 3]]);
        assert!(own.shapes(&[&[1]]).is_err());
        let x = Array::new([2, 1], vec![1.0, 2.0]).unwrap();
        assert_eq!(
            own.eval(&[&x]).unwrap()[0].values(),
            [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
        );
    }
}
