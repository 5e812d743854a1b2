//! `hipvit advise` as a user runs it: by a datasheet, and measured on the CPU.

use std::fs;

use serde_json::Value;

use crate::support::program::{hipvit, stderr, stdout};

fn json(arguments: &[&str]) -> Value {
    let output = hipvit(["advise", "--json"].iter().chain(arguments));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(stdout(&output)).unwrap()
}

#[test]
fn a_named_gpu_needs_none_and_its_sums_are_those_of_inspect() {
    let advice = json(&["--gpu", "mi300x", "--batch", "4", "--rate", "1e6"]);
    assert_eq!(advice["schema"], "hipvit.advise/1");
    assert_eq!(advice["hardware"]["name"], "MI300X");
    let output = hipvit(["inspect", "--batch", "4", "--json"]);
    let inspection: Value = serde_json::from_str(stdout(&output)).unwrap();
    let (total, prediction) = (&inspection["total"], &advice["prediction"]);
    assert_eq!(prediction["flops"], total["flops"]);
    let bytes = total["bytes_read"].as_u64().unwrap() + total["bytes_written"].as_u64().unwrap();
    assert_eq!(prediction["bytes"], bytes);
    assert_eq!(
        prediction["memory"]["activations_bytes"],
        inspection["memory"]["arena_bytes"]
    );
    let gains: Vec<f64> = advice["suggestions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|suggestion| suggestion["gain"].as_f64().unwrap())
        .collect();
    // Additional GPUs come last, whatever their gain.
    let others = gains.split_last().unwrap().1;
    assert!(
        !others.is_empty() && others.is_sorted_by(|a, b| a >= b),
        "{gains:?}"
    );
    let candidates = advice["requirement"]["candidates"].as_array().unwrap();
    assert!(candidates.len() > 30);
    assert!(
        candidates
            .iter()
            .all(|candidate| candidate["count"].as_u64() >= Some(1))
    );
}

#[test]
fn the_drawing_has_a_dot_for_each_kind_of_step_and_replaces_nothing_by_halves() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("roofline.svg");
    let output = hipvit([
        "advise",
        "--gpu",
        "H200",
        "--dtype",
        "bf16",
        "-o",
        file.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in [
        "tinyvit32, batch 8, bf16 on H200",
        "no measurement",
        "What to do next",
        "launch",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let drawing = fs::read_to_string(&file).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.trim_end().ends_with("</svg>"));
    assert!(drawing.matches("<circle").count() > 5, "{drawing}");
    let missing = folder.path().join("absent").join("roofline.svg");
    let output = hipvit(["advise", "--gpu", "H200", "-o", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("absent"), "{}", stderr(&output));
}

#[test]
fn what_is_advised_on_the_cpu_can_be_measured() {
    let advice = json(&[
        "--device",
        "cpu",
        "--batch",
        "1",
        "--threads",
        "1",
        "--without",
        "fusion",
        "--measure",
    ]);
    assert!(
        advice["hardware"]["source"]
            .as_str()
            .unwrap()
            .starts_with("measured")
    );
    assert!(
        advice["measured_images_per_second"].as_f64() > Some(0.0),
        "{advice}"
    );
    for step in advice["prediction"]["steps"].as_array().unwrap() {
        assert!(step["measured_seconds"].as_f64() > Some(0.0), "{step}");
    }
    let suggestions = advice["suggestions"].as_array().unwrap();
    let fusion = suggestions
        .iter()
        .find(|suggestion| suggestion["change"] == "fusion")
        .unwrap();
    assert!(fusion["gain"].as_f64() > Some(1.0), "{fusion}");
    assert!(fusion["measured_gain"].as_f64() > Some(0.0), "{fusion}");
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    for (arguments, code, part) in [
        (&["--gpu", "MI301X"][..], 1, "the nearest: "),
        (
            &["--gpu", "EPYC 9654", "--dtype", "bf16"],
            1,
            "no peak of EPYC 9654 in bf16",
        ),
        (&["--device", "cpu", "--dtype", "f16"], 1, "f16"),
        (&["--gpu", "H200", "--measure"], 2, "--measure"),
        (&["--gpu", "H200", "--rate", "0"], 2, "above 0"),
        (
            &["--gpu", "H200", "--efficiency", "2", "--rate", "1"],
            1,
            "efficiency",
        ),
        (&["--gpu", "H200", "--without", "speed"], 2, "speed"),
    ] {
        let output = hipvit(["advise"].iter().chain(arguments));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(part),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}
