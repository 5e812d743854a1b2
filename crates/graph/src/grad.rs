//! Reverse-mode differentiation: the backward pass of a graph, as nodes of a graph.
//!
//! [`grad`] asks each op for its vector-Jacobian product, [`Op::vjp`](crate::op::Op::vjp). Apply it to graphs before
//! [`optimize`](crate::optimize()), which then fuses the forward and the backward pass. Not every fused op has a derivative.
//! [`differentiate`] takes another [`Rule`] for some ops.

mod backward;
mod differentiable;

pub use self::differentiable::Differentiable;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, OutputKind};
use crate::op::{Add, Op};
use crate::value::ValueId;

/// Appends the nodes that propagate gradients back through a node: maps the gradients of its results to those of its operands.
/// [`Op::vjp`](crate::op::Op::vjp) is the rule of derivatives.
pub type Rule<'a> = dyn Fn(&mut Graph, &Node, &[Option<ValueId>]) -> Result<Vec<Option<ValueId>>> + 'a;

/// Appends the backward pass of `output` to `graph`, and returns the gradient of each value that has one, by [`ValueId::index`].
///
/// `seed` is the gradient of `output` and has its shape. Gradients flow to the values `wrt` and to the values that depend on them. Other
/// gradients on the way, such as those of weights that are not in `wrt`, are nodes without a reader.
///
/// # Errors
///
/// [`Error::Graph`] or [`Error::Op`], naming the node that has no derivative.
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
        let of_operands = rule(graph, node, &of_results)?;
        for (id, gradient) in node.inputs.iter().zip(of_operands) {
            let Some(gradient) = gradient.filter(|_| depends[id.index()]) else {
                continue;
            };
            let sum = match gradients[id.index()] {
                Some(sum) => graph.push_backward(node, Add, [sum, gradient])?,
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
/// [`Error::Graph`] if a node has no derivative, or if `output` does not depend on a value of `wrt`.
pub fn grad(graph: &Graph, output: ValueId, wrt: &[ValueId]) -> Result<Graph> {
    let mut graph = graph.clone();
    let name = graph.value(output).name.clone();
    let seed = graph.push_seed(output)?;
    let vjp =
        |graph: &mut Graph, node: &Node, gradients: &[Option<ValueId>]| node.op.vjp(graph, node, gradients);
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

macro_rules! differentiable {
    ($($module:ident: $Op:ident,)*) => {
        $(mod $module;)*

        impl Op {
            /// Vector-Jacobian product: appends the nodes that compute the gradients of `node`'s operands from those of its results. Returns one
            /// gradient per operand, `None` for an operand without a derivative. `gradients` has one entry per result, `None` for a result without
            /// a gradient. At least one entry is set.
            ///
            /// # Errors
            ///
            /// [`Error::Graph`] if the op has no derivative.
            pub fn vjp(
                &self,
                graph: &mut Graph,
                node: &Node,
                gradients: &[Option<ValueId>],
            ) -> Result<Vec<Option<ValueId>>> {
                match self {
                    $(Self::$Op(op) => op.vjp(graph, node, gradients),)*
                    _ => {
                        let reason = format!(
                            "{} has no derivative. Differentiate the graph before it is optimised",
                            self.name()
                        );
                        Err(Error::graph(&node.name, reason))
                    }
                }
            }
        }
    };
}

// Ops with a derivative. The list declares their modules.
differentiable! {
    activation: Activation,
    add: Add,
    affine: Affine,
    attention: Attention,
    concat_channels: ConcatChannels,
    custom: Custom,
    expand_as: ExpandAs,
    layer_norm: LayerNorm,
    linear: Linear,
    mat_mul: MatMul,
    mul: Mul,
    mul_scalar: MulScalar,
    normalize: Normalize,
    patch_conv: PatchConv,
    patch_extract: PatchExtract,
    pool: Pool,
    prepend: Prepend,
    rms_norm: RmsNorm,
    rope: Rope,
    scale: Scale,
    sum_to_size: SumToSize,
    swiglu: SwiGlu,
    tokens: Tokens,
    transpose: Transpose,
}
