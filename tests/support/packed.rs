//! Golden outputs of timm's NaFlexViT for images of several aspect ratios in one batch.

use std::fs;

use hipvit::image::{Limits, RgbImage, open};
use hipvit::{Outputs, Session, SessionBuilder};
use ndarray::Array2;
use safetensors::SafeTensors;
use serde::Deserialize;

use crate::support::at;

/// Cases of NaFlexViT with their images.
#[derive(Deserialize)]
pub(crate) struct Goldens {
    images: Vec<String>,
    pub(crate) cases: Vec<Golden>,
}

#[derive(Deserialize)]
pub(crate) struct Golden {
    pub(crate) name: String,
    output: String,
    pub(crate) grids: Vec<[usize; 2]>,
    pub(crate) max_num_patches: usize,
}

pub(crate) fn goldens() -> Goldens {
    let text = fs::read_to_string(at("tests/golden/packed/golden.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

impl Goldens {
    pub(crate) fn images(&self) -> Vec<RgbImage> {
        let folder = at("tests/golden/naflex");
        let image = |name: &String| open(folder.join(name), Limits::default()).unwrap();
        self.images.iter().map(image).collect()
    }
}

impl Golden {
    pub(crate) fn load(&self, builder: &SessionBuilder) -> Session {
        let loaded = builder.load(at("tests/golden").join(&self.name));
        loaded.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Returns a tensor of the golden file as rows along its last dimension.
    pub(crate) fn tensor(&self, name: &str) -> Array2<f64> {
        let path = at("tests/golden/packed").join(format!("{}.safetensors", self.name));
        let bytes = fs::read(path).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = tensors.tensor(name).unwrap();
        let values: Vec<f64> = match tensor.dtype() {
            safetensors::Dtype::F64 => {
                let values = tensor.data().as_chunks().0.iter();
                values.map(|&b| f64::from_le_bytes(b)).collect()
            }
            _ => {
                let values = tensor.data().as_chunks().0.iter();
                values.map(|&b| f64::from(f32::from_le_bytes(b))).collect()
            }
        };
        let columns = *tensor.shape().last().unwrap();
        Array2::from_shape_vec((values.len() / columns, columns), values).unwrap()
    }

    pub(crate) fn select(&self, outputs: &Outputs) -> Array2<f32> {
        match self.output.as_str() {
            "logits" => outputs.logits().unwrap().clone(),
            _ => outputs.embeddings().clone(),
        }
    }
}
