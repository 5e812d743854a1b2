//! Patch embeddings: convolutions of the image whose windows do not overlap. A pass makes them a GEMM, with the normalisation of pixels folded
//! into its weights.

use hipvit_graph::op::{Conv, Op, PatchConv, Permute, Reshape};
use hipvit_graph::tensor::Tensor;
use hipvit_graph::{Change, Graph, Layout, Node, Result, Rewriter, ValueId, rewrite};

/// Replaces convolutions of the graph's first input `[B, 3, H, W]`.
pub(super) fn run(graph: &Graph) -> Result<Graph> {
    let rewritten = rewrite(graph, |rewriter, node| match &node.op {
        Op::Conv(conv) if is_patches(conv) => replaced(rewriter, graph, node, conv),
        _ => Ok(None),
    })?;
    Ok(rewritten.graph)
}

fn is_patches(conv: &Conv) -> bool {
    let plain = Conv {
        stride: conv.kernel,
        bias: conv.bias,
        ..Conv::new(conv.kernel)
    };
    *conv == plain && conv.kernel != [1; 2]
}

fn replaced(rewriter: &mut Rewriter<'_>, graph: &Graph, node: &Node, conv: &Conv) -> Result<Option<ValueId>> {
    let Some(moved) = rewriter.producer(node.inputs[0]) else {
        return Ok(None);
    };
    let planes = moved.inputs[0];
    let is_image = matches!(&moved.op, Op::Permute(Permute { axes }) if axes[..] == [0, 2, 3, 1])
        && planes == graph.input()
        && graph.value(planes).shape.get(1) == Some(&3);
    let weight = graph.value(node.inputs[1]);
    let (true, Some(tensor), Some(provenance)) = (is_image, &weight.constant, &weight.provenance) else {
        return Ok(None);
    };
    let Some(tensor) = channels_first(tensor) else {
        return Ok(None);
    };
    let mut inputs = vec![rewriter.map(planes)];
    inputs.push(rewriter.constant(provenance.clone().then(Change::Layout(Layout::Chw)), tensor));
    inputs.extend(rewriter.map_all(&node.inputs[2..]));
    let op = PatchConv {
        patch: conv.kernel,
        bias: conv.bias,
    };
    let patches = rewriter.emit(node.role, &node.name, op, inputs)?;
    let image = Reshape {
        extents: graph.value(node.output()).shape.clone(),
        batch: Some(0),
    };
    let name = format!("{}.image", node.name);
    rewriter.emit(node.role, &name, image, [patches]).map(Some)
}

/// Returns a weight `[D, h, w, 3]` as `[D, 3, h, w]`.
fn channels_first(weight: &Tensor) -> Option<Tensor> {
    let &[features, height, width, channels] = weight.shape() else {
        return None;
    };
    let values = weight.to_f32();
    let area = height * width;
    let mut moved = Vec::with_capacity(values.len());
    for filter in values.chunks_exact(area * channels) {
        for channel in 0..channels {
            moved.extend(filter[channel..].iter().step_by(channels));
        }
    }
    Tensor::from_f32([features, channels, height, width], moved)
}
