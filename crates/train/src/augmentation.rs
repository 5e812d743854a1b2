//! Turns the augmentation of a recipe into the transforms of hipvit-data.

use std::sync::Arc;

use hipvit::image::{Filter, Preprocess, RgbImage};
use hipvit_data::augment::{
    Augmentation, AutoAugment, ColorJitter, Drawn, EraseMode, PaddingMode, Prepare, RandAugment, RandomCrop,
    RandomErasing, RandomResizedCrop, TimmRandAugment, Transform, TrivialAugmentWide,
};
use hipvit_data::mix::Mixup;
use hipvit_data::random::Stream;
use hipvit_data::{LoaderOptions, Result};

use crate::device_augmentation::runs_on_device;
use crate::recipe::{self, Crop, Policy};

/// Converts training images to the size of the model's input, with random changes.
#[derive(Debug)]
pub struct TrainingImages {
    /// Resizing as for evaluation, before the random transforms.
    resize: Option<Arc<dyn Prepare>>,
    transforms: Augmentation,
}

impl TrainingImages {
    /// Creates the conversion for a model with the given preprocessing.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`](hipvit_data::Error::Argument) for a policy that cannot be used.
    pub fn new(keys: &recipe::Augmentation, preprocess: &Preprocess) -> Result<Self> {
        let (height, width) = preprocess.output_size();
        let filter = preprocess.resize().map_or(Filter::Bicubic, |(_, filter)| filter);
        let size = [height, width];
        let mut transforms = Vec::new();
        match keys.crop {
            Crop::None => {}
            Crop::RandomResized => transforms.push(Transform::RandomResizedCrop(RandomResizedCrop {
                size,
                scale: keys.scale,
                ratio: keys.ratio,
                filter,
            })),
            Crop::Padded => transforms.push(Transform::RandomCrop(RandomCrop {
                size,
                padding: keys.padding,
                mode: PaddingMode::Constant,
                fill: [0; 3],
            })),
        }
        if keys.flip > 0.0 {
            transforms.push(Transform::HorizontalFlip(keys.flip));
        }
        if keys.vertical_flip > 0.0 {
            transforms.push(Transform::VerticalFlip(keys.vertical_flip));
        }
        transforms.extend(policy(keys)?);
        let [brightness, contrast, saturation, hue] = keys.color_jitter;
        if keys.color_jitter != [0.0; 4] {
            transforms.push(Transform::ColorJitter(ColorJitter {
                brightness,
                contrast,
                saturation,
                hue,
            }));
        }
        Ok(Self {
            resize: (keys.crop != Crop::RandomResized)
                .then(|| Arc::new(preprocess.clone()) as Arc<dyn Prepare>),
            transforms: Augmentation::new(transforms)?,
        })
    }
}

impl TrainingImages {
    /// Returns the options of a loader that mixes images and erases rectangles as the recipe says.
    #[must_use]
    pub fn loader_options(keys: &recipe::Augmentation) -> LoaderOptions {
        LoaderOptions {
            mixup: mixup(keys),
            erasing: (keys.erasing > 0.0).then(|| RandomErasing {
                probability: keys.erasing,
                mode: EraseMode::Const,
                ..RandomErasing::default()
            }),
            ..LoaderOptions::default()
        }
    }

    /// Replaces the resizing before the random transforms.
    pub(crate) fn with_resize(self, resize: Arc<dyn Prepare>) -> Self {
        Self {
            resize: Some(resize),
            ..self
        }
    }
}

impl Prepare for TrainingImages {
    fn prepare(&self, mut image: RgbImage, stream: &mut Stream) -> Result<RgbImage> {
        if let Some(resize) = &self.resize {
            image = resize.prepare(image, stream)?;
        }
        self.transforms.prepare(image, stream)
    }

    /// Leaves what a GPU computes.
    fn draw(&self, image: RgbImage, stream: &mut Stream) -> Result<Drawn> {
        let drawn = match &self.resize {
            Some(resize) => {
                let drawn = resize.draw(image, stream)?;
                self.transforms.draw_after(drawn, stream)?
            }
            None => self.transforms.draw(image, stream)?,
        };
        if runs_on_device(&drawn) {
            return Ok(drawn);
        }
        Drawn::done(drawn.finish()?)
    }
}

/// Returns the transform of the recipe's policy, if it has one.
fn policy(keys: &recipe::Augmentation) -> Result<Option<Transform>> {
    Ok(match &keys.policy {
        Policy::None => None,
        Policy::RandAugment => Some(Transform::RandAugment(RandAugment {
            operations: keys.operations,
            magnitude: keys.magnitude,
            ..RandAugment::default()
        })),
        Policy::AutoAugment => Some(Transform::AutoAugment(AutoAugment::default())),
        Policy::TrivialAugmentWide => Some(Transform::TrivialAugmentWide(TrivialAugmentWide::default())),
        Policy::Timm(text) => Some(Transform::TimmRandAugment(TimmRandAugment::parse(text)?)),
    })
}

/// Returns the mixtures of the recipe, if it has any.
fn mixup(keys: &recipe::Augmentation) -> Option<Mixup> {
    (keys.mixup > 0.0 || keys.cutmix > 0.0).then(|| Mixup {
        mixup: keys.mixup,
        cutmix: keys.cutmix,
        ..Mixup::default()
    })
}
