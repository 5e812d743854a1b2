//! Loading: every golden directory loads, all its tensors are used, and the outputs equal its library's.

mod refusals;

use std::fs;
use std::path::{Path, PathBuf};

use hipvit::graph::{self, OutputKind, Passes};
use hipvit::model::{self, Family, InputKind, Library, LoadOptions, Model};
use hipvit::reference;
use hipvit::tensor::Input;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use crate::support::at;

fn golden(case: &str) -> PathBuf {
    at("tests/golden").join(case)
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn cases() -> Vec<Value> {
    read_json(&golden("cases.json")).as_array().unwrap().clone()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap()
}

fn load_case(case: &Value) -> Model {
    let size: Vec<usize> = serde_json::from_value(case["image_size"].clone()).unwrap();
    let options = LoadOptions {
        image_size: Some([size[0], size[1]]),
        input: InputKind::PixelValues,
        ..LoadOptions::default()
    };
    model::load(&golden(text(case, "name")), &options).unwrap()
}

/// Returns the tolerance of a golden's output, relative to the largest value.
///
/// Both sides compute in double precision from the same f32 (or narrower) weights and pixels. The graph keeps
/// two kinds of numbers in f32: attention's scale 1/√head_dim and interpolated positions, each with an error
/// of up to 2⁻²⁵ ≈ 3e-8. This changes the softmax weights of a score of 10 by 3e-7. But a weight's loss is
/// another's gain, and random values average out: the largest observed error is 2e-8.
///
/// timm interpolates in f32 with an f32 kernel, whose weights have errors of several units in the last place.
/// This changes positions by up to 6e-7. They pass two norms whose deviation is about theirs.
fn tolerance(case: &Value, model: &Model) -> f64 {
    match (text(case, "library"), model.info.interpolated) {
        ("timm", Some(_)) => 2e-6,
        _ => 1e-7,
    }
}

/// Returns an f64 or f32 tensor as f64.
fn numbers(tensors: &SafeTensors<'_>, name: &str) -> Vec<f64> {
    let tensor = tensors.tensor(name).unwrap();
    match tensor.dtype() {
        Dtype::F64 => tensor
            .data()
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b))
            .collect(),
        Dtype::F32 => floats(&tensor).into_iter().map(f64::from).collect(),
        other => panic!("{name} is {other}"),
    }
}

fn floats(tensor: &TensorView<'_>) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(tensor.data())
}

