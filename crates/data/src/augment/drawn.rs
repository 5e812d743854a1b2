//! Images whose random parameters are drawn, and whose pixels are not computed.

use hipvit_image::{Filter, Placement, Preprocess, Resampling, RgbImage, Window};

use super::crop;
use super::geometry::RandomResizedCrop;
use super::operation::Operation;
use crate::error::Result;
use crate::random::Stream;

/// A decoded image, and what makes a training image of it: a resampling, then operations.
#[derive(Debug)]
pub struct Drawn {
    /// Part of the decoded image that is used.
    pub image: RgbImage,
    /// Resampling of the part.
    pub placement: Placement,
    /// Operations on the resampled image, in order.
    pub operations: Vec<Operation>,
}

impl Drawn {
    /// Wraps an image for which nothing remains to do.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`](crate::Error::Argument) if the image is empty or too large.
    pub fn done(image: RgbImage) -> Result<Self> {
        let size = [image.width, image.height];
        Self::resampled(image, size, Filter::Nearest)
    }

    /// Wraps an image that a rule resizes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Preprocess::placement`].
    pub(super) fn of_rule(image: RgbImage, rule: &Preprocess) -> Result<Self> {
        let placement = rule.placement([image.width, image.height])?;
        Ok(Self {
            image,
            placement,
            operations: Vec::new(),
        })
    }

    /// Cuts a random part out of an image, and leaves the resizing.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`](crate::Error::Argument) if a side of the result is 0 or too long.
    pub(super) fn of_crop(image: RgbImage, rule: &RandomResizedCrop, stream: &mut Stream) -> Result<Self> {
        let [part, _] = rule.draw(stream, [image.width, image.height]);
        let image = match part {
            Operation::Crop {
                top,
                left,
                height,
                width,
            } if [height, width] != [image.height, image.width] => {
                crop::crop(&image, [top, left], [height, width])?
            }
            _ => image,
        };
        let [height, width] = rule.size;
        Self::resampled(image, [width, height], rule.filter)
    }

    fn resampled(image: RgbImage, output: [usize; 2], filter: Filter) -> Result<Self> {
        let input = [image.width, image.height];
        let placement = Placement {
            resampling: Resampling::new(input, output, filter, Window::whole(output))?,
            padding: None,
        };
        Ok(Self {
            image,
            placement,
            operations: Vec::new(),
        })
    }

    /// Returns width and height of the result.
    #[must_use]
    pub fn output(&self) -> [usize; 2] {
        let resampled = self.placement.output([self.image.width, self.image.height]);
        let operations = self.operations.iter();
        operations.fold(resampled, |size, operation| operation.output(size))
    }

    /// Computes the training image.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Operation::apply`].
    pub fn finish(&self) -> Result<RgbImage> {
        let resampled = self.placement.apply(&self.image)?;
        let mut operations = self.operations.iter();
        operations.try_fold(resampled, |image, operation| operation.apply(image))
    }
}
