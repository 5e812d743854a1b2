//! Activation functions.

mod function;

use std::fmt;

pub use self::function::{ACTIVATIONS, Activation};
use super::operands::{count, exactly, one};
use super::{
    ActivationBackward, Definition, Division, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, Scale, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

impl Definition for Activation {
    const NAME: &'static str = "activation";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " {}", (*self).name())
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        one(x)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        self.flops_per_element() * count(&results[0])
    }

    fn may_alias(&self) -> Option<usize> {
        Some(0)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn division(&self, blocks: usize) -> Option<Division> {
        Some(Division::of_channels(blocks))
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        for (y, &x) in results[0].values_mut().iter_mut().zip(operands[0].values()) {
            *y = self.apply(x);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        type ShapeOf = fn([usize; 3]) -> [usize; 3];
        let (every, shape_of): (bool, ShapeOf) = match cases.scale() {
            Scale::Model { every_form, .. } => (every_form, |[batch, tokens, channels]| {
                [batch, tokens, 4 * channels]
            }),
            _ => (true, |shape| shape),
        };
        let activations = if every {
            &ACTIVATIONS[..]
        } else {
            &ACTIVATIONS[..1]
        };
        cases.for_each_shape(|cases, shape, every_form| {
            for &activation in activations {
                cases.push(activation, vec![wide(&shape_of(shape))]);
                if every_form {
                    cases.push_in_arena(activation, vec![wide(&shape_of(shape))]);
                }
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, 1)
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let backward = ActivationBackward {
            activation: *self,
            secant: false,
            sums: false,
        };
        let gradient = only_gradient(gradients)?;
        let d_x = builder.push(backward, [node.inputs[0], gradient])?;
        Ok(vec![Some(d_x)])
    }
}

/// Returns an activation that reaches into the range where the functions are linear.
pub fn wide(shape: &[usize]) -> Operand {
    Operand {
        spread: 6.0,
        ..activation(shape)
    }
}
