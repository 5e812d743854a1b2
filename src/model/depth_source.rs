//! How images are prepared for a model that estimates depth, which is known without its weights.

use super::pixel_input::PixelInput;
use crate::image::Preprocess;

/// Preparation of images for a model that estimates depth.
#[derive(Debug)]
pub(crate) struct DepthSource {
    pub(crate) preprocess: Preprocess,
    /// Input of an ONNX file. `None` for other models, which take pixels.
    pub(crate) input: Option<PixelInput>,
}
