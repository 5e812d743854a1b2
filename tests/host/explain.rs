//! `hipvit explain` and `hipvit trace`: their output, and that the parts sum to the whole.

use std::fs;
use std::path::Path;

use hipvit::Session;
use hipvit::image::{Limits, open};
use hipvit_explain::{ExplainOptions, Explainer, Method};
use safetensors::SafeTensors;
use serde_json::Value;

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};

const SEVEN: &str = "assets/samples/7.png";

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// All f32 of a tensor, and its shape.
fn array(file: &Path, name: &str) -> (Vec<usize>, Vec<f32>) {
    let bytes = fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    let values = tensor.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b));
    (tensor.shape().to_vec(), values.collect())
}

#[test]
fn explain_writes_pictures_and_arrays_that_sum_to_the_logit() {
    let dir = tempfile::tempdir().unwrap();
    for (method, tolerance) in [
        ("integrated-gradients", 1e-3),
        ("conservative", 1e-6),
        ("attnlrp", f64::INFINITY),
    ] {
        let out = dir.path().join(method);
        let arguments = [
            "explain", SEVEN, "--class", "seven", "--method", method, "--json", "-o",
        ];
        let output = hipvit(arguments.iter().copied().chain([out.to_str().unwrap()]));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let report = json(stdout(&output));
        assert_eq!(report["target"]["class"]["index"], 7);
        assert_eq!(report["top"][0]["label"], "seven");
        let files: Vec<&str> = report["files"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(Value::as_str)
            .collect();
        for name in [
            "attention.png",
            "blocks.3.attn.png",
            "rollout.png",
            "attribution.png",
            "explanation.safetensors",
        ] {
            assert!(files.contains(&name), "{files:?}");
        }
        for file in &files {
            assert!(out.join(file).is_file(), "{file}");
        }
        let picture = open(out.join("attribution.png"), Limits::default()).unwrap();
        // Enlarged by a whole number.
        assert_eq!((picture.width, picture.height), (224, 224));
        // Four heads side by side, four blocks, 2 pixels between them.
        let picture = open(out.join("attention.png"), Limits::default()).unwrap();
        assert_eq!((picture.width, picture.height), (4 * 226 - 2, 4 * 226 - 2));

        let arrays = out.join("explanation.safetensors");
        let (shape, attention) = array(&arrays, "blocks.0.attn");
        assert_eq!(shape, [1, 4, 64, 64]);
        assert!(
            attention
                .chunks(64)
                .all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5)
        );
        let (shape, values) = array(&arrays, "attribution");
        assert_eq!(shape, [1, 3, 32, 32]);
        let sum: f64 = values.iter().map(|&v| f64::from(v)).sum();
        let summary = &report["attribution"];
        let number = |field: &str| summary[field].as_f64().unwrap();
        assert!((sum - number("pixels")).abs() < 1e-4, "{summary}");
        if tolerance.is_finite() {
            let gap = number("pixels") + number("constant") - number("output");
            assert!(gap.abs() < tolerance * number("output").abs(), "{summary}");
        }
        let logit = report["top"][0]["logit"].as_f64().unwrap();
        assert!((logit - number("output")).abs() < 1e-4);
    }
    let npy = fs::read(dir.path().join("attnlrp/attribution.npy")).unwrap();
    let header = String::from_utf8_lossy(&npy[..128]).into_owned();
    assert!(header.contains("'shape': (3, 32, 32), "), "{header}");
}

