//! Small models that estimate depth, with the depths of transformers: `scripts/golden_depth.py`.

use std::fs;
use std::path::{Path, PathBuf};

use hipvit::depth::DepthEstimator;
use hipvit::image::{Limits, RgbImage, open};
use hipvit::ndarray::{Array2, ArrayD};
use hipvit::reference::model_tolerance;
use hipvit::{DType, Device, Session};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::at;

/// A model with its images.
#[derive(Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) images: Vec<Image>,
}

/// An image, with height and width of the model's input.
#[derive(Deserialize)]
pub(crate) struct Image {
    pub(crate) image: String,
    pub(crate) size: [usize; 2],
}

/// Tensors of a case.
pub(crate) struct Golden(Vec<u8>);

pub(crate) fn cases() -> Vec<Case> {
    let file = fs::read(at("tests/golden/depth/cases.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&file).unwrap();
    assert!(cases.len() > 4);
    cases
}

pub(crate) fn image(name: &str) -> RgbImage {
    open(at("tests/golden/images").join(name), Limits::default()).unwrap()
}

impl Case {
    pub(crate) fn path(&self) -> PathBuf {
        at("tests/golden/depth").join(&self.name)
    }

    pub(crate) fn golden(&self) -> Golden {
        Golden::read(&self.path().join("golden.safetensors"))
    }

    pub(crate) fn decoded(&self) -> Vec<RgbImage> {
        self.images
            .iter()
            .map(|image| self::image(&image.image))
            .collect()
    }

    /// Checks the depths of all images at once against those of transformers in double precision. `path` is the case's own directory, or
    /// a model that gives the same.
    pub(crate) fn check(&self, path: PathBuf, device: Device, dtype: DType) {
        let builder = Session::builder().device(device).dtype(dtype).batch(2);
        let estimator = DepthEstimator::load(path, &builder).unwrap();
        let (images, golden) = (self.decoded(), self.golden());
        let depths = estimator.predict(&images).unwrap();
        let resized = estimator.estimate(&images).unwrap();
        for (index, Image { image, .. }) in self.images.iter().enumerate() {
            let expected = golden.tensor(&format!("{image}.predicted_depth"));
            let session = estimator.session(&images[index]).unwrap();
            assert_eq!(session.device(), device);
            // Interpolations and convolutions of maps are steps as the encoder's are.
            let bound = model_tolerance(dtype, session.graph().nodes().len());
            let error = difference(&depths[index], &expected);
            println!("{} {image} {dtype}: {error:.1e}, allowed {bound:.1e}", self.name);
            assert!(
                error <= bound,
                "{} {image} in {dtype}: {error:.2e}, more than {bound:.2e}",
                self.name
            );
            if golden.has(&format!("{image}.depth")) {
                // The weights of a cubic interpolation add up to at most 1.4 along each axis.
                let expected = golden.tensor(&format!("{image}.depth"));
                let error = difference(&resized[index], &expected);
                assert!(
                    error <= 2.0 * bound,
                    "{} {image} in {dtype}: {error:.2e}",
                    self.name
                );
            }
        }
    }
}

impl Golden {
    pub(crate) fn read(path: &Path) -> Self {
        Self(fs::read(path).unwrap())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.0).unwrap().tensor(name).is_ok()
    }

    pub(crate) fn tensor(&self, name: &str) -> ArrayD<f64> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        let values: Vec<f64> = match tensor.dtype() {
            Dtype::F64 => tensor
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|&b| f64::from_le_bytes(b))
                .collect(),
            _ => {
                let values = tensor.data().as_chunks().0.iter();
                values.map(|&b| f64::from(f32::from_le_bytes(b))).collect()
            }
        };
        ArrayD::from_shape_vec(tensor.shape(), values).unwrap()
    }
}

/// Returns the largest difference, as a part of the largest expected value.
fn difference(got: &Array2<f32>, expected: &ArrayD<f64>) -> f64 {
    assert_eq!(got.shape(), expected.shape());
    let largest = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    let differences = got
        .iter()
        .zip(expected)
        .map(|(&got, expected)| (f64::from(got) - expected).abs());
    // NaN must not count as a small error.
    differences.fold(0.0, |most, error| if error <= most { most } else { error }) / largest
}
