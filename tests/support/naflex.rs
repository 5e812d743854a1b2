//! Golden models of SigLIP 2 with NaFlex.

use std::fs;
use std::path::PathBuf;

use hipvit::image::{Limits, RgbImage, open};
use hipvit::{Outputs, Session, SessionBuilder};
use ndarray::{Array2, ArrayView2};
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::support::at;

pub(crate) const CASES: [&str; 3] = ["hf_siglip2_vision", "hf_siglip2_classifier", "hf_siglip2"];

#[derive(Deserialize)]
pub(crate) struct Golden {
    pub(crate) output: String,
    pub(crate) images: Vec<String>,
    pub(crate) grids: Vec<[usize; 2]>,
    pub(crate) max_num_patches: usize,
    pub(crate) texts: Vec<String>,
}

pub(crate) fn folder() -> PathBuf {
    at("tests/golden/naflex")
}

pub(crate) fn golden(case: &str) -> Golden {
    let text = fs::read_to_string(folder().join(case).join("golden.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn load(builder: &SessionBuilder, case: &str) -> Session {
    builder
        .clone()
        .load(folder().join(case))
        .unwrap_or_else(|e| panic!("{case}: {e}"))
}

/// Returns a tensor of the golden file as rows along its last dimension.
pub(crate) fn expected(case: &str, name: &str) -> Array2<f64> {
    let bytes = fs::read(folder().join(case).join("golden.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    let values: Vec<f64> = match tensor.dtype() {
        safetensors::Dtype::F64 => {
            let values = tensor.data().as_chunks().0.iter();
            values.map(|&b| f64::from_le_bytes(b)).collect()
        }
        safetensors::Dtype::F32 => {
            let values = tensor.data().as_chunks().0.iter();
            values.map(|&b| f64::from(f32::from_le_bytes(b))).collect()
        }
        other => panic!("{name} is {other:?}"),
    };
    let columns = *tensor.shape().last().unwrap();
    Array2::from_shape_vec((values.len() / columns, columns), values).unwrap()
}

impl Golden {
    pub(crate) fn images(&self) -> Vec<RgbImage> {
        let image = |name: &String| open(folder().join(name), Limits::default()).unwrap();
        self.images.iter().map(image).collect()
    }

    pub(crate) fn select(&self, outputs: &Outputs) -> Array2<f32> {
        match self.output.as_str() {
            "logits" => outputs.logits().unwrap().clone(),
            _ => outputs.embeddings().clone(),
        }
    }
}

/// Returns the largest difference, relative to the largest expected value.
#[track_caller]
pub(crate) fn error(got: ArrayView2<'_, f32>, expected: ArrayView2<'_, f64>) -> f64 {
    assert_eq!(got.dim(), expected.dim());
    let largest = expected.iter().fold(0f64, |m, x| m.max(x.abs()));
    let errors = got
        .iter()
        .zip(expected)
        .map(|(&g, &e)| (f64::from(g) - e).abs() / largest);
    // NaN must not count as a small error.
    errors.fold(0f64, |m, e| if e <= m { m } else { e })
}
