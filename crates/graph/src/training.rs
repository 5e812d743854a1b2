//! Graphs of model builders as training needs them.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::op::{Op, Tokens};
use crate::passes::fuse_patches;
use crate::rewrite::rewrite;
use crate::tensor::Tensor;
use crate::value::{GraphInput, ValueId, ValueKind};

/// Returns `graph` with ops that every device computes although their weights change, in place of ops that
/// [`optimize`](crate::optimize()) only replaces for constant weights: the patch convolution and the tokens before the patches.
///
/// The constants of the result are those of `graph`, in another order at most.
///
/// # Errors
///
/// [`Error::Graph`] if the graph is invalid.
pub fn prepare_training(graph: &Graph) -> Result<Graph> {
    let graph = fuse_patches::run(graph, false)?.graph;
    let rewritten = rewrite(&graph, |rewriter, node| {
        let (Op::Prepend(_), Some((&x, prefixes @ [_, ..]))) = (&node.op, node.inputs.split_last()) else {
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
    })?;
    Ok(rewritten.graph)
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
