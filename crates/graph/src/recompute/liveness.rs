//! Live bytes of a step with recomputations.

use super::clones::Clones;
use super::forward::Forward;
use crate::value::ValueId;

/// The peak of live bytes, and what is only kept there.
pub(super) struct Liveness {
    /// Most bytes that live at the same time.
    pub(super) peak: usize,
    /// Index of a node at the peak.
    at: usize,
    spans: Vec<Span>,
}

/// Nodes that compute and read a value. All are `usize::MAX` for a value that is not the result of a node.
#[derive(Clone, Copy)]
struct Span {
    first: usize,
    /// Last node of the forward pass that computes or reads the value.
    last_forward: usize,
    /// First node of the backward pass that reads the value.
    first_backward: usize,
    last: usize,
}

impl Liveness {
    pub(super) fn new(forward: &Forward<'_>, clones: &Clones) -> Self {
        let originals = clones.originals().iter().map(|id| id.index());
        let of_value: Vec<usize> = (0..forward.bytes.len()).chain(originals).collect();
        let bytes = |id: ValueId| forward.bytes[of_value[id.index()]];
        let ends = |id: ValueId| forward.is_result.get(id.index()) != Some(&true);
        let spans = spans(forward, clones, of_value.len());
        let (mut peak, mut at, mut live) = (0, 0, 0);
        for (index, node) in clones.nodes.iter().enumerate() {
            let is_over = |id: &ValueId| spans[id.index()].last == index && ends(*id);
            let overwritten = node.op.may_alias().and_then(|operand| node.inputs.get(operand));
            let reused = overwritten.filter(|id| is_over(id) && bytes(**id) == bytes(node.output()));
            let reused = reused.map_or(0, |&id| bytes(id));
            live += node.outputs.iter().map(|&id| bytes(id)).sum::<usize>();
            if live - reused > peak {
                (peak, at) = (live - reused, index);
            }
            let mut over: Vec<ValueId> = node.inputs.iter().chain(&node.outputs).copied().collect();
            over.sort_unstable();
            over.dedup();
            live -= over
                .iter()
                .filter(|id| is_over(id))
                .map(|&id| bytes(id))
                .sum::<usize>();
        }
        Self { peak, at, spans }
    }

    /// Returns true if the value is only kept at the peak, from the forward to the backward pass.
    pub(super) fn is_idle_at_peak(&self, id: ValueId) -> bool {
        let span = self.spans[id.index()];
        span.last_forward < self.at && self.at < span.first_backward && span.first_backward != usize::MAX
    }
}

fn spans(forward: &Forward<'_>, clones: &Clones, values: usize) -> Vec<Span> {
    let none = Span {
        first: usize::MAX,
        last_forward: usize::MAX,
        first_backward: usize::MAX,
        last: usize::MAX,
    };
    let mut spans = vec![none; values];
    for (index, node) in clones.nodes.iter().enumerate() {
        for id in &node.inputs {
            let span = &mut spans[id.index()];
            if span.first == usize::MAX {
                continue;
            }
            span.last = index;
            if index < forward.len {
                span.last_forward = index;
            } else if span.first_backward == usize::MAX {
                span.first_backward = index;
            }
        }
        for id in &node.outputs {
            spans[id.index()] = Span {
                first: index,
                last_forward: index,
                last: index,
                ..none
            };
        }
    }
    spans
}
