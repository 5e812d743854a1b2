//! The SwiGLU gate.

mod gate;

pub use self::gate::SwiGlu;
pub(super) use self::gate::{gate, shape};
use super::activation::wide;
use super::operands::{count, exactly, one};
use super::{
    Definition, Division, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, SwiGluBackward,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

impl Definition for SwiGlu {
    const NAME: &'static str = "swiglu";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        one(shape(x)?)
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        Self::FLOPS_PER_ELEMENT * count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn tokenwise(&self) -> Option<Vec<usize>> {
        Some(vec![0])
    }

    fn division(&self, blocks: usize) -> Option<Division> {
        (blocks == 1).then(|| Division::of_channels(2))
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        gate(operands[0], &mut results[0]);
    }

    fn cases(cases: &mut Cases<Self>) {
        let factor = if let Scale::Model { .. } = cases.scale() {
            4
        } else {
            1
        };
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let channels = (factor * channels).next_multiple_of(2);
            cases.push(Self, vec![wide(&[batch, tokens, channels])]);
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
        let gradient = only_gradient(gradients)?;
        let backward = SwiGluBackward { secant: false };
        let d_x = builder.push(backward, [node.inputs[0], gradient])?;
        Ok(vec![Some(d_x)])
    }
}
