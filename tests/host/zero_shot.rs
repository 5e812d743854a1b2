//! Zero-shot classification: embeddings and logits equal those of transformers in f64, and so do the
//! tokenizers. Unsuitable texts, templates and models are refused.

use std::fs;
use std::process::{Command, Output};

use hipvit::ndarray::{Array2, ArrayView2};
use hipvit::{Error, Scores, Session, ZeroShotOptions};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::support::at;
use crate::support::program::{stderr, stdout};
use crate::support::zero_shot::{directory, expected, golden, images};

const CASES: [&str; 6] = [
    "hf_clip",
    "hf_clip_older",
    "open_clip",
    "open_clip_saved",
    "hf_siglip",
    "hf_siglip2",
];

/// Checks that the differences are within 2e-5 of the largest value, as for images: two blocks of f32 with
/// sums of up to 60 products.
#[track_caller]
fn check(case: &str, got: ArrayView2<'_, f32>, expected: &Array2<f64>, tolerance: f64) {
    assert_eq!(got.dim(), expected.dim(), "{case}");
    let largest = expected
        .iter()
        .fold(0.0_f64, |largest, value| largest.max(value.abs()));
    for (index, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs() / largest;
        assert!(error <= tolerance, "{case} {index}: {got}, expected {expected}");
    }
}

#[test]
fn embeddings_of_texts_are_those_of_transformers() {
    for case in CASES {
        let golden = golden(case);
        let session = Session::builder().batch(2).load(directory(case)).unwrap();
        let texts = session.embed_texts(&golden.texts).unwrap();
        check(
            case,
            texts.embeddings.view(),
            &expected(case, "text_embeds"),
            2e-5,
        );
        // The last is longer than the context.
        assert_eq!(texts.truncated.last(), Some(&(golden.texts.len() - 1)), "{case}");
        assert!(!texts.truncated.contains(&0), "{case}");
        // A text's embedding does not depend on the others, though CLIP's longest determines how many tokens run.
        let alone = session.embed_texts(&golden.texts[..1]).unwrap();
        let row = expected(case, "text_embeds").slice_move(hipvit::ndarray::s![..1, ..]);
        check(case, alone.embeddings.view(), &row, 2e-5);
    }
}

#[test]
fn logits_are_those_of_transformers() {
    for case in CASES {
        let golden = golden(case);
        let session = Session::load(directory(case)).unwrap();
        let zero_shot = session.zero_shot(&golden.texts).unwrap();
        assert_eq!(zero_shot.truncated().last(), golden.texts.last());
        let outputs = zero_shot.classify(images(&golden)).unwrap();
        // The similarities of unit vectors are off by twice as much, and the scale multiplies them and what they add up to.
        let logits = outputs.logits().unwrap();
        check(case, logits.view(), &expected(case, "logits_per_image"), 1e-4);
        let probabilities = outputs.image(0).probabilities().unwrap();
        let sum: f32 = probabilities.iter().sum();
        if case.contains("siglip") {
            assert_eq!(zero_shot.scores(), Scores::Sigmoid);
        } else {
            assert!((sum - 1.0).abs() < 1e-6, "{sum}");
        }
        let best = &outputs.image(0).top(1)[0];
        assert_eq!(best.label, golden.texts[best.index]);
        assert_eq!(best.probability, probabilities[best.index]);
    }
}

#[test]
fn templates_are_ensembled_as_clip_does_it() {
    for case in CASES {
        let golden = golden(case);
        let session = Session::load(directory(case)).unwrap();
        let options = ZeroShotOptions::new().templates(&golden.templates);
        let zero_shot = session.zero_shot_with(&golden.labels, &options).unwrap();
        let outputs = zero_shot.classify(images(&golden)).unwrap();
        let logits = outputs.logits().unwrap();
        check(case, logits.view(), &expected(case, "ensemble"), 1e-4);
        assert_eq!(zero_shot.labels().iter().collect::<Vec<_>>(), golden.labels);
    }
}

#[test]
fn what_will_not_do_is_named() {
    let session = Session::load(directory("hf_clip")).unwrap();
    let message = |error: Error| error.to_string();
    let none: [&str; 0] = [];
    assert_eq!(
        message(session.zero_shot(none).unwrap_err()),
        "labels: the list is empty. Give at least one label"
    );
    assert_eq!(
        message(session.zero_shot(["a cat", " "]).unwrap_err()),
        "labels: label 1, counted from 0, is blank"
    );
    let options = ZeroShotOptions::new().template("a photo");
    assert_eq!(
        message(session.zero_shot_with(["cat"], &options).unwrap_err()),
        "template: \"a photo\" has no {} where the label goes, as \"a photo of a {}.\" has"
    );
    let digits = Session::tinyvit32().unwrap();
    let error = message(digits.zero_shot(["one"]).unwrap_err());
    assert!(error.starts_with("texts: tinyvit32 has no text tower"), "{error}");
}

