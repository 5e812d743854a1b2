//! Writes a timeline in Chrome's trace event format for ui.perfetto.dev and chrome://tracing. It uses the
//! JSON object form with complete events (`X`) and metadata (`M`). Times are in microseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::Profile;
use hipvit::timeline::{Slice, Timeline, Track};

/// Process number of the host; the number of GPU n is `FIRST_GPU + n`.
const HOST: u64 = 1;
const FIRST_GPU: u64 = 100;

/// Writes the timeline of a profile.
///
/// # Errors
///
/// The [`io::Error`] of writing to `out`.
pub fn write(profile: &Profile, mut out: impl Write) -> io::Result<()> {
    let Profile {
        model,
        device,
        dtype,
        batch,
        timeline,
        ..
    } = profile;
    let other = json!({
        "program": concat!("hipvit ", env!("CARGO_PKG_VERSION")),
        "model": model,
        "device": device.name,
        "dtype": dtype,
        "batch": batch,
    });
    write!(
        out,
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":["
    )?;
    let events = metadata(timeline, &device.name)
        .into_iter()
        .chain(timeline.slices.iter().map(event));
    for (index, event) in events.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(out, "{comma}\n{event}")?;
    }
    writeln!(out, "\n]}}")
}

/// Returns the process and thread numbers of a track.
fn place(track: Track) -> (u64, u64) {
    match track {
        Track::Thread(thread) => (HOST, thread),
        // The track of a stream's estimates follows the stream.
        Track::Stream { device, stream } => (FIRST_GPU + device as u64, 2 * stream),
        Track::Estimated { device, stream } => (FIRST_GPU + device as u64, 2 * stream + 1),
    }
}

fn microseconds(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

fn event(slice: &Slice) -> Value {
    let (pid, tid) = place(slice.track);
    // Compute the duration from rounded ends, so that adjacent slices stay adjacent.
    let (start, end) = (microseconds(slice.start), microseconds(slice.end()));
    json!({
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": start,
        "dur": (1e3 * (end - start)).round() / 1e3,
        "name": slice.name,
        "cat": slice.activity.to_string(),
        "args": slice.args,
    })
}

/// Returns the names and the order of processes and threads.
fn metadata(timeline: &Timeline, gpu: &str) -> Vec<Value> {
    let mut processes: BTreeMap<u64, String> = BTreeMap::from([(HOST, "host".into())]);
    let mut threads = Vec::new();
    let tracks: BTreeSet<Track> = timeline.slices.iter().map(|slice| slice.track).collect();
    for track in tracks {
        let purpose = |device, stream| timeline.streams.get(&(device, stream)).map_or("", String::as_str);
        let name = match track {
            Track::Thread(thread) => timeline.threads.get(&thread).cloned().unwrap_or_default(),
            Track::Stream { device, stream } => {
                processes.insert(FIRST_GPU + device as u64, format!("GPU {device}: {gpu}"));
                format!("stream {stream}: {}", purpose(device, stream))
            }
            Track::Estimated { stream, .. } => {
                format!("stream {stream}: kernels (estimated, not measured here)")
            }
        };
        threads.push((place(track), name));
    }
    let event = |(pid, tid): (u64, u64), name: &str, args: Value| json!({ "ph": "M", "pid": pid, "tid": tid, "ts": 0, "name": name, "args": args });
    let mut events = Vec::new();
    for (pid, name) in processes {
        events.push(event((pid, 0), "process_name", json!({ "name": name })));
        events.push(event(
            (pid, 0),
            "process_sort_index",
            json!({ "sort_index": pid }),
        ));
    }
    for (place, name) in threads {
        events.push(event(place, "thread_name", json!({ "name": name })));
        events.push(event(
            place,
            "thread_sort_index",
            json!({ "sort_index": place.1 }),
        ));
    }
    events
}
