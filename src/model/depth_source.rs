//! How images are prepared for a model that estimates depth, which is known without its weights.

use std::path::Path;

use super::options::LoadOptions;
use super::{load, onnx};
use crate::error::Result;
use crate::image::Preprocess;

/// Preparation of images for a model that estimates depth.
#[derive(Debug)]
pub(crate) struct DepthSource {
    pub(crate) preprocess: Preprocess,
    /// Input of an ONNX file. `None` for other models, which take pixels.
    pub(crate) input: Option<PixelInput>,
}

/// An ONNX file's input of normalised pixel values.
#[derive(Debug)]
pub(crate) struct PixelInput {
    pub(crate) name: String,
    pub(crate) channels_last: bool,
}

impl PixelInput {
    /// Returns the shape of the input for images of this height and width.
    pub(crate) fn shape(&self, images: usize, [height, width]: [usize; 2]) -> [usize; 4] {
        if self.channels_last {
            [images, height, width, 3]
        } else {
            [images, 3, height, width]
        }
    }
}

/// Reads how images are prepared for the model at `path`.
pub(crate) fn depth_source(path: &Path, options: &LoadOptions) -> Result<DepthSource> {
    if onnx::is_onnx(path) {
        return onnx::depth_source(path, options);
    }
    Ok(DepthSource {
        preprocess: load::depth_preprocess(path, options)?,
        input: None,
    })
}
