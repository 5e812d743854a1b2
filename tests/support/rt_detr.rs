//! Small RT-DETR models, with the queries and objects of transformers: `scripts/golden_rt_detr.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use hipvit::detect::Detector;
use hipvit::image::{Limits, RgbImage, open};
use hipvit::ndarray::{Array4, ArrayD, Axis};
use hipvit::reference::model_tolerance;
use hipvit::tensors::TensorArray;
use hipvit::{DType, Device, Session};
use serde::Deserialize;

use super::at;
use super::depth::Golden;
use super::detect::{Object, check_objects};

/// A model with what it detects in images.
#[derive(Deserialize)]
pub(crate) struct Case {
    #[serde(skip)]
    pub(crate) name: &'static str,
    pub(crate) threshold: f32,
    /// The image for which 16 bits select the same pixels, if there is one.
    narrow: Option<String>,
    /// Largest error of logits and boxes of transformers itself in each dtype that is compared, relative to the largest value.
    errors: BTreeMap<String, f64>,
    pub(crate) images: BTreeMap<String, Vec<Object>>,
}

pub(crate) fn case(name: &'static str) -> Case {
    let file = fs::read(at("tests/golden/rt_detr").join(name).join("golden.json")).unwrap();
    Case {
        name,
        ..serde_json::from_slice(&file).unwrap()
    }
}

pub(crate) fn cases() -> Vec<Case> {
    ["rt_detr", "rt_detr_plain", "rt_detr_v2"].map(case).into()
}

impl Case {
    pub(crate) fn path(&self) -> PathBuf {
        at("tests/golden/rt_detr").join(self.name)
    }

    pub(crate) fn decoded(&self) -> Vec<RgbImage> {
        let names = self.images.keys();
        names
            .map(|name| open(at("tests/golden/images").join(name), Limits::default()).unwrap())
            .collect()
    }

    /// Checks the selected pixels, the logits and the boxes of all queries, and in f32 the objects, against those of transformers in double
    /// precision.
    pub(crate) fn check(&self, device: Device, dtype: DType) {
        if dtype != DType::F32 && self.narrow.is_none() {
            return;
        }
        let images = self.decoded();
        let builder = Session::builder().device(device).dtype(dtype).batch(images.len());
        let detector = Detector::load(self.path(), &builder).unwrap();
        let session = detector.session();
        assert_eq!(session.device(), device);
        // Some models amplify rounding, by norms of small deviations and points near the edges of pixels.
        let bound =
            model_tolerance(dtype, session.graph().nodes().len()).max(4.0 * self.errors[&dtype.to_string()]);
        let golden = Golden::read(&self.path().join("golden.safetensors"));

        let input = session.tensor_inputs().remove(0).name;
        let results = session
            .run_tensors([(input.as_str(), &pixels(&detector, &images))])
            .unwrap();
        let result = |name: &str| match results.get(name) {
            Some(TensorArray::F32(values)) => values.clone(),
            other => panic!("{name}: {other:?}"),
        };
        let (selected, logits, boxes) = (result("selected"), result("logits"), result("pred_boxes"));
        for (index, name) in self.images.keys().enumerate() {
            if dtype != DType::F32 && self.narrow.as_ref() != Some(name) {
                continue;
            }
            let expected = |part: &str| golden.tensor(&format!("{name}.{part}"));
            let of_image = |values: &ArrayD<f32>| values.index_axis(Axis(0), index).to_owned();
            let places = expected("selected");
            let found = of_image(&selected);
            // Rounding may change the order, and in 16 bits exchange the last of the selected pixels.
            let at = |place: f64| found.iter().position(|&found| f64::from(found) == place);
            let pairs = places
                .iter()
                .enumerate()
                .filter_map(|(query, &place)| Some((query, at(place)?)));
            let (queries, order): (Vec<usize>, Vec<usize>) = pairs.unzip();
            let exchanged = places.len() - queries.len();
            let most = if dtype == DType::F32 { 0 } else { places.len() / 4 };
            assert!(
                exchanged <= most,
                "{} {name} in {dtype}: {found} instead of {places}",
                self.name
            );
            if dtype == DType::F32 {
                assert!(
                    order.is_sorted(),
                    "{} {name}: {found} instead of {places}",
                    self.name
                );
            }
            for (part, found) in [("logits", &logits), ("pred_boxes", &boxes)] {
                let found = of_image(found).select(Axis(0), &order);
                let error = difference(&found, &expected(part).select(Axis(0), &queries));
                println!(
                    "{} {name} {part} {dtype}: {error:.1e}, allowed {bound:.1e}",
                    self.name
                );
                assert!(
                    error <= bound,
                    "{} {name} {part} in {dtype}: {error:.2e}, more than {bound:.2e}",
                    self.name
                );
            }
        }
        if dtype == DType::F32 {
            let found = detector.detect(&images, self.threshold).unwrap();
            // The slope of a sigmoid is at most a quarter, and a corner is a centre and half a size.
            let largest = logits.iter().fold(0.0f32, |most, logit| most.max(logit.abs()));
            let tolerance = bound as f32 * (largest / 4.0).max(1.5);
            for ((name, expected), (found, image)) in self.images.iter().zip(found.iter().zip(&images)) {
                check_objects(
                    &format!("{} {name}", self.name),
                    found,
                    expected,
                    (image, tolerance),
                );
            }
        }
    }
}

/// Returns the resized images, as the detector's graph takes them.
fn pixels(detector: &Detector, images: &[RgbImage]) -> Array4<u8> {
    let rule = detector.preprocess();
    let (height, width) = rule.output_size();
    Array4::from_shape_vec(
        (images.len(), height, width, 3),
        rule.apply_batch(images).unwrap(),
    )
    .unwrap()
}

/// Returns the largest difference, as a part of the largest expected value.
fn difference(found: &ArrayD<f32>, expected: &ArrayD<f64>) -> f64 {
    assert_eq!(found.shape(), expected.shape());
    let differences = found
        .iter()
        .zip(expected)
        .map(|(&found, expected)| (f64::from(found) - expected).abs());
    // NaN must not count as a small error.
    let error = differences.fold(0.0, |most, error| if error <= most { most } else { error });
    error / expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()))
}
