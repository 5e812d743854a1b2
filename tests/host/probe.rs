//! `hipvit probe` on handwritten digits.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use hipvit::{Device, Pipeline, Session};
use hipvit_data::ImageFolder;
use hipvit_train::probe::Features;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::digit_folders::write_digits;
use crate::support::program::{hipvit, json, stderr, stdout};

/// Returns a directory with 16 images for training and 8 for validation of each of six digits.
fn digits() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    write_digits(&directory.path().join("train"), 6, 0, 16);
    write_digits(&directory.path().join("val"), 6, 16, 8);
    directory
}

fn probe(data: &Path, more: &[&str]) -> Output {
    let mut arguments: Vec<OsString> = vec!["probe".into(), data.into()];
    arguments.extend(["--device", "cpu", "--threads", "2"].map(OsString::from));
    arguments.extend(more.iter().map(OsString::from));
    hipvit(arguments)
}

#[test]
fn features_of_the_digit_classifier_separate_digits() {
    let data = digits();
    let output = probe(data.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = json(stdout(&output));
    let count = |name: &str| report[name].as_u64().unwrap();
    assert_eq!(
        ["train_images", "val_images", "classes", "channels", "skipped"].map(count),
        [96, 48, 6, 64, 0]
    );
    // There are fewer than 100 training images.
    let knn = report["knn"].as_array().unwrap();
    assert_eq!(
        knn.iter().map(|result| &result["k"]).collect::<Vec<_>>(),
        [10, 20]
    );
    let linear = &report["linear"];
    assert_eq!(linear["trials"].as_array().unwrap().len(), 7);
    assert_eq!(linear["converged"], true);
    for result in knn.iter().chain([linear]) {
        let share = |name: &str| result[name].as_f64().unwrap();
        assert!(share("accuracy") > 0.9, "{result}");
        assert!(share("accuracy_top5") >= share("accuracy"), "{result}");
    }
}

#[test]
fn a_table_has_a_row_per_classifier_and_broken_images_are_counted() {
    let data = digits();
    fs::write(data.path().join("val/1/25.png"), "not an image").unwrap();
    let output = probe(data.path(), &["--knn", "1,5"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("1/25.png"), "{}", stderr(&output));
    let options = ["--knn", "1,5", "--l2", "0.01", "--skip-broken"];
    let output = probe(data.path(), &options);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("1/25.png"), "{}", stderr(&output));
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert!(
        lines[0].contains("96 training and 48 validation images, 6 classes, 64 channels"),
        "{lines:?}"
    );
    let names = ["classifier", "k-NN, k = 1", "k-NN, k = 5", "linear, L2 = 0.01"];
    assert_eq!(lines.len(), 5, "{lines:?}");
    for (line, name) in lines[1..].iter().zip(names) {
        assert!(line.starts_with(name), "{line}");
    }
    let output = probe(data.path(), &[&options[..], &["--json"]].concat());
    let report: Value = json(stdout(&output));
    assert_eq!(
        (&report["skipped"], &report["val_images"]),
        (&1.into(), &48.into())
    );
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let data = digits();
    let train = data.path().join("train");
    let refused = |data: &Path, more: &[&str], code: i32, reason: &str| {
        let output = probe(data, more);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    };
    refused(&train, &[], 2, "DATA has no validation set");
    refused(data.path(), &["--holdout", "10%"], 2, "--holdout has no effect");
    refused(
        data.path(),
        &["--knn", "97"],
        1,
        "97 neighbours, but there are 96",
    );
    refused(data.path(), &["--l2", "0"], 2, "expected a positive number");
    refused(
        data.path(),
        &["--packed", "64"],
        2,
        "unexpected argument '--packed'",
    );
}

#[test]
fn features_are_the_embeddings_of_a_pipeline() {
    let data = digits();
    let folder = data.path().join("val");
    let session = Session::builder()
        .device(Device::Cpu)
        .threads(2)
        .tinyvit32()
        .unwrap();
    let dataset = Arc::new(ImageFolder::open(&folder).unwrap());
    let features = Features::extract(&session, dataset, false, &mut |_| {}).unwrap();
    let mut files: Vec<PathBuf> = (0..6)
        .flat_map(|digit| fs::read_dir(folder.join(digit.to_string())).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(features.len(), files.len());
    let items = Pipeline::new(&session).run(files).unwrap();
    for (item, row) in items.zip(features.values().rows()) {
        assert_eq!(item.unwrap().embedding(), row);
    }
}