/// Copies a case's directory without the files `but`.
fn copy(case: &str, but: &[&str]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory(case)).unwrap() {
        let entry = entry.unwrap();
        if !but.iter().any(|&name| entry.file_name() == name) {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    copy
}

#[test]
fn a_tokenizer_that_is_missing_or_broken_is_named() {
    let without = copy("hf_siglip", &["tokenizer.json"]);
    let session = Session::load(without.path()).unwrap();
    let error = session.zero_shot(["a cat"]).unwrap_err().to_string();
    assert!(error.contains("is missing tokenizer.json"), "{error}");
    fs::write(without.path().join("tokenizer.json"), "{}").unwrap();
    let error = session.zero_shot(["a cat"]).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json: is not a tokenizer"), "{error}");
    // Another model's has tokens that the model does not know.
    let other = copy("hf_siglip", &[]);
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(directory("hf_clip").join(name), other.path().join(name)).unwrap();
    }
    let session = Session::load(other.path()).unwrap();
    let error = session.zero_shot(["a cat"]).unwrap_err().to_string();
    assert!(
        error.contains("the tokenizer belongs to another model"),
        "{error}"
    );
}

#[test]
fn a_tensor_of_the_text_tower_is_accounted_for() {
    let copy = copy("hf_clip", &[]);
    let file = copy.path().join("model.safetensors");
    let bytes = fs::read(&file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let kept = tensors
        .iter()
        .filter(|(name, _)| *name != "text_model.encoder.layers.1.mlp.fc1.bias");
    fs::write(&file, safetensors::serialize(kept, None).unwrap()).unwrap();
    let error = Session::load(copy.path()).unwrap_err().to_string();
    assert!(
        error.contains("`text_model.encoder.layers.1.mlp.fc1.bias`: is missing"),
        "{error}"
    );
    let renamed = tensors
        .iter()
        .map(|(name, tensor)| (name.replace("fc1.bias", "fc1.beta"), tensor));
    fs::write(
        &file,
        safetensors::serialize(
            renamed
                .chain(tensors.iter().map(|(name, tensor)| (name.to_owned(), tensor)))
                .collect::<std::collections::BTreeMap<_, _>>(),
            None,
        )
        .unwrap(),
    )
    .unwrap();
    let error = Session::load(copy.path()).unwrap_err().to_string();
    assert!(error.contains("is unexpected"), "{error}");
    let without: Vec<_> = tensors
        .iter()
        .filter(|(name, _)| !name.starts_with("text_") && !name.starts_with("logit"))
        .collect();
    fs::write(&file, safetensors::serialize(without, None).unwrap()).unwrap();
    let session = Session::load(copy.path()).unwrap();
    let error = session.zero_shot(["a cat"]).unwrap_err().to_string();
    assert!(error.contains("has no text tower"), "{error}");
}

fn classify(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
    command
        .current_dir(at(""))
        .arg("classify")
        .arg("tests/golden/images/photo.jpg");
    command
        .args(["--device", "cpu"])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn the_command_line_classifies_by_texts() {
    let golden = golden("hf_clip");
    let model = ["--model", "tests/golden/zero_shot/hf_clip"];
    let texts: Vec<&str> = golden.texts.iter().map(String::as_str).collect();
    let json = classify(&[&model[..], &["--json", "--logits", "--text"], &texts].concat());
    assert!(json.status.success(), "{}", stderr(&json));
    let line: Value = serde_json::from_str(stdout(&json)).unwrap();
    let expected = expected("hf_clip", "logits_per_image");
    let largest = expected
        .iter()
        .fold(0.0_f64, |largest, value| largest.max(value.abs()));
    for (got, expected) in line["logits"].as_array().unwrap().iter().zip(expected.row(0)) {
        assert!(
            (got.as_f64().unwrap() - expected).abs() <= 1e-4 * largest,
            "{got} {expected}"
        );
    }
    let label = line["top"][0]["label"].as_str().unwrap();
    assert!(golden.texts.iter().any(|text| text == label), "{label}");
    assert!(
        stderr(&json).contains("truncated to the model's 16 tokens"),
        "{}",
        stderr(&json)
    );

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("labels.txt");
    fs::write(&file, "cat\ndog\nokapi\n").unwrap();
    let file = file.to_str().unwrap();
    let templates = [
        "--template",
        &golden.templates[0],
        "--template",
        &golden.templates[1],
    ];
    let csv = classify(&[&model[..], &["--format", "csv", "--text-file", file], &templates].concat());
    assert!(csv.status.success(), "{}", stderr(&csv));
    let lines = stdout(&csv);
    assert_eq!(lines.lines().count(), 4, "{lines}");
    assert!(lines.contains("okapi"), "{lines}");

    for (arguments, code, reason) in [
        (&["--text", " "][..], 2, "must not be blank"),
        (&["--text"], 2, "a value is required"),
        (
            &["--text", "cat", "--template", "a photo"],
            2,
            "must contain {} in place of the text",
        ),
        (&["--template", "a {}"], 2, "--template needs --text"),
        (
            &["--text", "cat", "--labels", file],
            2,
            "--labels and --text exclude each other",
        ),
        (&[], 1, "give labels with --text"),
    ] {
        let output = classify(&[&model[..], arguments].concat());
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.contains(reason), "{message}");
    }
    let digits = classify(&["--text", "one"]);
    assert!(
        stderr(&digits).contains("has no text tower"),
        "{}",
        stderr(&digits)
    );
}
