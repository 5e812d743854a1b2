//! Activation checkpointing: the backward pass computes some values of the forward pass again, so that they need not be kept.
//!
//! Blocks keep only their input if memory is scarce, as in Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016,
//! <https://arxiv.org/abs/1604.06174>. With more memory, each value inside a block is kept or recomputed on its own.

mod clones;
mod forward;
mod liveness;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::clones::Clones;
use self::forward::{Forward, Use};
use self::liveness::Liveness;
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::plan::Plan;
use crate::tensor::DType;
use crate::value::ValueId;

/// What the backward pass of a training step recomputes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recomputation {
    /// Bytes of the arena if every activation is kept.
    pub arena_bytes_before: usize,
    /// Bytes of the arena.
    pub arena_bytes: usize,
    /// Floating-point operations of a step that recomputes nothing.
    pub flops_before: u64,
    /// Floating-point operations of a step.
    pub flops: u64,
    /// Number of blocks that keep only their input.
    pub blocks: usize,
    /// Number of blocks with activations that the backward pass reads.
    pub all_blocks: usize,
    /// Number of recomputed nodes by the name of their op.
    pub ops: BTreeMap<String, usize>,
}

/// Returns `graph` with the fewest and cheapest recomputations by which the arena of a plan has at most `arena_bytes`, and what they are.
/// If no choice has that little, the result is the smallest that was found.
///
/// `graph` is an [optimised](crate::optimize()) training step with an output [`OutputKind::Loss`](crate::OutputKind::Loss). Nodes up to the loss are the forward
/// pass. Later passes must not merge equal nodes. Each recomputation applies the op of the forward pass to the same operands, so results
/// are equal bit by bit.
///
/// Values are chosen one by one: from those that are kept over the peak of live bytes, the one with the most bytes per cost. The cost is
/// that of all nodes that must run again for it, in bytes moved and [floating-point operations](crate::op::Op::flops). Results that
/// another block reads are always kept.
///
/// # Errors
///
/// [`Error::Argument`](crate::Error::Argument) if the graph has no loss. The errors of [`Plan::new`].
pub fn recompute(
    graph: &Graph,
    batch: usize,
    dtype: DType,
    arena_bytes: usize,
) -> Result<(Graph, Recomputation)> {
    let plan = Plan::new(Arc::new(graph.clone()), batch, dtype)?;
    let forward = Forward::new(&plan)?;
    let mut dropped = vec![false; graph.values().len()];
    let mut clones = Clones::new(&forward, &dropped);
    // Gaps between buffers make an arena larger than the peak of its live bytes.
    let mut gaps = plan
        .arena_bytes()
        .saturating_sub(Liveness::new(&forward, &clones).peak);
    let mut smallest = (graph.clone(), plan.arena_bytes(), dropped.clone());
    while smallest.1 > arena_bytes {
        let liveness = Liveness::new(&forward, &clones);
        let next = if liveness.peak + gaps > arena_bytes {
            forward.best(&dropped, &clones, &liveness)
        } else {
            None
        };
        if let Some(id) = next {
            dropped[id.index()] = true;
            clones = Clones::new(&forward, &dropped);
            continue;
        }
        let graph = clones.graph(&forward);
        let arena = Plan::new(Arc::new(graph.clone()), batch, dtype)?.arena_bytes();
        let is_end = liveness.peak + gaps > arena_bytes;
        gaps = arena.saturating_sub(liveness.peak);
        if arena < smallest.1 {
            smallest = (graph, arena, dropped.clone());
        }
        if is_end {
            break;
        }
    }
    let (graph, arena, dropped) = smallest;
    graph.verify()?;
    let report = forward.report(&plan, arena, &dropped);
    Ok((graph, report))
}

impl Forward<'_> {
    /// Returns the value to recompute next. `None` if no choice has fewer live bytes at the peak.
    fn best(&self, dropped: &[bool], clones: &Clones, liveness: &Liveness) -> Option<ValueId> {
        let candidates = self.graph.ids().filter(|id| {
            let index = id.index();
            self.uses[index] == Use::Recomputable && !dropped[index] && liveness.is_idle_at_peak(*id)
        });
        let rated = candidates.filter_map(|id| {
            let cost = self.cost(id, dropped, clones)?;
            Some((id, self.bytes[id.index()] as f64 / cost.max(1.0)))
        });
        // The first of equal ones: earlier values are kept for longer.
        rated
            .reduce(|best, next| if next.1 > best.1 { next } else { best })
            .map(|(id, _)| id)
    }

    /// Returns the cost of the nodes that must run again for one more value.
    fn cost(&self, id: ValueId, dropped: &[bool], clones: &Clones) -> Option<f64> {
        let mut visited = vec![false; self.len];
        let mut open = vec![self.producers[id.index()]?];
        let mut cost = 0.0;
        while let Some(index) = open.pop() {
            if std::mem::replace(&mut visited[index], true) || clones.has(index) {
                continue;
            }
            cost += self.costs[index];
            let inputs = self.graph.nodes()[index].inputs.iter();
            let again = inputs.filter(|&&input| self.is_recomputed(input, dropped));
            open.extend(again.filter_map(|input| self.producers[input.index()]));
        }
        Some(cost)
    }

    fn report(&self, plan: &Plan, arena_bytes: usize, dropped: &[bool]) -> Recomputation {
        let clones = Clones::new(self, dropped);
        let mut ops = BTreeMap::new();
        let mut flops = plan.flops();
        for index in (0..self.len).filter(|&index| clones.has(index)) {
            *ops.entry(self.graph.nodes()[index].op.name().to_owned())
                .or_insert(0) += 1;
            flops += self.flops[index];
        }
        // True for a block without a value that is kept.
        let mut blocks: BTreeMap<usize, bool> = BTreeMap::new();
        for id in self
            .graph
            .ids()
            .filter(|id| self.uses[id.index()] == Use::Recomputable)
        {
            let producer = self.producers[id.index()].map(|index| &self.graph.nodes()[index]);
            if let Some(block) = producer.and_then(Node::block) {
                *blocks.entry(block).or_insert(true) &= dropped[id.index()];
            }
        }
        Recomputation {
            arena_bytes_before: plan.arena_bytes(),
            arena_bytes,
            flops_before: plan.flops(),
            flops,
            blocks: blocks.values().filter(|&&all| all).count(),
            all_blocks: blocks.len(),
            ops,
        }
    }
}
