//! What training of masks needs of a model.

use super::Prompt;
use crate::error::Result;
use crate::image::RgbImage;
use crate::model::{Checkpoint, LoadOptions, Model, PromptRow, SamSource, TensorValues};

/// A model of SAM as training computes it: encoder and decoder are one graph, and each image has one prompt.
#[derive(Debug)]
pub struct MaskModel {
    source: SamSource,
}

impl MaskModel {
    /// Loads a checkpoint's model, with new values of some tensors.
    ///
    /// # Errors
    ///
    /// The errors of [`Segmenter::load`](super::Segmenter::load).
    pub fn of_checkpoint(checkpoint: &Checkpoint, values: &TensorValues) -> Result<Self> {
        let source = checkpoint.sam_with(values, &LoadOptions::default())?;
        Ok(Self { source })
    }

    /// Returns the model from pixel values and [`mask_inputs`](crate::model::mask_inputs) to logits, [`MASKS`](crate::model::MASKS), and
    /// predicted intersections over unions, [`SCORES`](crate::model::SCORES).
    ///
    /// # Errors
    ///
    /// [`Error::Op`](crate::Error::Op) for an invalid graph.
    pub fn graph(&self) -> Result<Model> {
        self.source.with_prompts()
    }

    /// Returns the side of the model's images in pixels.
    pub fn side(&self) -> usize {
        self.source.side
    }

    /// Returns the rows, or columns, of a mask. It covers the model's image with its padding.
    pub fn mask_side(&self) -> usize {
        self.source.mask_side
    }

    /// Returns height and width of an image of this size in the model's image, whose rest is padding at the bottom and at the right.
    pub fn resized(&self, size: [usize; 2]) -> [usize; 2] {
        self.source.resized(size)
    }

    /// Resizes an image, and pads it with black pixels.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) for an image so thin that a side would shrink to nothing.
    pub fn fit(&self, image: &RgbImage) -> Result<RgbImage> {
        self.source.padded(image)
    }

    /// Returns a prompt of one point, or of a box, in an image of this height and width as inputs of the graph.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) for a prompt that is not in the image, or of several points.
    pub fn prompt(&self, prompt: &Prompt, size: [usize; 2]) -> Result<PromptRow> {
        prompt.check(size)?;
        let resized = self.source.resized(size);
        let factors = [0, 1].map(|axis| resized[axis] as f64 / size[axis] as f64);
        let (points, corners) = (prompt.scaled_points(factors), prompt.scaled_corners(factors));
        self.source.prompts.row(&points, corners)
    }
}
