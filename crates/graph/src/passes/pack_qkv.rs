//! Packs the projections to queries, keys and values that read the same tokens into one Linear, and keys and values
//! alone where the queries come from elsewhere: one large GEMM is faster than three smaller ones.

use crate::error::Result;
use crate::op::{Attention, AttentionOperands, Op};
use crate::rewrite::{PlainLinear, Rewriter, Rewritten, rewrite, sized};
use crate::tensor::Tensor;
use crate::{Graph, Node, Provenance, Role};

/// Counts the attentions whose projections were packed.
pub(crate) fn run(graph: &Graph) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let Op::Attention(attention) = &node.op else {
            return Ok(None);
        };
        if attention.operands != AttentionOperands::Separate {
            return Ok(None);
        }
        let [q, k, v] = [0, 1, 2].map(|i| rewriter.plain_linear(node.inputs[i]));
        let (Some(k), Some(v)) = (k, v) else {
            return Ok(None);
        };
        if k.x() != v.x() || k.rounding != v.rounding {
            return Ok(None);
        }
        let q = q.filter(|q| q.x() == k.x() && q.rounding == k.rounding);
        let (operands, name, parts) = match q {
            Some(q) => (AttentionOperands::PackedQkv, "qkv", vec![q, k, v]),
            None => (AttentionOperands::PackedKv, "kv", vec![k, v]),
        };
        let name = format!("{}.{name}", node.name);
        let weights: Vec<&Tensor> = parts.iter().map(|part| part.weight).collect();
        let weight = sized(node, Tensor::concat_rows(&weights))?;
        let bias = packed_bias(rewriter, node, &parts)?.map(|(of_parts, bias)| {
            let provenance = Provenance::computed(format!("{name}.bias"), of_parts);
            (provenance, bias)
        });
        let x = rewriter.map(k.x());
        let of_parts = parts.iter().map(|part| rewriter.provenance(part.node.inputs[1]));
        let weight = (Provenance::Joined(of_parts.collect()), weight);
        let packed = rewriter.emit_linear(Role::Qkv, &name, x, weight, bias, k.rounding)?;
        let mut inputs = match operands {
            AttentionOperands::PackedKv => vec![rewriter.map(node.inputs[0]), packed],
            _ => vec![packed],
        };
        inputs.extend(rewriter.map_all(&node.inputs[attention.operands.count()..]));
        let op = Op::Attention(Attention {
            operands,
            ..*attention
        });
        rewriter.emit(node.role, &node.name, op, inputs).map(Some)
    })
}

/// All biases, one after the other, with the provenance of each. Where only some parts have one, the others get zeros.
fn packed_bias(
    rewriter: &Rewriter<'_>,
    node: &Node,
    parts: &[PlainLinear<'_>],
) -> Result<Option<(Vec<Provenance>, Tensor)>> {
    if parts.iter().all(|part| part.bias.is_none()) {
        return Ok(None);
    }
    let biases = parts.iter().map(|part| match part.bias {
        Some(bias) => Ok((rewriter.provenance(part.node.inputs[2]), bias.clone())),
        None => {
            let channels = part.weight.shape()[0];
            let zeros = sized(node, Tensor::from_f32([channels], vec![0.0; channels]))?;
            Ok((Provenance::Number(0.0), zeros))
        }
    });
    let (provenances, biases): (Vec<_>, Vec<Tensor>) =
        biases.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let all = Tensor::concat_rows(&biases.iter().collect::<Vec<_>>());
    Ok(Some((provenances, sized(node, all)?)))
}
