//! Destinations of a plan's outputs after a run.

use crate::graph::plan::{BufferId, Plan};
use crate::graph::{OutputKind, ValueId};

/// Returns the buffer of activations for the next stage, if there is one.
pub(super) fn boundary(plan: &Plan) -> Option<BufferId> {
    let mut outputs = plan.outputs().iter().rev();
    let (_, _, id) = outputs.find(|(kind, ..)| *kind == OutputKind::Boundary)?;
    Some(*id)
}

/// Returns the results that are copied to the host. For results that stay on the device, these are the ones that reveal a failed replay.
pub(super) fn downloaded(
    plan: &Plan,
    on_device: bool,
) -> impl Iterator<Item = (OutputKind, ValueId, BufferId)> {
    results(plan).filter(move |&(kind, ..)| !on_device || is_overwritten(kind))
}

/// Returns the outputs without the activations for the next stage.
pub(super) fn results(plan: &Plan) -> impl Iterator<Item = (OutputKind, ValueId, BufferId)> {
    let outputs = plan.outputs().iter().copied();
    outputs.filter(|(kind, ..)| *kind != OutputKind::Boundary)
}

/// Returns the buffers that hold a result after the last step: the outputs, and the new values of parameters and states.
pub(super) fn kept(plan: &Plan) -> impl Iterator<Item = BufferId> {
    let outputs = plan.outputs().iter().map(|&(_, _, id)| id);
    outputs.chain(plan.updates().iter().map(|&(_, id)| id))
}

/// Returns true if an output is overwritten before a replay.
///
/// Activations for the next stage are overwritten: stale ones would give the results of an earlier run, overwritten ones give NaN. Other
/// outputs share their memory with intermediate results, and take longer to overwrite.
pub(super) fn is_overwritten(kind: OutputKind) -> bool {
    matches!(
        kind,
        OutputKind::Logits | OutputKind::Embedding | OutputKind::Boundary
    )
}
