//! Batches of prepared images.

use std::ops::Range;
use std::sync::Arc;

use hipvit_image::Preprocess;

use crate::augment::{Drawn, Erasure};
use crate::error::{Error, Result};
use crate::mix::{Mixture, mixed_targets, soft_targets};
use crate::sampler::{Position, Sample};

/// An image that a loader could not read, decode or augment.
#[derive(Debug)]
pub struct Broken {
    /// Index of the image in the dataset.
    pub index: usize,
    /// What is wrong, with the image's name.
    pub error: Error,
}

/// Images of a batch that a device prepares.
#[derive(Debug)]
#[non_exhaustive]
pub struct DrawnImages {
    /// The images. Those that are not kept are only mixed with those that are.
    pub images: Vec<Arc<Drawn>>,
    /// Mixture of each image with the image at the mirrored place. Empty if the loader does not mix.
    pub mixtures: Vec<Mixture>,
    /// Images of the batch.
    pub kept: Range<usize>,
}

/// Prepared images of one size with their labels.
#[derive(Debug)]
#[non_exhaustive]
pub struct Batch {
    /// Images after mixing, `[images, height, width, 3]`. Empty if a device prepares them.
    pub pixels: Vec<u8>,
    /// What a device prepares the images from. Set if the loader [draws](crate::LoaderOptions::draws).
    pub drawn: Option<DrawnImages>,
    /// Height and width of the images, in pixels.
    pub size: [usize; 2],
    /// Label of each image, before mixing.
    pub labels: Vec<usize>,
    /// Place of each image in the dataset.
    pub samples: Vec<Sample>,
    /// Height and width of each image before it was prepared, in pixels.
    pub original_sizes: Vec<[usize; 2]>,
    /// Mixture of each image with the image at the mirrored place. Empty if the loader does not mix.
    pub mixtures: Vec<Mixture>,
    /// Label of the image that each image is mixed with. Empty if the batch has all images of the step.
    pub(crate) partners: Vec<usize>,
    /// Rectangles of each image that [`Self::planes`] erases. Empty if the loader does not erase.
    pub erasures: Vec<Vec<Erasure>>,
    /// Images that were replaced or left out because they are broken.
    pub broken: Vec<Broken>,
    /// Place of this batch in training.
    pub position: Position,
    /// Place of the next batch. Training resumes here after this batch.
    pub next: Position,
}

impl Batch {
    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns true if there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Keeps only these images, and the labels of the images that they are mixed with.
    pub(crate) fn keep(&mut self, images: Range<usize>) {
        let image = self.pixels.len() / self.len().max(1);
        if !self.mixtures.is_empty() {
            self.partners = self.labels.iter().rev().copied().collect();
        }
        if let Some(drawn) = &mut self.drawn {
            drawn.kept = images.clone();
        }
        cut(&mut self.pixels, images.start * image..images.end * image);
        cut(&mut self.labels, images.clone());
        cut(&mut self.samples, images.clone());
        cut(&mut self.original_sizes, images.clone());
        cut(&mut self.partners, images.clone());
        cut(&mut self.mixtures, images.clone());
        cut(&mut self.erasures, images);
    }

    /// Converts the pixels to a model's floats, `[images, 3, height, width]`, and erases the rectangles.
    ///
    /// # Errors
    ///
    /// Returns no error in practice, because the sizes agree.
    pub fn planes(&self, rule: &Preprocess) -> Result<Vec<f32>> {
        let [height, width] = self.size;
        let length = height * width * 3;
        let mut planes = vec![0.0; self.pixels.len()];
        let images = self
            .pixels
            .chunks_exact(length)
            .zip(planes.chunks_exact_mut(length));
        for (index, (pixels, planes)) in images.enumerate() {
            rule.normalize(pixels, planes)?;
            for erasure in self.erasures.get(index).into_iter().flatten() {
                erasure.apply(planes, [width, height]);
            }
        }
        Ok(planes)
    }

    /// Computes the targets, `[images, classes]`: one-hot labels, mixed like the images, with label smoothing.
    pub fn targets(&self, classes: usize, smoothing: f64) -> Vec<f32> {
        let none;
        let mixtures = if self.mixtures.is_empty() {
            none = vec![Mixture::NONE; self.len()];
            &none
        } else {
            &self.mixtures
        };
        if self.partners.is_empty() {
            soft_targets(&self.labels, mixtures, classes, smoothing)
        } else {
            mixed_targets(&self.labels, self.partners.iter(), mixtures, classes, smoothing)
        }
    }
}

/// Keeps these elements, unless there are none.
fn cut<T>(elements: &mut Vec<T>, kept: Range<usize>) {
    elements.truncate(kept.end);
    elements.drain(..kept.start.min(elements.len()));
}
