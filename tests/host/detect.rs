//! Objects beside those of transformers, on the CPU and by the command line; files that are refused.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use hipvit::detect::Detector;
use hipvit::image::{Limits, open};
use hipvit::{Device, Session};
use serde_json::{Value, json};

use crate::support::at;
use crate::support::detect::{CASES, check, golden, images, path};
use crate::support::program::{hipvit, stderr, stdout};

#[test]
fn objects_are_those_of_transformers() {
    for case in CASES {
        check(case, Device::Cpu);
    }
}

#[test]
fn thresholds_are_checked() {
    let golden = golden("yolos");
    let detector = Detector::load(path("yolos"), &Session::builder().device(Device::Cpu)).unwrap();
    assert_eq!(detector.labels().len(), 5);
    let images = images(&golden);
    let all = detector.detect(&images[..1], 0.0).unwrap();
    assert_eq!(all[0].len(), 9, "a query has one class");
    assert!(detector.detect(&images[..1], 1.0).unwrap()[0].is_empty());
    for threshold in [-0.1, 1.1, f32::NAN] {
        let error = detector.detect(&images, threshold).unwrap_err().to_string();
        assert!(error.contains("is not from 0 to 1"), "{error}");
    }
}

/// Copies a case, with a changed configuration.
fn copy(case: &str, to: &Path, change: impl FnOnce(&mut Value)) {
    let from = path(case);
    for file in ["model.onnx", "preprocessor_config.json"] {
        fs::copy(from.with_file_name(file), to.join(file)).unwrap();
    }
    let mut config: Value =
        serde_json::from_slice(&fs::read(from.with_file_name("config.json")).unwrap()).unwrap();
    change(&mut config);
    fs::write(to.join("config.json"), config.to_string()).unwrap();
}

#[test]
fn what_is_no_detector_is_refused_by_name() {
    let builder = Session::builder().device(Device::Cpu);
    let refused = |path: &Path| Detector::load(path, &builder).unwrap_err().to_string();
    let error = refused(&at("tests/golden/depth/onnx/model.onnx"));
    assert!(error.contains("no config.json beside"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.onnx");
    copy("rt_detr", folder.path(), |config| {
        config["model_type"] = json!("owlvit");
    });
    let error = refused(&file);
    assert!(
        error.contains("`model_type`") && error.contains("\"owlvit\"") && error.contains("rt_detr,"),
        "{error}"
    );
    copy("rt_detr", folder.path(), |_| ());
    fs::copy(at("tests/golden/depth/onnx/model.onnx"), &file).unwrap();
    let error = refused(&file);
    assert!(error.contains("has no outputs `logits`"), "{error}");
    // A size that depends on the image.
    copy("rt_detr", folder.path(), |_| ());
    fs::write(
        folder.path().join("preprocessor_config.json"),
        r#"{"image_processor_type": "DetrImageProcessor"}"#,
    )
    .unwrap();
    let error = refused(&file);
    assert!(
        error.contains("`size`") && error.contains("keeps the aspect ratio"),
        "{error}"
    );
}

#[test]
fn the_command_line_writes_boxes() {
    let golden = golden("rt_detr");
    let folder = tempfile::tempdir().unwrap();
    let model = path("rt_detr");
    let image = at("tests/golden/images/wide.png");
    let boxes = folder.path().join("boxes");
    let run = |arguments: &[&OsStr]| {
        let all = [
            OsStr::new("detect"),
            image.as_os_str(),
            OsStr::new("-m"),
            model.as_os_str(),
        ];
        let all = all.into_iter().chain(["--device", "cpu"].map(OsStr::new));
        hipvit(all.chain(arguments.iter().copied()))
    };
    let output = run(&[OsStr::new("--json"), OsStr::new("-o"), boxes.as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let printed: Value = serde_json::from_str(stdout(&output)).unwrap();
    let expected = &golden.images["wide.png"];
    let objects = printed["objects"].as_array().unwrap();
    assert_eq!(objects.len(), expected.len());
    assert_eq!(objects[0]["class"], expected[0].label);
    assert_eq!(objects[0]["label"], format!("thing {}", expected[0].label));
    let written: Value = serde_json::from_slice(&fs::read(boxes.join("wide.boxes.json")).unwrap()).unwrap();
    assert_eq!(written, printed);
    let decoded = |path: &Path| open(path, Limits::default()).unwrap();
    let (original, drawn) = (decoded(&image), decoded(&boxes.join("wide.boxes.png")));
    assert_eq!((drawn.width, drawn.height), (original.width, original.height));
    let changed = drawn
        .data
        .iter()
        .zip(&original.data)
        .filter(|(a, b)| a != b)
        .count();
    assert!(changed > 100 && changed < original.data.len() / 2, "{changed}");

    let threshold = |threshold: &str| run(&["--threshold", threshold].map(OsStr::new));
    let output = threshold("0.99");
    let lines = stdout(&output);
    assert!(lines.trim_end().ends_with("wide.png: 0 objects"), "{lines}");
    let output = run(&[]);
    let lines = stdout(&output);
    let first = format!("  {:.3} thing {} at ", expected[0].score, expected[0].label);
    assert!(lines.lines().nth(1).unwrap().starts_with(&first), "{lines}");
    let output = threshold("2");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("--threshold 2: is not from 0 to 1"),
        "{}",
        stderr(&output)
    );
}
