//! Small detectors as ONNX files, with what transformers detects: `scripts/golden_detect.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use hipvit::detect::{Detection, Detector};
use hipvit::image::{Limits, RgbImage, open};
use hipvit::{Device, Session};
use serde::Deserialize;

use super::at;

pub(crate) const CASES: [&str; 2] = ["rt_detr", "yolos"];

/// Largest difference of scores, and of corners as a share of the image's side, in f32. The models have about ten layers.
const TOLERANCE: f32 = 2e-4;

#[derive(Deserialize)]
pub(crate) struct Golden {
    pub(crate) threshold: f32,
    pub(crate) images: BTreeMap<String, Vec<Object>>,
}

#[derive(Deserialize)]
pub(crate) struct Object {
    pub(crate) label: usize,
    pub(crate) score: f32,
    pub(crate) r#box: [f32; 4],
}

pub(crate) fn path(case: &str) -> PathBuf {
    at("tests/golden/detect").join(case).join("model.onnx")
}

pub(crate) fn golden(case: &str) -> Golden {
    let file = path(case).with_file_name("golden.json");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

pub(crate) fn images(golden: &Golden) -> Vec<RgbImage> {
    let names = golden.images.keys();
    names
        .map(|name| open(at("tests/golden/images").join(name), Limits::default()).unwrap())
        .collect()
}

/// Checks what is detected in f32 on a device against transformers in double precision.
pub(crate) fn check(case: &str, device: Device) {
    let golden = golden(case);
    let images = images(&golden);
    let builder = Session::builder().device(device).batch(2);
    let detector = Detector::load(path(case), &builder).unwrap();
    let found = detector.detect(&images, golden.threshold).unwrap();
    for ((name, expected), (found, image)) in golden.images.iter().zip(found.iter().zip(&images)) {
        check_objects(&format!("{case} {name}"), found, expected, (image, TOLERANCE));
    }
}

/// Checks the objects of an image. The tolerance is that of scores, and of corners as a share of the image's side.
pub(crate) fn check_objects(
    what: &str,
    found: &[Detection],
    expected: &[Object],
    (image, tolerance): (&RgbImage, f32),
) {
    assert_eq!(found.len(), expected.len(), "{what}: {found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.class, expected.label, "{what}: {found:?}");
        assert_eq!(found.name, format!("thing {}", expected.label));
        let score = (found.score - expected.score).abs();
        assert!(
            score <= tolerance,
            "{what}: {} and {}",
            found.score,
            expected.score
        );
        let sides = [image.width, image.height, image.width, image.height];
        for ((found, expected), side) in found.corners.iter().zip(expected.r#box).zip(sides) {
            let difference = (found - expected).abs();
            assert!(
                difference <= tolerance * side as f32,
                "{what}: {found} and {expected}"
            );
        }
    }
}