#[test]
fn explain_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let out = out.to_str().unwrap();
    let output = hipvit(["explain", SEVEN, "--class", "eleven", "-o", out]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("class"), "{}", stderr(&output));
    assert!(!Path::new(out).exists());
    // A model without a classifier has no class, but has maps.
    let model = at("tests/golden/timm_vit_embedding");
    let model = model.to_str().unwrap();
    let output = hipvit(["explain", SEVEN, "-m", model, "--class", "0", "-o", out]);
    assert_eq!(output.status.code(), Some(1));
    let output = hipvit(["explain", SEVEN, "-m", model, "--method", "rollout", "-o", out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(Path::new(out).join("rollout.npy").is_file());
    assert!(!Path::new(out).join("attribution.npy").exists());
    // A model without attention has an attribution, but no maps.
    let model = at("tests/golden/timm_resmlp");
    let model = model.to_str().unwrap();
    let mixer = dir.path().join("mixer");
    let out = mixer.to_str().unwrap();
    let output = hipvit(["explain", SEVEN, "-m", model, "--method", "attention", "-o", out]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("has no attention"),
        "{}",
        stderr(&output)
    );
    assert!(!mixer.exists());
    let output = hipvit(["explain", SEVEN, "-m", model, "-o", out]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(mixer.join("attribution.npy").is_file() && !mixer.join("attention.png").exists());
    let output = hipvit(["trace", SEVEN, "-m", model, "--pixel", "4,2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("has no attention"),
        "{}",
        stderr(&output)
    );
    let output = hipvit(["classify", SEVEN, "-m", model, "--image-size", "48"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("is not 40×24, the model's own"),
        "{}",
        stderr(&output)
    );
    let output = hipvit(["trace", SEVEN, "--pixel", "400,2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("outside of the image"),
        "{}",
        stderr(&output)
    );
    let output = hipvit(["trace", SEVEN, "--pixel", "4"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_parts_of_all_pixels_and_the_constant_are_the_logit() {
    let photo = at("tests/golden/images/photo.jpg");
    let models = [
        "timm_vit_class_token",
        "timm_dinov2_reg4",
        "timm_siglip2_tanh",
        "hf_clip",
        "timm_deit_distilled",
    ];
    let models = models.map(|name| at("tests/golden").join(name));
    let embedded = [None];
    for model in models.iter().map(Some).chain(embedded) {
        let mut arguments = vec!["trace", photo.to_str().unwrap(), "--pixel", "30,20", "--json"];
        if let Some(model) = model {
            arguments.extend(["-m", model.to_str().unwrap()]);
        }
        let output = hipvit(&arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let trace = json(stdout(&output));
        let contribution = &trace["contribution"];
        let number = |field: &str| contribution[field].as_f64().unwrap();
        let gap = number("pixels") + number("constant") - number("output");
        assert!(
            gap.abs() < 1e-4 * number("output").abs().max(1.0),
            "{contribution}"
        );
        assert_eq!(gap.abs() < 1e-4, number("gap").abs() < 1e-4);
        assert!(!trace["layers"].as_array().unwrap().is_empty());
        assert!(!trace["memory"]["steps"].as_array().unwrap().is_empty());
    }
}

/// Every form of every family: each op has a backward pass, and the trace finds each block.
#[test]
fn every_golden_model_is_explained_and_traced() {
    let photo = open(at("tests/golden/images/photo.jpg"), Limits::default()).unwrap();
    let mut models = 0;
    for entry in fs::read_dir(at("tests/golden")).unwrap() {
        let directory = entry.unwrap().path();
        if !directory.join("config.json").is_file() {
            continue;
        }
        models += 1;
        let name = directory.display().to_string();
        let explainer = match Explainer::load(&directory) {
            Err(error) if name.contains("_swin") || name.contains("_hiera") => {
                assert!(
                    error.to_string().contains("merges patches or pools tokens"),
                    "{name}: {error}"
                );
                continue;
            }
            explainer => explainer.unwrap_or_else(|e| panic!("{name}: {e}")),
        };
        let options = ExplainOptions::new().method(Method::Conservative);
        let explanation = explainer
            .explain_with(&photo, &options)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let attribution = &explanation.attribution;
        let gap = attribution.gap().unwrap();
        assert!(
            gap.abs() < 1e-4 * attribution.output.abs().max(1.0),
            "{name}: {gap}"
        );
        let centre = [photo.width / 2, photo.height / 2];
        if !explainer.info().has_attention() {
            assert!(
                explanation.rollout.is_empty() && explanation.attention.is_empty(),
                "{name}"
            );
            let error = explainer.trace(&photo, centre, None).unwrap_err().to_string();
            assert!(error.contains("has no attention"), "{error}");
            continue;
        }
        // The prefix tokens get a part of the flow.
        let rollout = explanation.rollout.sum();
        assert!(rollout > 0.0 && rollout < 1.0 + 1e-5, "{name}: {rollout}");
        for map in &explanation.attention {
            for row in map.weights.rows() {
                assert!((row.sum() - 1.0).abs() < 1e-5, "{name} {}", map.name);
            }
        }
        let trace = explainer.trace(&photo, centre, None);
        let trace = trace.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(trace.token.is_some() && trace.embedding.is_some(), "{name}");
        assert!(!trace.pooling.is_empty(), "{name}");
        assert_eq!(trace.layers.len(), explainer.info().depth, "{name}");
        for layer in &trace.layers {
            assert!(layer.heads.len() >= explainer.info().heads, "{name}");
            assert!(layer.attention_update > 0.0 && layer.ffn_update > 0.0, "{name}");
            assert!(layer.ffn.hidden > 0, "{name}");
        }
    }
    assert!(models > 60, "{models} models");
}

#[test]
fn a_trace_is_text_and_a_page_that_loads_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("trace.html");
    let output = hipvit([
        "trace",
        SEVEN,
        "--pixel",
        "16,10",
        "--html",
        page.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for heading in [
        "Decoded",
        "Resized",
        "Normalised",
        "Patch embedding",
        "Token",
        "Pooling",
        "Part of the output",
    ] {
        assert!(text.contains(heading), "{heading}: {text}");
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.contains("data:image/png;base64,"));
    // The namespace of SVG is not needed inside a page, so that no address is in it.
    assert!(!page.contains("http"), "an address");
    assert_eq!(
        page.matches("<details").count(),
        page.matches("</details>").count()
    );
}

#[test]
fn a_session_explains_its_result() {
    let session = Session::tinyvit32().unwrap();
    let seven = open(at(SEVEN), Limits::default()).unwrap();
    let logits = session.run([&seven]).unwrap().logits().unwrap().clone();
    for class in [None, Some(7), Some(1)] {
        let explanation = hipvit_explain::explain(&session, &seven, class).unwrap();
        let logit = f64::from(logits[[0, class.unwrap_or(7)]]);
        let output = explanation.attribution.output;
        assert!((output - logit).abs() < 1e-4, "{output}, executor's {logit}");
    }
    let config = fs::read(at("assets/tinyvit32/config.json")).unwrap();
    let weights = fs::read(at("assets/tinyvit32/model.safetensors")).unwrap();
    let from_bytes = Session::from_bytes(config, weights, None).unwrap();
    let error = hipvit_explain::explain(&from_bytes, &seven, None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("from bytes"), "{error}");
}

#[test]
fn the_overview_has_a_panel_for_each_stage() {
    let dir = tempfile::tempdir().unwrap();
    let draw = |model: &str, method: &str| {
        let out = dir.path().join(format!("{}-{method}", model.replace('/', "-")));
        let path = at(model);
        let arguments = [
            "explain",
            SEVEN,
            "-m",
            path.to_str().unwrap(),
            "--method",
            method,
            "-o",
        ];
        let output = hipvit(arguments.iter().copied().chain([out.to_str().unwrap()]));
        assert_eq!(output.status.code(), Some(0), "{model}: {}", stderr(&output));
        fs::read_to_string(out.join("overview.svg")).unwrap()
    };
    // Model, method; pictures, whether there are logits.
    for (model, method, pictures, logits) in [
        ("assets/tinyvit32", "attnlrp", 4, true),
        ("assets/tinyvit32", "rollout", 3, true),
        ("tests/golden/timm_vit_embedding", "attnlrp", 4, false),
    ] {
        let drawing = draw(model, method);
        assert_eq!(
            drawing.matches("data:image/png;base64,").count(),
            pictures,
            "{model} {method}"
        );
        assert_eq!(drawing.contains("logits"), logits, "{model}");
        assert_eq!(
            drawing.contains("4.33") && drawing.contains("91.78 %"),
            logits,
            "{model}"
        );
        // The only address is SVG's namespace, so that nothing is loaded.
        assert_eq!(drawing.matches("http").count(), 1, "{model}");
        for event in svg::read(&drawing).unwrap() {
            if let svg::parser::Event::Error(error) = event {
                panic!("{model}: {error}");
            }
        }
    }
}
