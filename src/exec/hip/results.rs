//! Which outputs of a plan go where after a run.

use crate::graph::plan::{BufferId, Plan};
use crate::graph::{OutputKind, ValueId};

/// What the next stage of the model reads, if there is one.
pub(super) fn boundary(plan: &Plan) -> Option<BufferId> {
    let mut outputs = plan.outputs().iter().rev();
    let (_, _, id) = outputs.find(|(kind, ..)| *kind == OutputKind::Boundary)?;
    Some(*id)
}

/// The results that go to the host: all, or those that a replay overwrites.
pub(super) fn downloaded(
    plan: &Plan,
    on_device: bool,
) -> impl Iterator<Item = (OutputKind, ValueId, BufferId)> {
    results(plan).filter(move |&(kind, ..)| !on_device || is_overwritten(kind))
}

/// All but what the next stage reads.
pub(super) fn results(plan: &Plan) -> impl Iterator<Item = (OutputKind, ValueId, BufferId)> {
    let outputs = plan.outputs().iter().copied();
    outputs.filter(|(kind, ..)| *kind != OutputKind::Boundary)
}

/// Whether outputs are overwritten before a replay: what a stage hands on too, as stale activations would give the results of an
/// earlier run, and overwritten ones give NaN. The others share their memory with what steps leave in between, and it
/// would take longer.
pub(super) fn is_overwritten(kind: OutputKind) -> bool {
    matches!(
        kind,
        OutputKind::Logits | OutputKind::Embedding | OutputKind::Boundary
    )
}
