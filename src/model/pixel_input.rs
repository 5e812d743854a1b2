//! The input of images of an ONNX file that is run by names.

use ndarray::Array4;
use rayon::prelude::*;

use crate::error::{Error, Result};
use crate::image::Preprocess;

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

    /// Returns the normalised values of `pixels`, `[images, height, width, 3]`, in the layout of the input.
    pub(crate) fn values(&self, rule: &Preprocess, pixels: &Array4<u8>) -> Result<Array4<f32>> {
        let (images, height, width, channels) = pixels.dim();
        let bytes = pixels.as_slice().unwrap_or_default();
        let mut values = vec![0.0; bytes.len()];
        let each = (height * width * channels).max(1);
        bytes
            .par_chunks_exact(each)
            .zip(values.par_chunks_exact_mut(each))
            .try_for_each(|(pixels, values)| rule.normalize(pixels, values))?;
        let values = Array4::from_shape_vec((images, channels, height, width), values);
        let values = values.map_err(|e| Error::internal("pixel values", e))?;
        Ok(if self.channels_last {
            values
                .permuted_axes([0, 2, 3, 1])
                .as_standard_layout()
                .into_owned()
        } else {
            values
        })
    }
}
