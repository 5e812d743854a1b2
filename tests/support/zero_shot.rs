//! Golden models with a text tower.

use std::fs;
use std::path::PathBuf;

use hipvit::image::{Limits, RgbImage, open};
use hipvit::ndarray::Array2;
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::support::at;

#[derive(Deserialize)]
pub(crate) struct Golden {
    pub(crate) texts: Vec<String>,
    pub(crate) labels: Vec<String>,
    pub(crate) templates: Vec<String>,
    pub(crate) images: Vec<String>,
}

pub(crate) fn directory(case: &str) -> PathBuf {
    at("tests/golden/zero_shot").join(case)
}

pub(crate) fn golden(case: &str) -> Golden {
    let text = fs::read_to_string(directory(case).join("golden.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn expected(case: &str, name: &str) -> Array2<f64> {
    let bytes = fs::read(directory(case).join("golden.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    let values = tensor
        .data()
        .as_chunks()
        .0
        .iter()
        .map(|&b| f64::from_le_bytes(b))
        .collect();
    let &[rows, columns] = tensor.shape() else {
        panic!("{name}")
    };
    Array2::from_shape_vec((rows, columns), values).unwrap()
}

pub(crate) fn images(golden: &Golden) -> Vec<RgbImage> {
    let image = |name: &String| open(at("tests/golden/images").join(name), Limits::default()).unwrap();
    golden.images.iter().map(image).collect()
}