#[test]
fn every_golden_model_computes_what_its_library_computes_before_and_after_the_passes() {
    let mut compared = 0;
    for case in cases() {
        let name = text(&case, "name");
        let model = load_case(&case);
        let bytes = fs::read(golden(name).join("golden.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let pixels = tensors.tensor("pixel_values").unwrap();
        let batch = pixels.shape()[0];
        let outputs = graph::interpret(&model.graph, batch, Input::Values(&floats(&pixels))).unwrap();

        let output = text(&case, "output");
        let kind = if output == "logits" {
            OutputKind::Logits
        } else {
            OutputKind::Embedding
        };
        let (_, result) = outputs.iter().find(|(k, _)| *k == kind).unwrap();
        // The embedding of a model with all tokens as output is the first one, the class token.
        let width = *tensors.tensor(output).unwrap().shape().last().unwrap();
        let expected = numbers(&tensors, output);
        let expected: Vec<f64> = expected
            .chunks(expected.len() / batch)
            .flat_map(|image| image[..width].to_vec())
            .collect();
        let close = reference::check_close(result.as_slice().unwrap(), &expected, tolerance(&case, &model));
        assert!(close.is_ok(), "{name}: {}", close.unwrap_err());

        let (optimized, _) = graph::optimize(model.graph, &Passes::default()).unwrap();
        let optimized = graph::interpret(&optimized, batch, Input::Values(&floats(&pixels))).unwrap();
        for ((kind, optimized), (_, result)) in optimized.iter().zip(&outputs) {
            // Folded weights are rounded to f32 once more: 2⁻²⁵ each, with errors that average out in the
            // sums.
            let close =
                reference::check_close(optimized.as_slice().unwrap(), result.as_slice().unwrap(), 5e-7);
            assert!(
                close.is_ok(),
                "{name} optimised, {kind:?}: {}",
                close.unwrap_err()
            );
        }
        compared += 1;
    }
    assert!(compared >= 50, "{compared} cases");
}

#[test]
fn pixels_that_the_graph_normalises_give_the_same_as_pixel_values() {
    for name in [
        "timm_vit_class_token",
        "hf_clip_projection",
        "hf_deit_teacher_interpolated",
    ] {
        let pixels = model::load(&golden(name), &LoadOptions::default()).unwrap();
        let options = LoadOptions {
            input: InputKind::PixelValues,
            ..LoadOptions::default()
        };
        let values = model::load(&golden(name), &options).unwrap();
        let (height, width) = pixels.preprocess.output_size();
        assert_eq!(pixels.info.image_size, [height, width]);
        let bytes: Vec<u8> = (0..height * width * 3)
            .map(|index| (index * 37 % 256) as u8)
            .collect();
        let mut floats = vec![0.0; bytes.len()];
        values.preprocess.normalize(&bytes, &mut floats).unwrap();
        let expected = graph::interpret(&values.graph, 1, Input::Values(&floats)).unwrap();
        let result = graph::interpret(&pixels.graph, 1, Input::Pixels(&bytes)).unwrap();
        for ((kind, result), (_, expected)) in result.iter().zip(&expected) {
            // Both sides round each pixel value a few times, by 2⁻²⁴ of about 2.
            let close =
                reference::check_close(result.as_slice().unwrap(), expected.as_slice().unwrap(), 2e-6);
            assert!(close.is_ok(), "{name} {kind:?}: {}", close.unwrap_err());
        }
    }
}

#[test]
fn the_embedded_model_and_its_directory_are_one() {
    let model = model::tinyvit32(&LoadOptions::default()).unwrap();
    assert_eq!(
        (model.name.as_str(), model.info.parameters),
        ("tinyvit32", 141_898)
    );
    assert_eq!(
        model.labels.iter().collect::<Vec<_>>()[..3],
        ["zero", "one", "two"]
    );
    assert_eq!(model.labels.get(10), "?");

    let root = at("assets");
    let bytes = fs::read(root.join("digits/heldout.safetensors")).unwrap();
    let heldout = SafeTensors::deserialize(&bytes).unwrap();
    let batch = 6;
    let grey = &heldout.tensor("images").unwrap().data()[..batch * 32 * 32];
    let pixels: Vec<u8> = grey.iter().flat_map(|&value| [value; 3]).collect();
    for (name, model) in [
        ("tinyvit32", model),
        (
            "tinyvit32",
            model::load(&root.join("tinyvit32/model.safetensors"), &LoadOptions::default()).unwrap(),
        ),
        (
            "tinyvit32_odd",
            model::load(&root.join("tinyvit32_odd"), &LoadOptions::default()).unwrap(),
        ),
    ] {
        let bytes = fs::read(root.join(name).join("golden.safetensors")).unwrap();
        let expected = numbers(&SafeTensors::deserialize(&bytes).unwrap(), "logits");
        let outputs = graph::interpret(&model.graph, batch, Input::Pixels(&pixels)).unwrap();
        let logits = outputs[0].1.as_slice().unwrap();
        // The library's pixel values are f32; these are not rounded but their factors are.
        reference::assert_close(logits, &expected[..logits.len()], 2e-6);
    }
}

#[test]
fn labels_come_from_the_configuration() {
    let labels = |name: &str| {
        model::load(&golden(name), &LoadOptions::default())
            .unwrap()
            .labels
    };
    assert_eq!(labels("timm_vit_class_token").get(3), "thing 3, or so");
    assert_eq!(labels("timm_vit_pre_logits").get(5), "kind 5");
    assert_eq!(labels("timm_deit").get(2), "class 2");
    assert_eq!(labels("hf_vit").get(4), "Zürich");
    assert_eq!(
        labels("hf_vit_no_qkv_bias").iter().collect::<Vec<_>>(),
        ["LABEL_0", "LABEL_1"]
    );
    assert!(labels("hf_clip").is_empty());
}

#[test]
fn what_is_ignored_is_listed_with_its_reason() {
    let info = |name: &str| model::load(&golden(name), &LoadOptions::default()).unwrap().info;
    let clip = info("hf_clip");
    let reason = |tensor: &str| {
        clip.ignored
            .iter()
            .find(|ignored| ignored.tensor == tensor)
            .map(|i| i.reason)
    };
    assert_eq!(
        reason("vision_model.embeddings.position_ids"),
        Some("a buffer of consecutive numbers")
    );
    assert!(clip.ignored.iter().all(|i| i.tensor.contains("position_ids")));
    let text = clip.text.as_ref().unwrap();
    assert_eq!((text.context, text.vocabulary, text.width), (8, 32, 20));
    assert_eq!((clip.library, clip.family), (Library::Transformers, Family::Clip));
    let dinov2 = info("hf_dinov2_model");
    assert_eq!(dinov2.ignored.len(), 1);
    assert_eq!(dinov2.interpolated, Some(([5, 5], [4, 4])));
    let vit = info("timm_vit_non_square");
    assert_eq!((vit.image_size, vit.patch, vit.tokens), ([32, 60], [8, 12], 21));
    assert_eq!(vit.ignored, []);
}
