//! How images are prepared for a model that estimates depth, which is known without its weights.

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
