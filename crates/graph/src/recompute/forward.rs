//! The forward pass of a training step, as recomputation sees it.

use crate::error::{Error, Result};
use crate::graph::{Graph, OutputKind};
use crate::op::Op;
use crate::plan::{Plan, Step};
use crate::tensor::DType;
use crate::value::ValueId;

/// Floating-point operations in the time in which a device reads or writes one byte, in 16 bits and in f32. Rounded figures of current GPUs:
/// matrix products at 600 and 150 TFLOP/s, memory at 3 TB/s.
const FLOPS_PER_BYTE: [f64; 2] = [200.0, 50.0];

/// The forward pass of a training step: which of its values can be recomputed, at what cost.
pub(super) struct Forward<'a> {
    pub(super) graph: &'a Graph,
    /// Number of nodes up to the loss.
    pub(super) len: usize,
    /// Node of the forward pass that computes each value, by [`ValueId::index`].
    pub(super) producers: Vec<Option<usize>>,
    pub(super) uses: Vec<Use>,
    /// Bytes of each value in the arena.
    pub(super) bytes: Vec<usize>,
    /// Values that live until the end of a run.
    pub(super) is_result: Vec<bool>,
    /// Cost of each node of the forward pass, in bytes moved.
    pub(super) costs: Vec<f64>,
    /// Floating-point operations of each node.
    pub(super) flops: Vec<u64>,
}

/// Part of a value in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Always read from where it is.
    Kept,
    /// Read by the backward pass, which can recompute it.
    Recomputable,
    /// Not read by the backward pass. Recomputed for values that depend on it.
    Transient,
}

impl<'a> Forward<'a> {
    pub(super) fn new(plan: &'a Plan) -> Result<Self> {
        let graph: &Graph = plan.graph();
        let loss = graph.outputs().iter().find(|(kind, _)| *kind == OutputKind::Loss);
        let is_loss = |index: &usize| loss.is_some_and(|(_, id)| graph.nodes()[*index].outputs.contains(id));
        let Some(last) = (0..graph.nodes().len()).find(is_loss) else {
            return Err(Error::argument(
                "recomputation",
                "the graph has no loss, so it is no training step",
            ));
        };
        let len = last + 1;
        let mut producers = vec![None; graph.values().len()];
        for (index, node) in graph.nodes()[..len].iter().enumerate() {
            node.outputs
                .iter()
                .for_each(|id| producers[id.index()] = Some(index));
        }
        let mut is_result = vec![false; graph.values().len()];
        let outputs = graph.outputs().iter().map(|(_, id)| id);
        for id in outputs.chain(graph.updates().iter().map(|(_, id)| id)) {
            is_result[id.index()] = true;
        }
        let mut bytes = vec![0; graph.values().len()];
        for buffer in plan.buffers() {
            bytes[buffer.value.index()] = buffer.bytes;
        }
        let rate = FLOPS_PER_BYTE[usize::from(plan.dtype() == DType::F32)];
        let cost = |step: &Step| (step.bytes_read + step.bytes_written) as f64 + step.flops as f64 / rate;
        Ok(Self {
            uses: uses(graph, len, &producers, &is_result),
            costs: plan.steps()[..len].iter().map(cost).collect(),
            flops: plan.steps().iter().map(|step| step.flops).collect(),
            graph,
            len,
            producers,
            bytes,
            is_result,
        })
    }

    /// Returns true if the backward pass computes the value again where it needs it.
    pub(super) fn is_recomputed(&self, id: ValueId, dropped: &[bool]) -> bool {
        match self.uses[id.index()] {
            Use::Kept => false,
            Use::Recomputable => dropped[id.index()],
            Use::Transient => true,
        }
    }
}

/// Returns the part of each value in the backward pass, by [`ValueId::index`]. The forward pass has the first `len` nodes.
fn uses(graph: &Graph, len: usize, producers: &[Option<usize>], is_result: &[bool]) -> Vec<Use> {
    let (forward, backward) = graph.nodes().split_at(len);
    let mut uses = vec![Use::Kept; graph.values().len()];
    for node in forward {
        // Ranks enter collectives together, and in order.
        if matches!(
            node.op,
            Op::AllReduce(_) | Op::Exchange(_) | Op::ExchangeResult(_)
        ) {
            continue;
        }
        for id in node.outputs.iter().filter(|id| !is_result[id.index()]) {
            uses[id.index()] = Use::Transient;
        }
    }
    for id in backward.iter().flat_map(|node| &node.inputs) {
        if uses[id.index()] == Use::Transient {
            uses[id.index()] = Use::Recomputable;
        }
    }
    // Blocks start from what is kept.
    for node in forward {
        for id in &node.inputs {
            let producer = producers[id.index()].map(|index| &forward[index]);
            if producer.is_some_and(|producer| producer.block() != node.block()) {
                uses[id.index()] = Use::Kept;
            }
        }
    }
    uses
}
