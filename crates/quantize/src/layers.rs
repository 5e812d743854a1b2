//! The linear layers of a model, and the norms before them.

use std::collections::{BTreeSet, HashMap};

use hipvit::graph::{Graph, Node, ValueId};
use hipvit::ops::Op;

/// Names of the linear layers' weights in the weight file.
pub(super) struct Layers {
    pub(super) quantized: BTreeSet<String>,
    /// Layers that are not quantised, without the suffix `.weight`.
    pub(super) others: Vec<String>,
}

impl Layers {
    pub(super) fn of(graph: &Graph) -> Self {
        let (mut quantized, mut others) = (BTreeSet::new(), BTreeSet::new());
        for node in graph
            .nodes()
            .iter()
            .filter(|node| matches!(node.op, Op::Linear(_)))
        {
            let in_block = node.name.starts_with("blocks.");
            for name in graph.value(node.inputs[1]).tensors() {
                match name.strip_suffix(".weight") {
                    Some(_) if in_block => _ = quantized.insert(name.to_owned()),
                    Some(layer) => _ = others.insert(layer.to_owned()),
                    None => {}
                }
            }
        }
        Self {
            quantized,
            others: others.into_iter().collect(),
        }
    }
}

/// A norm, and the linear layers that are the only readers of its output.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) output: ValueId,
    /// Tensors of the norm.
    pub(super) norm: Vec<String>,
    pub(super) weights: BTreeSet<String>,
}

pub(super) fn groups(graph: &Graph, layers: &Layers) -> Vec<Group> {
    let mut readers: HashMap<ValueId, Vec<&Node>> = HashMap::new();
    for node in graph.nodes() {
        for &id in &node.inputs {
            readers.entry(id).or_default().push(node);
        }
    }
    let is_output = |id| graph.outputs().iter().any(|&(_, output)| output == id);
    let norms = graph.nodes().iter().filter_map(|node| {
        let (Op::LayerNorm(_) | Op::RmsNorm(_)) = node.op else {
            return None;
        };
        let output = node.output();
        let readers = readers.get(&output).filter(|_| !is_output(output))?;
        let mut weights = BTreeSet::new();
        for reader in readers {
            match reader.op {
                Op::Linear(_) if reader.inputs[0] == output => {
                    let names = graph.value(reader.inputs[1]).tensors();
                    weights.extend(names.into_iter().map(str::to_owned));
                }
                _ => return None,
            }
        }
        let all = weights.iter().all(|name| layers.quantized.contains(name));
        // A per-head norm has fewer weights than there are channels.
        let whole = graph.value(node.inputs[1]).shape.last() == graph.value(output).shape.last();
        let norm = node.inputs[1..].iter().flat_map(|&id| graph.value(id).tensors());
        let norm = norm.map(str::to_owned);
        (all && whole).then(|| Group {
            output,
            norm: norm.collect(),
            weights,
        })
    });
    norms.collect()
}
