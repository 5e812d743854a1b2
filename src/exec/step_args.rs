//! Arguments of a step in a recorded timeline.

use serde_json::{Map, Value, json};

use crate::graph::plan::{Plan, Step};

/// Returns the op, the shape and dtype of the result, and the minimum of operations and bytes.
pub(super) fn step_args(plan: &Plan, step: &Step) -> Map<String, Value> {
    let node = plan.node(step);
    let fields = [
        ("op", json!(node.op.to_string())),
        ("shape", json!(plan.buffer(step.output()).shape)),
        ("dtype", json!(plan.dtype().to_string())),
        ("flops", json!(step.flops)),
        ("bytes_read", json!(step.bytes_read)),
        ("bytes_written", json!(step.bytes_written)),
    ];
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
