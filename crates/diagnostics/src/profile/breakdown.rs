//! Breakdown of the time of a run by activity.
//!
//! Activities overlap: while a GPU computes one batch, the host decodes the next. So there are two figures
//! for each.
//!
//! - *Elapsed* divides the wall time. Each instant belongs to the first activity under way, in a fixed order
//!   with the device's before the host's. Instants without a known activity are unattributed. The figures sum
//!   to the total by construction.
//! - *Busy* is the activity's own time, on all threads and streams together, whatever else happened.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use hipvit::graph::Role;
use hipvit::timeline::{Activity, Slice};

/// Time of a run by activity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Breakdown {
    /// Time from the begin of the recording to the first measured batch.
    pub start_up: Window,
    /// Time of the measured batches, divided by their number.
    pub per_batch: Window,
}

/// A range of time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Window {
    /// Length in milliseconds.
    pub total_ms: f64,
    /// Activities in the range.
    pub parts: Vec<Part>,
    /// Milliseconds without a known activity.
    pub unattributed_ms: f64,
}

/// Time of one activity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Name of the activity.
    pub name: String,
    /// Share of the wall time in milliseconds.
    pub elapsed_ms: f64,
    /// Time on all threads and streams in milliseconds.
    pub busy_ms: f64,
}

const ROLES: [Role; 5] = [Role::Patch, Role::Qkv, Role::Attention, Role::Ffn, Role::Other];

/// Activities of a start-up, in the order of display.
const START_UP: [Activity; 10] = [
    Activity::OpenDevice,
    Activity::ReadModel,
    Activity::Optimize,
    Activity::LoadKernels,
    Activity::Weights,
    Activity::Plan,
    Activity::Select,
    Activity::Allocate,
    Activity::Capture,
    Activity::CheckReplay,
];

/// Name of all other activities of a start-up.
const WARM_UP: &str = "warm-up batches";

/// Returns the activities of a batch, in the order of display.
fn of_batch() -> Vec<Activity> {
    use Activity::*;
    let before = [
        Decode,
        Resize,
        Stage,
        Submit,
        Plan,
        Select,
        Allocate,
        Capture,
        CheckReplay,
    ];
    let before = before.into_iter().chain([CopyIn, DeviceResize]);
    before
        .chain(ROLES.map(Step))
        .chain([Replay, CopyOut, PostProcess])
        .collect()
}

/// Returns the rank of an activity: the device's first, then those that only some batches have, then the
/// host's.
fn rank(activity: Activity) -> Option<usize> {
    use Activity::*;
    let first = ROLES.map(Step).into_iter();
    let order = first.chain([
        Replay,
        CopyOut,
        DeviceResize,
        CopyIn,
        Optimize,
        Plan,
        LoadKernels,
        Weights,
        Allocate,
        Select,
        Capture,
        CheckReplay,
        OpenDevice,
        ReadModel,
        PostProcess,
        Submit,
        Stage,
        Resize,
        Decode,
    ]);
    let activity = match activity {
        Call(role) => Step(role),
        other => other,
    };
    order.into_iter().position(|other| other == activity)
}

impl Breakdown {
    /// Divides `slices` at the begin of the recording, the begin of the measured batches, and their end.
    pub(super) fn new(slices: &[Slice], [begin, measured, end]: [Duration; 3], batches: usize) -> Self {
        // If the kernels of replays are known, they replace the replays.
        let known = slices
            .iter()
            .any(|slice| matches!(slice.activity, Activity::Call(_)));
        let is_counted = |slice: &&Slice| !(known && slice.activity == Activity::Replay);
        let slices: Vec<&Slice> = slices.iter().filter(is_counted).collect();
        let start_up = Attributed::new(&slices, [begin, measured], start_up_class);
        let per_batch = Attributed::new(&slices, [measured, end], batch_class);
        let shown = START_UP.iter().map(ToString::to_string).chain([WARM_UP.into()]);
        Self {
            start_up: start_up.window(shown, 1),
            per_batch: per_batch.window(of_batch().iter().map(ToString::to_string), batches),
        }
    }
}

/// Returns the rank and name of a slice in a window.
type Class = fn(&Slice) -> Option<(usize, String)>;

fn batch_class(slice: &Slice) -> Option<(usize, String)> {
    Some((rank(slice.activity)?, slice.activity.to_string()))
}

fn start_up_class(slice: &Slice) -> Option<(usize, String)> {
    if START_UP.contains(&slice.activity) {
        batch_class(slice)
    } else {
        // Last: a running batch does not explain one-time work of the start-up.
        Some((usize::MAX, WARM_UP.into()))
    }
}

/// Time of each class in a window.
struct Attributed {
    total: Duration,
    elapsed: BTreeMap<String, Duration>,
    busy: BTreeMap<String, Duration>,
}

impl Attributed {
    fn new(slices: &[&Slice], [begin, end]: [Duration; 2], class: Class) -> Self {
        let mut edges: Vec<(Duration, bool, (usize, String))> = Vec::new();
        let mut busy: BTreeMap<String, Duration> = BTreeMap::new();
        for slice in slices {
            let (from, to) = (slice.start.max(begin), slice.end().min(end));
            let Some(class) = class(slice).filter(|_| from < to) else {
                continue;
            };
            *busy.entry(class.1.clone()).or_default() += to - from;
            edges.push((from, true, class.clone()));
            edges.push((to, false, class));
        }
        // The order of simultaneous edges does not matter, because no time passes between them.
        edges.sort_by_key(|edge| edge.0);
        let mut active: BTreeMap<(usize, String), usize> = BTreeMap::new();
        let mut elapsed: BTreeMap<String, Duration> = BTreeMap::new();
        let mut now = begin;
        for (at, begins, class) in edges {
            if let Some(((_, name), _)) = active.iter().find(|(_, count)| **count > 0) {
                *elapsed.entry(name.clone()).or_default() += at - now;
            }
            now = at;
            let count = active.entry(class).or_default();
            *count = if begins {
                *count + 1
            } else {
                count.saturating_sub(1)
            };
        }
        Self {
            total: end - begin,
            elapsed,
            busy,
        }
    }

    /// Returns the parts with `names`, in this order, for one of `number` repetitions.
    fn window(&self, names: impl Iterator<Item = String>, number: usize) -> Window {
        let each = |time: Duration| 1e3 * time.as_secs_f64() / number.max(1) as f64;
        let of =
            |times: &BTreeMap<String, Duration>, name: &str| times.get(name).copied().unwrap_or_default();
        let part = |name: String| Part {
            elapsed_ms: each(of(&self.elapsed, &name)),
            busy_ms: each(of(&self.busy, &name)),
            name,
        };
        let attributed: Duration = self.elapsed.values().sum();
        Window {
            total_ms: each(self.total),
            parts: names.map(part).collect(),
            unattributed_ms: each(self.total.saturating_sub(attributed)),
        }
    }
}
