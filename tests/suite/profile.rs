//! `hipvit profile`: the breakdown sums to the measured time, and ui.perfetto.dev can open the timeline.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Output;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::at;
use crate::command_line::{hipvit, stderr, stdout};

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

#[test]
fn the_cpus_timeline_has_every_op_of_every_batch() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let arguments = [
        "profile",
        "--device",
        "cpu",
        "--batch",
        "4",
        "--batches",
        "3",
        "--warm-up",
        "1",
        "--json",
        "-o",
    ];
    let output = hipvit(arguments.iter().copied().chain([file.to_str().unwrap()]));
    let report = report(&output);
    assert_eq!((&report["batch"], &report["batches"]), (&4.into(), &3.into()));
    assert_eq!(
        (&report["replayed"], &report["stepwise"]),
        (&0.into(), &Value::Null)
    );
    assert_busy(
        &report["per_batch"],
        &[
            "decode",
            "resize",
            "staging",
            "API overhead",
            "patch embedding",
            "QKV",
            "attention",
            "FFN",
        ],
    );
    assert_busy(
        &report["start_up"],
        &["read model", "graph optimisation", "weights", "warm-up batches"],
    );
    for part in ["read model", "graph optimisation"] {
        let start_up = report["start_up"]["parts"].as_array().unwrap();
        assert!(
            start_up
                .iter()
                .any(|p| p["name"] == part && p["elapsed_ms"] == p["busy_ms"]),
            "{part}"
        );
    }

    let trace = read(&text(&file));
    // Batches of four, one to warm up.
    assert_eq!(trace.of("decode").len(), 4 * 4);
    assert_eq!(trace.of("post-processing").len(), 4 * 4);
    for slice in trace.of("decode") {
        assert!(trace.track(slice).starts_with("hipvit-decode"), "{slice:?}");
    }
    let inspected = hipvit(["inspect", "--device", "cpu", "--batch", "4", "--json"]);
    let inspected: Value = serde_json::from_str(stdout(&inspected)).unwrap();
    let roles = ["patch embedding", "QKV", "attention", "FFN", "other steps"];
    let steps: Vec<&Complete> = roles.iter().flat_map(|role| trace.of(role)).collect();
    assert_eq!(steps.len(), 4 * inspected["steps"].as_array().unwrap().len());
    for step in steps {
        assert_eq!(step.args["dtype"], "f32", "{step:?}");
        assert_eq!(step.args["shape"][0], 4, "{step:?}");
        assert!(
            step.args["op"].is_string() && step.args["bytes_written"].is_u64(),
            "{step:?}"
        );
    }
}

#[test]
fn images_of_the_user_are_repeated_and_a_trace_may_be_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json.gz");
    let (image, model) = (at("assets/samples/7.png"), at("assets/tinyvit32"));
    // The model as the first argument, or by --model; then the embedded one, with an image alone.
    for more in [
        vec![model.as_path(), image.as_path()],
        vec![Path::new("--model"), &model, &image],
        vec![&image],
    ] {
        let mut arguments: Vec<&str> = vec!["profile"];
        arguments.extend(more.iter().map(|path| path.to_str().unwrap()));
        arguments.extend([
            "--device",
            "cpu",
            "--batch",
            "3",
            "--batches",
            "1",
            "--in-flight",
            "1",
            "-o",
        ]);
        arguments.push(file.to_str().unwrap());
        let output = hipvit(&arguments);
        assert_eq!(output.status.code(), Some(0), "{more:?}: {}", stderr(&output));
        for shown in [
            "tinyvit32, batch 3",
            "Start-up",
            "Each of 1 batch",
            "other/unattributed",
            "total",
        ] {
            assert!(stdout(&output).contains(shown), "{shown}: {}", stdout(&output));
        }
        let mut text = String::new();
        let compressed = std::fs::File::open(&file).unwrap();
        flate2::read::GzDecoder::new(compressed)
            .read_to_string(&mut text)
            .unwrap();
        let trace = read(&text);
        let decoded = trace.of("decode");
        assert_eq!(decoded.len(), 2 * 3);
        assert!(decoded.iter().all(|d| d.args["image"] == image.to_str().unwrap()));
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn what_cannot_be_profiled_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let file = file.to_str().unwrap();
    let model = at("assets/tinyvit32");
    let model = model.to_str().unwrap();
    for (arguments, code, reason) in [
        (&["-o", "trace.txt"][..], 2, ".json.gz"),
        (&["-o", file, "-"], 2, "several times"),
        (&["-o", file, model], 2, "an image is required"),
        (&["-o", file, "absent.png"], 1, "absent.png"),
        (&["-o", file, "--batches", "0"], 2, "at least 1"),
        (&["--counters", model, "7.png"], 2, "leave out the images"),
    ] {
        let output = hipvit([&["profile", "--device", "cpu"], arguments].concat());
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(reason),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
