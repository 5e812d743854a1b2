//! Reverse-mode differentiation: the backward pass of a graph, as nodes of a graph.
//!
//! [`grad`] asks each op for its vector-Jacobian product, [`Op::vjp`](crate::op::Op::vjp). Apply it to graphs before
//! [`optimize`](crate::optimize()), which then fuses the forward and the backward pass. Not every fused op has a derivative.
//! [`differentiate`] takes another [`Rule`] for some ops.

use crate::backward::Backward;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, OutputKind};
use crate::op::{Add, Gradients, GraphBuilder, OpError};
use crate::value::ValueId;

/// Appends the nodes that propagate gradients back through a node: maps the gradients of its results to those of its operands.
/// [`Op::vjp`](crate::op::Op::vjp) is the rule of derivatives.
pub type Rule<'a> =
    dyn Fn(&mut dyn GraphBuilder, &Node, &[Option<ValueId>]) -> Result<Gradients, OpError> + 'a;

/// Appends the backward pass of `output` to `graph`, and returns the gradient of each value that has one, by [`ValueId::index`].
///
/// `seed` is the gradient of `output` and has its shape. Gradients flow to the values `wrt` and to the values that depend on them. Other
/// gradients on the way, such as those of weights that are not in `wrt`, are nodes without a reader.
///
/// # Errors
///
/// [`Error::Op`], naming the node that has no derivative.
pub fn differentiate(
    graph: &mut Graph,
    [output, seed]: [ValueId; 2],
    wrt: &[ValueId],
    rule: &Rule<'_>,
) -> Result<Vec<Option<ValueId>>> {
    let nodes = graph.nodes().to_vec();
    let mut depends = vec![false; graph.values().len()];
    wrt.iter().for_each(|id| depends[id.index()] = true);
    for node in &nodes {
        let depends_on = node.inputs.iter().any(|id| depends[id.index()]);
        for id in node.outputs.iter().filter(|_| depends_on) {
            depends[id.index()] = true;
        }
    }
    let mut gradients = vec![None; depends.len()];
    gradients[output.index()] = depends[output.index()].then_some(seed);
    for node in nodes.iter().rev() {
        let of_results: Vec<Option<ValueId>> = node.outputs.iter().map(|id| gradients[id.index()]).collect();
        let wanted = node.inputs.iter().any(|id| depends[id.index()]);
        if !wanted || of_results.iter().all(Option::is_none) {
            continue;
        }
        let error = |source| Error::op(&node.name, &node.op, source);
        let mut backward = Backward::new(graph, node);
        let of_operands = rule(&mut backward, node, &of_results).map_err(error)?;
        for (id, gradient) in node.inputs.iter().zip(of_operands) {
            let Some(gradient) = gradient.filter(|_| depends[id.index()]) else {
                continue;
            };
            let sum = match gradients[id.index()] {
                Some(sum) => backward.push(Add, [sum, gradient]).map_err(error)?,
                None => gradient,
            };
            gradients[id.index()] = Some(sum);
        }
    }
    Ok(gradients)
}

/// Returns `graph` with its backward pass. The outputs [`OutputKind::Gradient`] are the derivatives with respect to each of `wrt`, in
/// order, of the sum of `output` over all elements and images. Sums have a fixed order, so that equal runs give equal bits.
///
/// # Errors
///
/// [`Error::Op`] if a node has no derivative. [`Error::Graph`] if `output` does not depend on a value of `wrt`.
pub fn grad(graph: &Graph, output: ValueId, wrt: &[ValueId]) -> Result<Graph> {
    let mut graph = graph.clone();
    let name = graph.value(output).name.clone();
    let seed = graph.push_seed(output)?;
    let vjp = |builder: &mut dyn GraphBuilder, node: &Node, gradients: &[Option<ValueId>]| {
        node.op.vjp(builder, node.values(), gradients)
    };
    let gradients = differentiate(&mut graph, [output, seed], wrt, &vjp)?;
    for (index, id) in wrt.iter().enumerate() {
        let Some(gradient) = gradients[id.index()] else {
            let reason = format!("`{name}` does not depend on it, or has no derivative with respect to it");
            return Err(Error::graph(&graph.value(*id).name, reason));
        };
        graph.set_output(OutputKind::Gradient(index), gradient);
    }
    Ok(graph.without_dead_code())
}
