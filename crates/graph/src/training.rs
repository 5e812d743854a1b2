//! Graphs of model builders as training needs them.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node};
use crate::op::{Attention, Op, PatternAttention, Tokens};
use crate::passes::fuse_patches;
use crate::rewrite::{Rewriter, rewrite};
use crate::tensor::Tensor;
use crate::value::{GraphInput, ValueId, ValueKind};

/// Returns `graph` with ops that every device computes although their weights change, in place of ops that
/// [`optimize`](crate::optimize()) only replaces for constant weights: the patch convolution and the tokens before the patches. Attention
/// also writes the statistics of its softmax, so that its derivative does not compute them again.
///
/// The constants of the result are those of `graph`, in another order at most.
///
/// # Errors
///
/// [`Error::Graph`] if the graph is invalid.
pub fn prepare_training(graph: &Graph) -> Result<Graph> {
    let graph = fuse_patches::run(graph, false)?.graph;
    let rewritten = rewrite(&graph, |rewriter, node| match &node.op {
        Op::Prepend(_) => prepend_one_by_one(rewriter, node),
        Op::Attention(spec) if !spec.statistics => {
            let op = Attention {
                statistics: true,
                ..*spec
            };
            emit_as(rewriter, node, op)
        }
        Op::PatternAttention(spec) if !spec.log_sum_exp => {
            let op = PatternAttention {
                log_sum_exp: true,
                ..spec.clone()
            };
            emit_as(rewriter, node, op)
        }
        _ => Ok(None),
    })?;
    Ok(rewritten.graph)
}

/// Emits `node` with another op.
fn emit_as(rewriter: &mut Rewriter<'_>, node: &Node, op: impl Into<Op>) -> Result<Option<ValueId>> {
    let inputs = rewriter.map_all(&node.inputs);
    rewriter.emit(node.role, &node.name, op, inputs).map(Some)
}

/// Emits a prepend of several tokens as an op for each.
fn prepend_one_by_one(rewriter: &mut Rewriter<'_>, node: &Node) -> Result<Option<ValueId>> {
    let Some((&x, prefixes @ [_, ..])) = node.inputs.split_last() else {
        return Ok(None);
    };
    let op = Tokens {
        prefix: true,
        position: false,
    };
    let mut tokens = rewriter.map(x);
    for (index, &prefix) in prefixes.iter().enumerate().rev() {
        let name = match index {
            0 => node.name.clone(),
            _ => format!("{}.{index}", node.name),
        };
        let prefix = rewriter.map(prefix);
        tokens = rewriter.emit(node.role, &name, op, [tokens, prefix])?;
    }
    Ok(Some(tokens))
}

impl Graph {
    /// Makes a constant a parameter, whose elements before the first run are those of the constant. All nodes that read it then read the
    /// parameter.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the value, if it is no constant, or was released.
    pub fn make_parameter(&mut self, id: ValueId) -> Result<()> {
        let value = &mut self.values[id.index()];
        let Some(tensor) = value.constant.take() else {
            return Err(Error::graph(
                &value.name,
                "becomes a parameter, but is no constant, or a constant that was released",
            ));
        };
        value.kind = ValueKind::Parameter;
        value.initial = Some(tensor);
        Ok(())
    }

    /// Makes a constant an f32 input that runs provide by its name, with the same shape for any batch size. Returns the constant's tensor.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the value, if it is no constant, or was released.
    pub fn make_input(&mut self, id: ValueId) -> Result<Tensor> {
        let value = &mut self.values[id.index()];
        let Some(tensor) = value.constant.take() else {
            return Err(Error::graph(
                &value.name,
                "becomes an input, but is no constant, or a constant that was released",
            ));
        };
        value.kind = ValueKind::Input;
        value.dtype = DType::F32;
        value.provenance = None;
        self.more_inputs.push(GraphInput {
            value: id,
            per_image: false,
        });
        Ok(tensor)
    }
}
