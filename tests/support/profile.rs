//! Reports and timelines of `hipvit profile`, and the rules of their formats.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::support::program::{stderr, stdout};

/// The used part of the trace event format's JSON object form: the required fields of each event and no
/// others. [`read`] checks that numbers are neither negative nor NaN.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceFile {
    #[serde(rename = "displayTimeUnit")]
    display_time_unit: String,
    #[serde(rename = "otherData")]
    other_data: Map<String, Value>,
    #[serde(rename = "traceEvents")]
    trace_events: Vec<Event>,
}

#[derive(Deserialize)]
#[serde(tag = "ph")]
enum Event {
    X(Complete),
    M(Metadata),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Complete {
    pub(crate) pid: u64,
    pub(crate) tid: u64,
    pub(crate) ts: f64,
    pub(crate) dur: f64,
    pub(crate) name: String,
    pub(crate) cat: String,
    pub(crate) args: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Metadata {
    pid: u64,
    tid: u64,
    ts: f64,
    name: String,
    args: Map<String, Value>,
}

/// Slices, and the names of their tracks.
pub(crate) struct Trace {
    pub(crate) slices: Vec<Complete>,
    pub(crate) tracks: BTreeMap<(u64, u64), String>,
}

impl Trace {
    pub(crate) fn of(&self, category: &str) -> Vec<&Complete> {
        let of = |slice: &&Complete| slice.cat == category;
        self.slices.iter().filter(of).collect()
    }

    pub(crate) fn track(&self, slice: &Complete) -> &str {
        &self.tracks[&(slice.pid, slice.tid)]
    }
}

/// Reads a trace, and checks it against the format's rules.
pub(crate) fn read(text: &str) -> Trace {
    let file: TraceFile = serde_json::from_str(text).unwrap();
    assert!(["ms", "ns"].contains(&file.display_time_unit.as_str()));
    assert!(file.other_data.contains_key("model"));
    let mut trace = Trace {
        slices: Vec::new(),
        tracks: BTreeMap::new(),
    };
    let mut processes = BTreeMap::new();
    for event in file.trace_events {
        match event {
            Event::X(slice) => {
                assert!(slice.ts >= 0.0 && slice.dur >= 0.0, "{slice:?}");
                assert!(!slice.name.is_empty() && !slice.cat.is_empty(), "{slice:?}");
                trace.slices.push(slice);
            }
            Event::M(Metadata {
                pid,
                tid,
                ts,
                name,
                args,
            }) => {
                assert_eq!(ts, 0.0);
                let argument = if name.ends_with("_sort_index") {
                    "sort_index"
                } else {
                    "name"
                };
                assert_eq!(args.keys().collect::<Vec<_>>(), [argument], "{name}");
                match name.as_str() {
                    "process_name" => {
                        assert!(processes.insert(pid, args[argument].clone()).is_none());
                    }
                    "thread_name" => {
                        let name = args[argument].as_str().unwrap().to_owned();
                        assert!(!name.is_empty());
                        assert!(trace.tracks.insert((pid, tid), name).is_none());
                    }
                    "process_sort_index" | "thread_sort_index" => assert!(args[argument].is_u64()),
                    other => panic!("{other}"),
                }
            }
        }
    }
    // Slices of a track nest: each ends within the one that it begins in. Times are rounded to a nanosecond.
    const ROUNDING: f64 = 2e-3;
    let mut by_track: BTreeMap<(u64, u64), Vec<&Complete>> = BTreeMap::new();
    for slice in &trace.slices {
        assert!(processes.contains_key(&slice.pid), "{slice:?}");
        assert!(trace.tracks.contains_key(&(slice.pid, slice.tid)), "{slice:?}");
        by_track.entry((slice.pid, slice.tid)).or_default().push(slice);
    }
    for slices in by_track.values() {
        let mut open: Vec<f64> = Vec::new();
        for slice in slices {
            open.retain(|end| *end > slice.ts + ROUNDING);
            let end = slice.ts + slice.dur;
            if let Some(outer) = open.last() {
                assert!(
                    end <= outer + ROUNDING,
                    "{slice:?} ends after {outer}, where it began"
                );
            }
            open.push(end);
        }
        assert!(
            slices.is_sorted_by(|a, b| a.ts <= b.ts),
            "a track is not in order"
        );
    }
    trace
}

/// Returns the report. Its parts and the rest must sum to the totals.
pub(crate) fn report(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    let report: Value = serde_json::from_str(stdout(output)).unwrap();
    for window in ["start_up", "per_batch"] {
        let window = &report[window];
        let number = |value: &Value| value.as_f64().unwrap();
        let parts = window["parts"].as_array().unwrap();
        let mut sum = number(&window["unattributed_ms"]);
        for part in parts {
            let (elapsed, busy) = (number(&part["elapsed_ms"]), number(&part["busy_ms"]));
            // No activity has an instant in which it is not under way.
            assert!(elapsed >= 0.0 && elapsed <= busy + 1e-6, "{part}");
            sum += elapsed;
        }
        let total = number(&window["total_ms"]);
        assert!(total > 0.0 && (sum - total).abs() <= 1e-6 * total, "{window}");
    }
    report
}

/// Returns the busy time of a part.
fn busy(window: &Value, name: &str) -> f64 {
    let mut parts = window["parts"].as_array().unwrap().iter();
    let part = parts.find(|part| part["name"] == name);
    part.unwrap_or_else(|| panic!("{name}: {window}"))["busy_ms"]
        .as_f64()
        .unwrap()
}

/// Checks that all of these parts took time.
pub(crate) fn assert_busy(window: &Value, parts: &[&str]) {
    for part in parts {
        assert!(busy(window, part) > 0.0, "{part}: {window}");
    }
}

pub(crate) fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
