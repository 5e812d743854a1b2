//! Mixup and CutMix: mixtures of the images of a batch, with mixed targets, as timm's `Mixup`.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::random::Stream;

/// How many mixtures a batch has, by timm's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MixMode {
    /// One for all images.
    #[default]
    Batch,
    /// One for each pair of images.
    Pair,
    /// One for each image.
    Elem,
}

/// Mixes each image with the image at the mirrored place of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mixup {
    /// Parameter of mixup's beta distribution. 0 turns mixup off.
    pub mixup: f64,
    /// Parameter of CutMix's beta distribution. 0 turns CutMix off.
    pub cutmix: f64,
    /// Probability of mixing.
    pub probability: f64,
    /// Probability of CutMix instead of mixup, if both are on.
    pub switch: f64,
    /// Number of mixtures.
    pub mode: MixMode,
}

impl Default for Mixup {
    fn default() -> Self {
        Self {
            mixup: 0.8,
            cutmix: 1.0,
            probability: 1.0,
            switch: 0.5,
            mode: MixMode::Batch,
        }
    }
}

/// A rectangle: rows and columns from the first to before the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rectangle {
    /// First row and the row after the last.
    pub rows: [usize; 2],
    /// First column and the column after the last.
    pub columns: [usize; 2],
}

/// Mixture of an image with its partner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mixture {
    /// Weight of the image's own target.
    pub weight: f64,
    /// Rectangle that the partner replaces. `None` blends all pixels.
    pub cut: Option<Rectangle>,
}

impl Mixture {
    /// The image alone.
    pub const NONE: Self = Self {
        weight: 1.0,
        cut: None,
    };

    /// Returns the weights of the image and of its partner.
    #[must_use]
    pub fn weights(&self) -> (f32, f32) {
        (self.weight as f32, (1.0 - self.weight) as f32)
    }

    fn cut(weight: f64, stream: &mut Stream, [height, width]: [usize; 2]) -> Self {
        let ratio = (1.0 - weight).sqrt();
        let mut range = |side: usize| {
            let length = (side as f64 * ratio) as usize;
            let center = stream.index(side);
            [
                center.saturating_sub(length / 2),
                (center + length.div_ceil(2)).min(side),
            ]
        };
        let cut = Rectangle {
            rows: range(height),
            columns: range(width),
        };
        Self::of_rectangle(cut, [height, width])
    }

    /// Returns the mixture in which the partner replaces a rectangle. The weight is the area that remains.
    pub fn of_rectangle(cut: Rectangle, [height, width]: [usize; 2]) -> Self {
        let area = (cut.rows[1] - cut.rows[0]) * (cut.columns[1] - cut.columns[0]);
        Self {
            weight: 1.0 - area as f64 / (height * width) as f64,
            cut: Some(cut),
        }
    }
}

impl Mixup {
    /// Draws the mixtures of a batch of images of the given height and width.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the batch is odd, since the image in the middle has no partner.
    pub fn draw(&self, stream: &mut Stream, batch: usize, size: [usize; 2]) -> Result<Vec<Mixture>> {
        if !batch.is_multiple_of(2) {
            let reason = format!("a batch of {batch} images has no pairs: its size must be even");
            return Err(Error::argument("mixup", reason));
        }
        Ok(match self.mode {
            MixMode::Batch => vec![self.mixture(stream, size); batch],
            MixMode::Elem => (0..batch).map(|_| self.mixture(stream, size)).collect(),
            MixMode::Pair => {
                let half: Vec<_> = (0..batch / 2).map(|_| self.mixture(stream, size)).collect();
                half.iter().chain(half.iter().rev()).copied().collect()
            }
        })
    }

    fn mixture(&self, stream: &mut Stream, size: [usize; 2]) -> Mixture {
        let cut = self.cutmix > 0.0 && (self.mixup <= 0.0 || stream.chance(self.switch));
        let alpha = if cut { self.cutmix } else { self.mixup };
        if alpha <= 0.0 || !stream.chance(self.probability) {
            return Mixture::NONE;
        }
        let weight = stream.symmetric_beta(alpha);
        if cut {
            Mixture::cut(weight, stream, size)
        } else {
            Mixture { weight, cut: None }
        }
    }
}

/// Mixes a batch of images as bytes, `[batch, height, width, 3]`, and rounds, as timm's `FastCollateMixup`.
pub fn mix_bytes(pixels: &mut [u8], mixtures: &[Mixture], width: usize) {
    let original = pixels.to_vec();
    let image = pixels.len() / mixtures.len().max(1);
    for (at, mixture) in mixtures.iter().enumerate() {
        let output = &mut pixels[at * image..(at + 1) * image];
        let other = &original[(mixtures.len() - 1 - at) * image..][..image];
        if let Some(Rectangle { rows, columns }) = mixture.cut {
            for row in rows[0]..rows[1] {
                let range = (row * width + columns[0]) * 3..(row * width + columns[1]) * 3;
                output[range.clone()].copy_from_slice(&other[range]);
            }
        } else if mixture.weight != 1.0 {
            let (weight, rest) = mixture.weights();
            for (own, &other) in output.iter_mut().zip(other) {
                let mixed = f32::from(*own) * weight + f32::from(other) * rest;
                *own = mixed.round_ties_even() as u8;
            }
        }
    }
}

/// Mixes a batch of normalised images, `[batch, 3, height, width]`, as timm's `Mixup`.
pub fn mix_planes(planes: &mut [f32], mixtures: &[Mixture], [height, width]: [usize; 2]) {
    let original = planes.to_vec();
    let image = 3 * height * width;
    for (at, mixture) in mixtures.iter().enumerate() {
        let output = &mut planes[at * image..(at + 1) * image];
        let other = &original[(mixtures.len() - 1 - at) * image..][..image];
        if let Some(Rectangle { rows, columns }) = mixture.cut {
            for line in (0..3).flat_map(|plane| (rows[0]..rows[1]).map(move |row| plane * height + row)) {
                let range = line * width + columns[0]..line * width + columns[1];
                output[range.clone()].copy_from_slice(&other[range]);
            }
        } else if mixture.weight != 1.0 {
            let (weight, rest) = mixture.weights();
            for (own, other) in output.iter_mut().zip(other) {
                *own = *own * weight + other * rest;
            }
        }
    }
}

/// Computes the targets of a mixed batch, `[batch, classes]`, with label smoothing.
///
/// Without mixtures, pass [`Mixture::NONE`] for each image.
pub fn soft_targets(labels: &[usize], mixtures: &[Mixture], classes: usize, smoothing: f64) -> Vec<f32> {
    mixed_targets(labels, labels.iter().rev(), mixtures, classes, smoothing)
}

/// Computes the targets of images that are mixed with images of the labels `others`.
pub(crate) fn mixed_targets<'a>(
    labels: &[usize],
    others: impl Iterator<Item = &'a usize>,
    mixtures: &[Mixture],
    classes: usize,
    smoothing: f64,
) -> Vec<f32> {
    let off = smoothing / classes as f64;
    let (on, off) = ((1.0 - smoothing + off) as f32, off as f32);
    let target = |label: usize, class: usize| if label == class { on } else { off };
    let mut targets = Vec::with_capacity(labels.len() * classes);
    for ((&label, &other), mixture) in labels.iter().zip(others).zip(mixtures) {
        let (weight, rest) = mixture.weights();
        targets.extend((0..classes).map(|class| target(label, class) * weight + target(other, class) * rest));
    }
    targets
}
