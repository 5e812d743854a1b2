//! Random transformations of images, bit for bit as torchvision and timm compute them on Pillow images.
//!
//! A transform draws its parameters from a [`Stream`], as an [`Operation`]. Operations contain no randomness. The
//! distributions are those of the Python libraries; the generator is this crate's.

mod affine;
mod color;
mod crop;
mod drawn;
mod erase;
mod geometry;
#[cfg(test)]
mod golden;
mod operation;
mod policy;
mod table;
#[cfg(test)]
mod tests;
mod timm;

use std::fmt::Debug;

use hipvit_image::{Filter, Preprocess, RgbImage};
use serde::{Deserialize, Serialize};

pub use affine::{Interpolation, Matrix, Sampling};
pub use crop::PaddingMode;
pub use drawn::Drawn;
pub use erase::{EraseMode, Erasure, RandomErasing};
pub use geometry::{ColorJitter, RandomCrop, RandomResizedCrop};
pub use operation::Operation;
pub use policy::{AffineStyle, AutoAugment, PolicyChoice, PolicyOp, RandAugment, TrivialAugmentWide};
pub use timm::{TimmChoice, TimmOp, TimmRandAugment};

use crate::error::{Error, Result};
use crate::random::Stream;

/// Converts decoded images to images of one size.
pub trait Prepare: Debug + Send + Sync {
    /// Converts an image, with random numbers of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if the image cannot be converted, for example because it is too thin.
    fn prepare(&self, image: RgbImage, stream: &mut Stream) -> Result<RgbImage>;

    /// Draws the random numbers of [`prepare`](Self::prepare), and leaves work to a device. By default, none is left.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`prepare`](Self::prepare).
    fn draw(&self, image: RgbImage, stream: &mut Stream) -> Result<Drawn> {
        Drawn::done(self.prepare(image, stream)?)
    }
}

/// Resizes and crops as for inference, without random numbers.
impl Prepare for Preprocess {
    fn prepare(&self, image: RgbImage, _: &mut Stream) -> Result<RgbImage> {
        Ok(self.apply(&image)?)
    }

    fn draw(&self, image: RgbImage, stream: &mut Stream) -> Result<Drawn> {
        if self.patch().is_some() {
            return Drawn::done(self.prepare(image, stream)?);
        }
        Drawn::of_rule(image, self)
    }
}

/// A random transform.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Transform {
    /// Resizes to `[height, width]`.
    Resize {
        /// Height and width, in pixels.
        size: [usize; 2],
        /// Resampling filter.
        filter: Filter,
    },
    /// Crops a rectangle of random size, and resizes it.
    RandomResizedCrop(RandomResizedCrop),
    /// Pads, and crops a rectangle of fixed size.
    RandomCrop(RandomCrop),
    /// Mirrors left and right with this probability.
    HorizontalFlip(f64),
    /// Mirrors top and bottom with this probability.
    VerticalFlip(f64),
    /// Changes the colours.
    ColorJitter(ColorJitter),
    /// torchvision's RandAugment.
    RandAugment(RandAugment),
    /// timm's RandAugment.
    TimmRandAugment(TimmRandAugment),
    /// torchvision's AutoAugment for ImageNet.
    AutoAugment(AutoAugment),
    /// torchvision's TrivialAugmentWide.
    TrivialAugmentWide(TrivialAugmentWide),
}

impl Transform {
    /// Checks the parameters that are known before any image.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] that names the transform.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::RandAugment(policy) => policy.check(),
            Self::TrivialAugmentWide(policy) => policy.check(),
            _ => Ok(()),
        }
    }

    /// Draws the operations for an image of the given width and height.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the image is too small for a crop.
    pub fn draw(&self, stream: &mut Stream, size: [usize; 2]) -> Result<Vec<Operation>> {
        Ok(match self {
            &Self::Resize {
                size: [height, width],
                filter,
            } => vec![Operation::Resize {
                height,
                width,
                filter,
            }],
            Self::RandomResizedCrop(crop) => crop.draw(stream, size).into(),
            Self::RandomCrop(crop) => crop.draw(stream, size)?.into(),
            &Self::HorizontalFlip(probability) => flip(stream, probability, Operation::HorizontalFlip),
            &Self::VerticalFlip(probability) => flip(stream, probability, Operation::VerticalFlip),
            Self::ColorJitter(jitter) => jitter.draw(stream),
            Self::RandAugment(policy) => {
                let choices = policy.draw(stream).into_iter();
                choices
                    .filter_map(|choice| policy.operation(choice, size))
                    .collect()
            }
            Self::TimmRandAugment(policy) => {
                let choices = policy.draw(stream).into_iter();
                choices.map(|choice| policy.operation(choice, size)).collect()
            }
            Self::AutoAugment(policy) => {
                let choices = policy.draw(stream).into_iter();
                choices
                    .filter_map(|choice| policy.operation(choice, size))
                    .collect()
            }
            Self::TrivialAugmentWide(policy) => {
                let choice = policy.draw(stream);
                policy.operation(choice, size).into_iter().collect()
            }
        })
    }
}

fn flip(stream: &mut Stream, probability: f64, operation: Operation) -> Vec<Operation> {
    if stream.chance(probability) {
        vec![operation]
    } else {
        Vec::new()
    }
}

/// A sequence of random transforms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Transform>", into = "Vec<Transform>")]
pub struct Augmentation {
    transforms: Vec<Transform>,
}

impl Augmentation {
    /// Creates a sequence of transforms.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Transform::check`] for the first transform with invalid parameters.
    pub fn new(transforms: Vec<Transform>) -> Result<Self> {
        transforms.iter().try_for_each(Transform::check)?;
        Ok(Self { transforms })
    }

    /// Returns the transforms, in order.
    pub fn transforms(&self) -> &[Transform] {
        &self.transforms
    }

    /// Draws the operations on an image that other operations precede.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Transform::draw`].
    pub fn draw_after(&self, drawn: Drawn, stream: &mut Stream) -> Result<Drawn> {
        draw_after(drawn, &self.transforms, stream)
    }
}

impl TryFrom<Vec<Transform>> for Augmentation {
    type Error = Error;

    fn try_from(transforms: Vec<Transform>) -> Result<Self> {
        Self::new(transforms)
    }
}

impl From<Augmentation> for Vec<Transform> {
    fn from(augmentation: Augmentation) -> Self {
        augmentation.transforms
    }
}

impl Prepare for Augmentation {
    fn prepare(&self, mut image: RgbImage, stream: &mut Stream) -> Result<RgbImage> {
        for transform in &self.transforms {
            for operation in transform.draw(stream, [image.width, image.height])? {
                image = operation.apply(image)?;
            }
        }
        Ok(image)
    }

    fn draw(&self, image: RgbImage, stream: &mut Stream) -> Result<Drawn> {
        let (drawn, rest) = match &self.transforms[..] {
            [Transform::RandomResizedCrop(crop), rest @ ..] => (Drawn::of_crop(image, crop, stream)?, rest),
            all => (Drawn::done(image)?, all),
        };
        draw_after(drawn, rest, stream)
    }
}

fn draw_after(mut drawn: Drawn, transforms: &[Transform], stream: &mut Stream) -> Result<Drawn> {
    let mut size = drawn.output();
    for transform in transforms {
        for operation in transform.draw(stream, size)? {
            size = operation.output(size);
            drawn.operations.push(operation);
        }
    }
    Ok(drawn)
}
