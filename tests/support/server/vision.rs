//! Objects, masks and depths of a server on a device, beside those of the engine and of transformers.

use std::fs;
use std::path::{Path, PathBuf};

use hipvit::image::{Limits, RgbImage, open};
use hipvit::segment::{Prompt, Segmenter};
use hipvit::{DepthEstimator, Device, Session};
use hipvit_serve::ModelSource;
use serde_json::{Value, json};

use super::{MODEL, Running, base64, floats, options, tensor};
use crate::support::at;
use crate::support::detect::{Object, golden, path};
use crate::support::rt_detr;

/// Largest difference of scores, and of corners as a share of the image's side, to those of transformers in double precision.
const TOLERANCE: f32 = 1e-3;

/// Serves a model on a device.
pub(crate) fn running(model: &Path, device: Device) -> Running {
    let mut options = options();
    options.models = vec![ModelSource::new(MODEL, model)];
    options.instances = vec![Session::builder().device(device)];
    options.max_batch = 2;
    Running::new(options)
}

pub(crate) fn file(name: &str) -> PathBuf {
    at("tests/golden/images").join(name)
}

pub(crate) fn decoded(name: &str) -> RgbImage {
    open(file(name), Limits::default()).unwrap()
}

/// Returns the input `image` with these files.
pub(crate) fn images(names: &[&str]) -> Value {
    let files = names.iter().map(|name| base64(&fs::read(file(name)).unwrap()));
    json!({"name": "image", "datatype": "BYTES", "shape": [names.len()], "data": files.collect::<Vec<_>>()})
}

