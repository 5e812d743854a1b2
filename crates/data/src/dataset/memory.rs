//! Datasets whose pixels are in memory.

use hipvit_image::RgbImage;

use super::{Content, Dataset};
use crate::error::{Error, Result};

/// Images of one size in memory.
#[derive(Clone, Debug)]
pub struct InMemory {
    name: String,
    size: [usize; 2],
    channels: usize,
    pixels: Vec<u8>,
    labels: Vec<usize>,
    classes: Vec<String>,
}

impl InMemory {
    /// Creates a dataset from pixels: `[images, height, width]` if they are grey, else `[images, height, width, 3]`.
    ///
    /// Errors call image `n` `name#n`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the number of pixels matches neither, or a label is not the index of a class.
    pub fn new(
        name: impl Into<String>,
        [height, width]: [usize; 2],
        pixels: Vec<u8>,
        labels: Vec<usize>,
        classes: Vec<String>,
    ) -> Result<Self> {
        let samples = height
            .checked_mul(width)
            .and_then(|n| n.checked_mul(labels.len()));
        let channels = match samples {
            Some(samples) if samples > 0 && pixels.len() == samples => 1,
            Some(samples) if samples > 0 && samples.checked_mul(3) == Some(pixels.len()) => 3,
            _ => {
                let reason = format!(
                    "{} bytes are not {} images of {height}×{width} pixels",
                    pixels.len(),
                    labels.len()
                );
                return Err(Error::argument("pixels", reason));
            }
        };
        if let Some(label) = labels.iter().find(|&&label| label >= classes.len()) {
            let reason = format!("{label} is not one of {} classes", classes.len());
            return Err(Error::argument("labels", reason));
        }
        Ok(Self {
            name: name.into(),
            size: [height, width],
            channels,
            pixels,
            labels,
            classes,
        })
    }
}

impl Dataset for InMemory {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: usize) -> usize {
        self.labels[index]
    }

    fn name(&self, index: usize) -> String {
        format!("{}#{index}", self.name)
    }

    fn read(&self, index: usize) -> Result<Content> {
        let [height, width] = self.size;
        let length = height * width * self.channels;
        let bytes = &self.pixels[index * length..(index + 1) * length];
        let data = if self.channels == 1 {
            bytes.iter().flat_map(|&grey| [grey; 3]).collect()
        } else {
            bytes.to_vec()
        };
        Ok(Content::Decoded(RgbImage::new(width, height, data)?))
    }
}
