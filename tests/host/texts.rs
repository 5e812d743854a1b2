//! Texts: preprocessing by the libraries before tokenizing, and `--text` on the command line.

use std::fs;

use hipvit::Session;
use safetensors::SafeTensors;
use serde_json::Value;

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};
use crate::support::zero_shot::{directory, expected, golden};

const CLIP: &str = "tests/golden/zero_shot/hf_clip";
const PHOTO: &str = "tests/golden/images/photo.jpg";

/// Runs `hipvit` in the repository's root with a model on the CPU.
fn run(command: &str, arguments: &[&str]) -> std::process::Output {
    let model = at(CLIP);
    let mut all = vec![command];
    all.extend(arguments);
    all.extend(["--device", "cpu", "--model", model.to_str().unwrap()]);
    hipvit(all)
}

/// tests/cases/08_open_clip_text: damaged texts have the embeddings of open_clip's cleaned texts.
#[test]
fn open_clip_cleans_texts() {
    let session = Session::load(directory("open_clip")).unwrap();
    let damaged = [
        "cats &amp; dogs",
        "the “best” cat’s toy",
        "ｃａｔ",
        "ﬁne",
        "cafÃ©",
        "cats &amp;amp; dogs",
    ];
    let clean = [
        "cats & dogs",
        "the \"best\" cat's toy",
        "cat",
        "fine",
        "café",
        "cats & dogs",
    ];
    let damaged = session.embed_texts(damaged).unwrap().embeddings;
    assert_eq!(damaged, session.embed_texts(clean).unwrap().embeddings);
    // transformers' CLIP does not.
    let session = Session::load(directory("hf_clip")).unwrap();
    let [reference, letter] =
        ["cats &amp; dogs", "cats & dogs"].map(|text| session.embed_texts([text]).unwrap().embeddings);
    assert_ne!(reference, letter);
}

/// Checks that the differences are within 2e-5 of the largest value, as in the tests of zero-shot
/// classification.
#[track_caller]
fn check(got: &[f64]) {
    let expected = expected("hf_clip", "text_embeds");
    let largest = expected
        .iter()
        .fold(0.0_f64, |largest, value| largest.max(value.abs()));
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(&expected) {
        assert!(
            (got - expected).abs() <= 2e-5 * largest,
            "{got}, expected {expected}"
        );
    }
}

#[test]
fn embed_takes_texts() {
    let texts = golden("hf_clip").texts;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let json = run("embed", &[&["--json", "--text"][..], &texts].concat());
    assert!(json.status.success(), "{}", stderr(&json));
    let lines: Vec<Value> = stdout(&json)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines
            .iter()
            .map(|line| line["text"].as_str().unwrap())
            .collect::<Vec<_>>(),
        texts
    );
    assert!(lines[0].get("image").is_none());
    let values = lines
        .iter()
        .flat_map(|line| line["embedding"].as_array().unwrap());
    // The digits of an f64 would be more.
    assert!(values.clone().all(|value| value.to_string().len() <= 16));
    check(&values.map(|value| value.as_f64().unwrap()).collect::<Vec<_>>());
    assert!(
        stderr(&json).contains("truncated to the model's 16 tokens"),
        "{}",
        stderr(&json)
    );

    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("texts.txt");
    fs::write(&list, texts.join("\n")).unwrap();
    let file = folder.path().join("texts.safetensors");
    let output = run(
        "embed",
        &[
            "--text-file",
            list.to_str().unwrap(),
            "-o",
            file.to_str().unwrap(),
        ],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let bytes = fs::read(&file).unwrap();
    let (_, metadata) = SafeTensors::read_metadata(&bytes).unwrap();
    let names: Vec<String> = serde_json::from_str(&metadata.metadata().as_ref().unwrap()["texts"]).unwrap();
    assert_eq!(names, texts);
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let data = tensors.tensor("embeddings").unwrap();
    check(
        &data
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from(f32::from_le_bytes(b)))
            .collect::<Vec<_>>(),
    );

    let csv = run(
        "embed",
        &[
            "--normalize",
            "--format",
            "csv",
            "--text",
            "a cat",
            "--text",
            "a, dog",
        ],
    );
    let lines: Vec<&str> = stdout(&csv).lines().collect();
    assert!(lines[0].starts_with("text,e0,e1,"), "{}", lines[0]);
    assert!(lines[2].starts_with("\"a, dog\","), "{}", lines[2]);
    let squares = lines[1]
        .split(',')
        .skip(1)
        .map(|value| value.parse::<f64>().unwrap().powi(2));
    assert!((squares.sum::<f64>() - 1.0).abs() < 1e-5);
}

#[test]
fn embed_takes_images_or_texts() {
    for (arguments, reason) in [
        (&[PHOTO, "--text", "a cat"][..], "--text and images"),
        (&["--tokens", "--text", "a cat"], "--text and --tokens"),
        (&["--timing", "--text", "a cat"], "--text and --timing"),
        (&["--text", " "], "must not be blank"),
        (&["--text"], "a value is required"),
    ] {
        let output = run("embed", arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
    }
    let digits = hipvit(["embed", "--text", "one"]);
    assert!(
        stderr(&digits).contains("has no text tower"),
        "{}",
        stderr(&digits)
    );
}

/// `--text` takes all words up to the next option.
#[test]
fn an_image_that_became_a_text_is_named() {
    let photo = at(PHOTO);
    let photo = photo.to_str().unwrap();
    let reason = format!("--text took `{photo}` as a text. Put images before --text");
    for command in ["classify", "embed"] {
        let output = run(command, &["--text", "cat", "dog", photo]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(&reason), "{}", stderr(&output));
    }
    let output = run("classify", &[photo, "--json", "--text", "cat", "dog", photo]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains(&format!("note: {reason}")),
        "{}",
        stderr(&output)
    );
    // No file has this name.
    let output = run("classify", &[photo, "--json", "--text", "cat", "missing.jpg"]);
    assert!(!stderr(&output).contains("--text took"), "{}", stderr(&output));
}

/// The heading of texts lists only the options of texts.
#[test]
fn help_lists_texts_alone_under_their_heading() {
    for (command, options) in [
        (
            "classify",
            &["--text", "--text-file", "--text-column", "--template"][..],
        ),
        ("embed", &["--text", "--text-file", "--text-column"]),
        ("search", &["--text", "--text-file", "--text-column"]),
    ] {
        let help = hipvit([command, "-h"]);
        let help = stdout(&help);
        let section = help.split("\nTexts:\n").nth(1).unwrap();
        let section = section.split("\n\n").next().unwrap();
        let listed = section
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with('-'));
        let listed: Vec<&str> = listed
            .map(|line| line.split([' ', '.']).next().unwrap())
            .collect();
        assert_eq!(listed, options, "{help}");
    }
}
