//! The op of `examples/custom_op.rs`, and an op without a computation.

#[path = "../../examples/custom_op.rs"]
#[allow(dead_code, reason = "the example has a main function")]
pub(crate) mod example;

use hipvit::SessionBuilder;
use hipvit::custom::CustomOp;
use hipvit::graph::cases::{Operand, activation, parameter};
use hipvit::graph::{Graph, rewrite};
use hipvit::ops::{LayerNorm, Op, OpError, Shape};
use hipvit::reference::Array;

/// The embedded model has four blocks with two additions each. No LayerNorm follows the last one.
pub(crate) const FUSED: usize = 7;

pub(crate) const EPSILON: f32 = 1e-6;

/// Returns operands of [`AddLayerNorm`] for tokens of this shape.
pub(crate) fn operands(shape: &[usize]) -> Vec<Operand> {
    let channels = [*shape.last().unwrap()];
    vec![
        activation(shape),
        activation(shape),
        parameter(&channels),
        parameter(&channels),
    ]
}

/// Shapes around the block of the example's kernel.
pub(crate) const SHAPES: [[usize; 3]; 4] = [[1, 1, 1], [2, 3, 63], [2, 17, 64], [1, 5, 200]];

/// Returns a builder whose model has this op for the norm `blocks.1.norm2`.
pub(crate) fn with_op(
    builder: SessionBuilder,
    op: impl Fn() -> Op + Send + Sync + 'static,
) -> SessionBuilder {
    builder.rewrite(move |graph: &Graph| {
        let rewritten = rewrite(graph, |rewriter, node| {
            if !matches!(node.op, Op::LayerNorm(LayerNorm { .. })) || !node.name.contains("blocks.1.norm2") {
                return Ok(None);
            }
            let operands = rewriter.map_all(&node.inputs);
            rewriter.emit(node.role, &node.name, op(), operands).map(Some)
        })?;
        assert_eq!(rewritten.changes, 1);
        Ok(rewritten.graph)
    })
}

/// The definition of a LayerNorm without its computation, and without kernels.
#[derive(Debug)]
pub(crate) struct Undefined {
    pub(crate) operands: usize,
}

impl CustomOp for Undefined {
    fn name(&self) -> &'static str {
        "undefined"
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        if operands.len() == self.operands {
            Ok(vec![operands[0].to_vec()])
        } else {
            Err(OpError::Count {
                expected: self.operands,
                found: operands.len(),
            })
        }
    }

    fn reference(&self, _operands: &[&Array], _results: &mut [Array]) {}
}