/// Detectors of transformers and of ONNX files, with images of different sizes in a request.
pub(crate) fn check_objects(device: Device) {
    let native = rt_detr::cases()
        .into_iter()
        .map(|case| (case.path(), case.threshold, case.images));
    let onnx = ["rt_detr", "yolos"].map(|case| {
        let golden = golden(case);
        (path(case), golden.threshold, golden.images)
    });
    for (path, threshold, expected) in native.chain(onnx) {
        let running = running(&path, device);
        let names: Vec<&str> = expected.keys().map(String::as_str).collect();
        let body = json!({"inputs": [images(&names)], "parameters": {"threshold": threshold}});
        let response = running.infer(&body);
        assert_eq!(response.status, 200, "{}", response.text());
        let response = response.json();
        let counts: Vec<usize> = expected.values().map(Vec::len).collect();
        assert_eq!(
            tensor(&response, "counts")["data"],
            json!(counts),
            "{}",
            path.display()
        );
        let most = counts.iter().copied().max().unwrap();
        assert_eq!(
            tensor(&response, "boxes")["shape"],
            json!([counts.len(), most, 4])
        );
        let (boxes, scores) = (floats(&response, "boxes"), floats(&response, "scores"));
        let (labels, classes) = (tensor(&response, "labels"), tensor(&response, "classes"));
        for (image, (name, expected)) in expected.iter().enumerate() {
            let decoded = decoded(name);
            let sides = [decoded.width, decoded.height, decoded.width, decoded.height];
            for (rank, index) in (image * most..(image + 1) * most).enumerate() {
                let what = format!("{} {name} {rank}", path.display());
                let Some(Object { label, score, r#box }) = expected.get(rank) else {
                    // Rows are filled up.
                    assert_eq!(
                        (&labels["data"][index], &classes["data"][index]),
                        (&json!(""), &json!(-1))
                    );
                    assert_eq!(scores[index], 0.0);
                    continue;
                };
                assert_eq!(classes["data"][index], *label, "{what}");
                assert_eq!(labels["data"][index], format!("thing {label}"), "{what}");
                assert!(
                    (scores[index] - score).abs() <= TOLERANCE,
                    "{what}: {}",
                    scores[index]
                );
                for (edge, side) in sides.into_iter().enumerate() {
                    let difference = (boxes[4 * index + edge] - r#box[edge]).abs();
                    assert!(
                        difference <= TOLERANCE * side as f32,
                        "{what}: edge {edge} by {difference}"
                    );
                }
            }
        }
    }
}

/// Points, several points and boxes as prompts, and masks of the size of the image.
pub(crate) fn check_masks(device: Device) {
    let model = at("tests/golden/segment/sam");
    let running = running(&model, device);
    let builder = Session::builder().device(device).batch(2);
    let segmenter = Segmenter::load(&model, &builder).unwrap();
    let name = "wide.png";
    let image = decoded(name);
    let embedding = segmenter.encode(&image).unwrap();
    let input = |name: &str, datatype: &str, shape: Value, data: Value| json!({"name": name, "datatype": datatype, "shape": shape, "data": data});
    let points = || {
        input(
            "input_points",
            "FP32",
            json!([1, 2, 2, 2]),
            json!([40, 30, 12.5, 40, 60, 7.25, 100, 50]),
        )
    };
    let labels = || input("input_labels", "INT32", json!([1, 2, 2]), json!([1, 0, 1, 1]));
    let boxes = || {
        input(
            "input_boxes",
            "FP32",
            json!([1, 2, 4]),
            json!([10, 5, 90, 60, 30, 20, 110, 70]),
        )
    };
    let of_points = [
        Prompt::new().inside(40.0, 30.0).outside(12.5, 40.0),
        Prompt::new().inside(60.0, 7.25).inside(100.0, 50.0),
    ];
    let of_boxes = [[10.0, 5.0, 90.0, 60.0], [30.0, 20.0, 110.0, 70.0]];
    let both = [0, 1].map(|index| of_points[index].clone().within(of_boxes[index]));
    let of_boxes = of_boxes.map(|corners| Prompt::new().within(corners));
    for (prompts, inputs) in [
        (of_points, vec![points(), labels()]),
        (of_boxes, vec![boxes()]),
        (both, vec![boxes(), labels(), points()]),
    ] {
        let expected = segmenter.segment(&embedding, &prompts).unwrap();
        for best_mask in [false, true] {
            let mut inputs = inputs.clone();
            inputs.push(images(&[name]));
            let body = json!({"inputs": inputs, "parameters": {"best_mask": best_mask}});
            let response = running.infer(&body);
            assert_eq!(response.status, 200, "{}", response.text());
            let response = response.json();
            let masks = if best_mask {
                1
            } else {
                segmenter.masks_per_prompt()
            };
            let shape = json!([1, 2, masks, image.height, image.width]);
            assert_eq!(tensor(&response, "masks")["shape"], shape);
            let found = tensor(&response, "masks")["data"].as_array().unwrap();
            let scores = floats(&response, "iou_scores");
            let mut at = 0;
            for (expected, scores) in expected.iter().zip(scores.chunks(masks)) {
                let all = if best_mask {
                    vec![expected.best()]
                } else {
                    expected.masks()
                };
                for (mask, score) in all.iter().zip(scores) {
                    assert!((mask.score - score).abs() <= 1e-5, "{} and {score}", mask.score);
                    let pixels = found[at..at + mask.pixels.len()].iter();
                    let wrong = pixels
                        .zip(&mask.pixels)
                        .filter(|(found, expected)| **found != **expected)
                        .count();
                    // The server's batches may round differently.
                    assert!(
                        wrong <= mask.pixels.len() / 1000,
                        "{wrong} of {} pixels",
                        mask.pixels.len()
                    );
                    at += mask.pixels.len();
                }
            }
            assert_eq!(at, found.len());
        }
    }
}

/// Depths of the model's size and of the image's.
pub(crate) fn check_depths(device: Device) {
    for model in ["depth_anything", "dpt"].map(|name| at("tests/golden/depth").join(name)) {
        let running = running(&model, device);
        let estimator = DepthEstimator::load(&model, &Session::builder().device(device).batch(2)).unwrap();
        for name in ["wide.png", "photo.jpg"] {
            let response = running.infer(&json!({"inputs": [images(&[name])]}));
            assert_eq!(response.status, 200, "{}", response.text());
            let response = response.json();
            let image = decoded(name);
            let predicted = estimator.predict(&[&image]).unwrap().remove(0);
            let depth = estimator.estimate(&[&image]).unwrap().remove(0);
            assert_eq!(depth.dim(), (image.height, image.width));
            for (output, expected) in [("predicted_depth", predicted), ("depth", depth)] {
                let (height, width) = expected.dim();
                assert_eq!(tensor(&response, output)["shape"], json!([1, height, width]));
                let largest = expected.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
                let found = floats(&response, output);
                assert_eq!(found.len(), expected.len());
                let is_near = |(found, expected): (&f32, &f32)| (found - expected).abs() <= 1e-5 * largest;
                assert!(found.iter().zip(&expected).all(is_near), "{output} of {name}");
            }
        }
    }
}
