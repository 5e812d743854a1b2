//! Destinations of a plan's outputs after a run.

use crate::exec::executor::Download;
use crate::graph::plan::{BufferId, Plan};
use crate::graph::{OutputKind, ValueId};
use crate::tensor::DType;

/// Returns the buffer of activations for the next stage, if there is one.
pub(super) fn boundary(plan: &Plan) -> Option<BufferId> {
    let mut outputs = plan.outputs().iter().rev();
    let (_, _, id) = outputs.find(|(kind, ..)| *kind == OutputKind::Boundary)?;
    Some(*id)
}

/// Returns the results that are copied to the host. For results that stay on the device, these are the ones that reveal a failed replay.
pub(super) fn downloaded(
    plan: &Plan,
    download: Download,
) -> impl Iterator<Item = (OutputKind, ValueId, BufferId)> {
    results(plan).filter(move |&(kind, value, _)| match download {
        Download::All => true,
        Download::NoLogits | Download::KeptLogits => kind != OutputKind::Logits,
        Download::Checked => is_overwritten(plan, kind, value),
    })
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
/// Activations for the next stage are overwritten: stale ones would give the results of an earlier run, overwritten ones give NaN. So are
/// floating-point outputs with storage of their own. The others take longer to overwrite, or have integers, of which any may be a result.
pub(super) fn is_overwritten(plan: &Plan, kind: OutputKind, value: ValueId) -> bool {
    let is_float = |id: BufferId| matches!(plan.buffer(id).dtype, DType::F32 | DType::F16 | DType::BF16);
    let known = plan.outputs().iter().find(|&&(_, output, _)| output == value);
    kind == OutputKind::Boundary
        || plan.has_own_storage(kind, value) && known.is_some_and(|&(_, _, id)| is_float(id))
}
