//! Kernels within steps and replays.
//!
//! Events cannot be put between the kernels of a captured graph without changing the graph, so a replay is
//! timed as a whole. The times of its kernels are measured in a run of the individual steps. They are scaled
//! by one factor so that their sum is the replay's time.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use hipvit::exec::TimedCall;
use hipvit::graph::Role;
use hipvit::graph::plan::Plan;
use hipvit::timeline::{Activity, Slice, Timeline, Track};

/// A run of a plan's kernels and library calls one by one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stepwise {
    /// Number of kernels and library calls.
    pub calls: usize,
    /// Total time in milliseconds.
    pub total_ms: f64,
    /// Average factor of the times within a replay. `None` without a replay.
    pub replay_scale: Option<f64>,
}

/// Adds the calls to each step and replay of the timeline, on separate tracks.
pub(super) fn lay(timeline: &mut Timeline, plan: &Plan, calls: &[TimedCall]) -> Option<Stepwise> {
    if calls.is_empty() {
        return None;
    }
    let total: Duration = calls.iter().map(|call| call.time).sum();
    let mut laid = Vec::new();
    let mut scales = Vec::new();
    for slice in &timeline.slices {
        let Track::Stream { device, stream } = slice.track else {
            continue;
        };
        let track = Track::Estimated { device, stream };
        match slice.activity {
            Activity::Replay => {
                let all: Vec<&TimedCall> = calls.iter().collect();
                scales.extend(scale(&all, slice.duration));
                laid.extend(within(slice, track, plan, &all, Activity::Call));
            }
            Activity::Step(_) => {
                let of_step = |call: &&TimedCall| {
                    let node = plan.graph().nodes().get(call.node);
                    node.is_some_and(|node| node.name == slice.name)
                };
                let all: Vec<&TimedCall> = calls.iter().filter(of_step).collect();
                laid.extend(within(slice, track, plan, &all, |_| Activity::PartOfStep));
            }
            _ => {}
        }
    }
    timeline.slices.extend(laid);
    let key = |slice: &Slice| (slice.start, std::cmp::Reverse(slice.duration));
    timeline.slices.sort_by_key(key);
    Some(Stepwise {
        calls: calls.len(),
        total_ms: 1e3 * total.as_secs_f64(),
        replay_scale: (!scales.is_empty()).then(|| scales.iter().sum::<f64>() / scales.len() as f64),
    })
}

/// Returns the factor that makes the calls' times sum to `duration`. `None` if they take no time.
fn scale(calls: &[&TimedCall], duration: Duration) -> Option<f64> {
    let sum: Duration = calls.iter().map(|call| call.time).sum();
    (!sum.is_zero()).then(|| duration.as_secs_f64() / sum.as_secs_f64())
}

fn within(
    parent: &Slice,
    track: Track,
    plan: &Plan,
    calls: &[&TimedCall],
    activity: fn(Role) -> Activity,
) -> Vec<Slice> {
    let Some(scale) = scale(calls, parent.duration) else {
        return Vec::new();
    };
    let mut elapsed = Duration::ZERO;
    let lay = |call: &&TimedCall| {
        // Round ends instead of durations, so that rounding errors do not add up.
        let start = elapsed.mul_f64(scale).min(parent.duration);
        elapsed += call.time;
        let end = elapsed.mul_f64(scale).min(parent.duration);
        let node = plan.graph().nodes().get(call.node)?;
        let mut args = json!({
            "estimated": "scaled from a run of the kernels one by one",
            "stepwise_us": 1e6 * call.time.as_secs_f64(),
            "scale": scale,
            "step": node.name,
            "op": node.op.to_string(),
            "dtype": plan.dtype().to_string(),
        });
        if let Some(shape) = &call.shape {
            args["shape"] = json!(shape);
        } else if let Some(step) = plan.steps().iter().find(|step| step.node == call.node) {
            args["shape"] = json!(plan.buffer(step.output()).shape);
        }
        if let Some(launch) = call.launch {
            args["grid"] = json!(launch.grid);
            args["block"] = json!(launch.block);
        }
        Some(Slice {
            track,
            activity: activity(node.role),
            name: call.name.clone().into(),
            start: parent.start + start,
            duration: end.saturating_sub(start),
            args: args.as_object().cloned().unwrap_or_default(),
        })
    };
    calls.iter().filter_map(lay).collect()
}
