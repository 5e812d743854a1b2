//! `hipvit profile` and ranges for profilers on the fake provider: streams, copies and replays in the timeline, pushes and pops.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use crate::support::fake::Fake;
use crate::support::profile::{assert_busy, read, report, text};
use crate::support::program::stderr;

fn command(fake: &Fake, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
    command
        .args(arguments)
        .env("HIPVIT_PROVIDER", &fake.path)
        .env("FAKE_DEVICES", "1")
        .env_remove("HIPVIT_ROCTX");
    command
}

const BATCHES: [&str; 10] = [
    "profile",
    "--device",
    "hip",
    "--batch",
    "2",
    "--batches",
    "4",
    "--in-flight",
    "1",
    "--json",
];

#[test]
fn a_replay_is_one_slice_above_the_estimates_of_its_kernels() {
    let fake = Fake::new("profile");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let output = command(&fake, &[&BATCHES[..], &["-o", file.to_str().unwrap()]].concat()).output();
    let report = report(&output.unwrap());
    assert_eq!((&report["batches"], &report["replayed"]), (&4.into(), &4.into()));
    assert_busy(
        &report["per_batch"],
        &[
            "API overhead",
            "copy in",
            "patch embedding",
            "QKV",
            "attention",
            "FFN",
            "other steps",
            "copy out",
        ],
    );
    assert_busy(
        &report["start_up"],
        &[
            "open device",
            "read model",
            "graph optimisation",
            "load kernels",
            "weights",
            "allocation",
            "graph capture",
        ],
    );

    let trace = read(&text(&file));
    let replays = trace.of("graph replay");
    assert!(replays.len() >= 4);
    let calls = report["stepwise"]["calls"].as_u64().unwrap() as usize;
    for replay in &replays {
        assert!(trace.track(replay).contains("compute"), "{replay:?}");
        let estimated = (replay.pid, replay.tid + 1);
        let within = trace.slices.iter().filter(|slice| {
            (slice.pid, slice.tid) == estimated
                && slice.ts >= replay.ts - 1e-3
                && slice.ts < replay.ts + replay.dur
        });
        let within: Vec<_> = within.collect();
        assert_eq!(within.len(), calls, "{replay:?}");
        assert!(trace.tracks[&estimated].contains("estimated"));
        // Without gaps, from the replay's begin to its end.
        let sum: f64 = within.iter().map(|call| call.dur).sum();
        assert!(
            (sum - replay.dur).abs() <= 2e-3 * calls as f64,
            "{sum} of {}",
            replay.dur
        );
        for call in within {
            assert!(
                call.args["estimated"].is_string() && call.args["dtype"] == "f32",
                "{call:?}"
            );
            let kernel = !call.name.starts_with("rocBLAS");
            assert_eq!(
                call.args.contains_key("grid") && call.args.contains_key("block"),
                kernel,
                "{call:?}"
            );
        }
    }
    let copies = trace.of("copy in");
    // As u8: two images of 32×32.
    let on_device = copies
        .iter()
        .filter(|copy| copy.args.get("bytes") == Some(&(2 * 32 * 32 * 3).into()));
    assert_eq!(on_device.count(), 4 + 4);
    let results = trace
        .slices
        .iter()
        .filter(|slice| slice.args.get("kind") == Some(&"DtoH".into()));
    assert!(results.clone().count() >= 8);
    assert!(
        results
            .clone()
            .all(|slice| slice.args["bytes"].as_u64().unwrap() > 0)
    );
}

#[test]
fn without_replay_steps_have_times_of_their_own() {
    let fake = Fake::new("profile-eager");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    let more = [
        "--hip-graphs",
        "off",
        "--warm-up",
        "1",
        "-o",
        file.to_str().unwrap(),
    ];
    let output = command(&fake, &[&BATCHES[..], &more].concat()).output().unwrap();
    let report = report(&output);
    assert_eq!(report["replayed"], 0);
    let trace = read(&text(&file));
    assert!(trace.of("graph replay").is_empty());
    let qkv = trace.of("QKV");
    assert!(!qkv.is_empty() && qkv.len().is_multiple_of(4 + 1));
    assert!(
        qkv.iter()
            .all(|step| step.args["shape"][0] == 2 && trace.track(step).contains("compute"))
    );
    assert!(!trace.of("part of a step").is_empty());
}

/// Returns the names of the ranges that the provider's roctx received. Pushes and pops of each thread must
/// match.
fn ranges(fake: &Fake, set: &[(&str, &str)]) -> (Output, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ranges");
    let arguments = ["classify", "--device", "hip", "--batch", "2", "--json"];
    let mut command = command(fake, &arguments);
    let output = command
        .envs(set.iter().copied())
        .env("FAKE_ROCTX", &file)
        .output()
        .unwrap();
    let mut depths: BTreeMap<String, i64> = BTreeMap::new();
    let mut names = Vec::new();
    for line in std::fs::read_to_string(&file).unwrap_or_default().lines() {
        let (thread, rest) = line.split_once(' ').unwrap();
        let (depth, what) = rest.split_once(' ').unwrap();
        let now = depths.entry(thread.to_owned()).or_default();
        *now += if what == "pop" { -1 } else { 1 };
        assert_eq!(*now, depth.parse::<i64>().unwrap(), "{line}");
        assert!(*now >= 0, "{line}");
        names.extend(what.strip_prefix("push ").map(str::to_owned));
    }
    assert!(depths.values().all(|depth| *depth == 0), "{depths:?}");
    (output, names)
}

#[test]
fn profilers_get_ranges_that_nest() {
    let fake = Fake::new("roctx");
    let (output, names) = ranges(&fake, &[("HIPVIT_ROCTX", "1")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for name in [
        "read model",
        "graph optimisation",
        "load kernels",
        "decode",
        "resize",
        "submit batch",
        "wait",
        "post-processing",
    ] {
        assert!(names.iter().any(|range| range == name), "{name}: {names:?}");
    }
    // One for each of the ten samples, and each batch of two.
    let count = |name: &str| names.iter().filter(|range| *range == name).count();
    assert_eq!((count("decode"), count("submit batch")), (10, 5));

    // As rocprofv3 starts a program.
    let attached = (
        "ROCP_TOOL_LIBRARIES",
        "/opt/rocm/lib/rocprofiler-sdk/librocprofiler-sdk-tool.so",
    );
    assert!(!ranges(&fake, &[attached]).1.is_empty());
    assert!(ranges(&fake, &[attached, ("HIPVIT_ROCTX", "0")]).1.is_empty());
    assert!(ranges(&fake, &[]).1.is_empty());
}

#[test]
fn ranges_that_cannot_be_had_are_an_error() {
    let fake = Fake::new("roctx-refused");
    let (output, _) = ranges(&fake, &[("HIPVIT_ROCTX", "yes")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("HIPVIT_ROCTX"), "{}", stderr(&output));
    // A provider without them.
    let set = [
        ("HIPVIT_ROCTX", "1"),
        ("HIPVIT_PROVIDER", "/nowhere/libamdhip64.so"),
    ];
    let (output, _) = ranges(&fake, &set);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("HIPVIT_ROCTX") && text.contains("unset it"),
        "{text}"
    );
}
