//! `hipvit profile`: the breakdown sums to the measured time, and ui.perfetto.dev can open the timeline.

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::support::at;
use crate::support::profile::{Complete, assert_busy, read, report, text};
use crate::support::program::{hipvit, stderr, stdout};

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
