//! timm's RandAugment.

use serde::{Deserialize, Serialize};

use super::affine::Interpolation;
use super::operation::Operation;
use crate::error::{Error, Result};
use crate::random::Stream;

/// Magnitude at which the operations have their full strength.
const FULL: f64 = 10.0;

/// Applies random operations, each with a probability: timm's `rand_augment_transform`.
///
/// [`TimmRandAugment::parse`] reads timm's text form, such as `rand-m9-mstd0.5-inc1`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimmRandAugment {
    /// Mean magnitude (`m`). 10 is full strength.
    pub magnitude: f64,
    /// Number of operations (`n`).
    pub operations: usize,
    /// Probability of each operation (`p`).
    pub probability: f64,
    /// Standard deviation of the magnitude (`mstd`). Above 100, the magnitude is uniform between 0 and its mean.
    pub deviation: f64,
    /// Largest magnitude (`mmax`).
    pub maximum: f64,
    /// True if all operations become stronger with the magnitude (`inc`).
    pub increasing: bool,
    /// Interpolation of affine operations. `None` chooses bilinear or bicubic at random.
    pub interpolation: Option<Interpolation>,
    /// Colour outside of the image. timm uses the mean of the model's images.
    pub fill: [u8; 3],
    /// Largest translation, as a fraction of the side (`translate_pct`).
    pub translate: f64,
}

impl Default for TimmRandAugment {
    fn default() -> Self {
        Self {
            magnitude: FULL,
            operations: 2,
            probability: 0.5,
            deviation: 0.0,
            maximum: FULL,
            increasing: false,
            interpolation: None,
            fill: [128; 3],
            translate: 0.45,
        }
    }
}

/// Names of the operations, as timm spells them. Those with two forms have timm's suffix `Increasing` if the policy is
/// increasing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are those of timm")]
pub enum TimmOp {
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    Solarize,
    SolarizeAdd,
    Color,
    Contrast,
    Brightness,
    Sharpness,
    ShearX,
    ShearY,
    TranslateXRel,
    TranslateYRel,
}

impl TimmOp {
    /// All operations, in timm's order.
    pub const ALL: [Self; 15] = [
        Self::AutoContrast,
        Self::Equalize,
        Self::Invert,
        Self::Rotate,
        Self::Posterize,
        Self::Solarize,
        Self::SolarizeAdd,
        Self::Color,
        Self::Contrast,
        Self::Brightness,
        Self::Sharpness,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateXRel,
        Self::TranslateYRel,
    ];
}

/// A choice of timm's policy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimmChoice {
    /// Operation.
    pub op: TimmOp,
    /// Magnitude.
    pub magnitude: f64,
    /// True if a signed argument is negated.
    pub negative: bool,
    /// Interpolation of an affine operation.
    pub interpolation: Interpolation,
}

impl TimmRandAugment {
    /// Reads timm's text form: `rand`, then sections of a key and a number, separated by dashes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] that names a section with an unknown key or without a number. Sets of operations
    /// (`t…`) are not supported.
    pub fn parse(text: &str) -> Result<Self> {
        let mut sections = text.split('-');
        if sections.next() != Some("rand") {
            let reason = format!("`{text}` does not begin with `rand`");
            return Err(Error::argument("RandAugment", reason));
        }
        let mut policy = Self::default();
        for section in sections {
            policy.set(section).ok_or_else(|| {
                let reason = format!("`{section}` is not m, n, p, mstd, mmax or inc with a number");
                Error::argument("RandAugment", reason)
            })?;
        }
        Ok(policy)
    }

    fn set(&mut self, section: &str) -> Option<()> {
        let digits = section.find(|c: char| c.is_ascii_digit())?;
        let (key, value) = section.split_at(digits);
        let number: f64 = value.parse().ok().filter(|number: &f64| number.is_finite())?;
        match key {
            "m" => self.magnitude = number.trunc(),
            "n" => self.operations = number as usize,
            "p" => self.probability = number,
            "mstd" => self.deviation = number,
            "mmax" => self.maximum = number.trunc(),
            "inc" => self.increasing = number != 0.0,
            _ => return None,
        }
        Some(())
    }

    /// Draws the choices.
    pub fn draw(&self, stream: &mut Stream) -> Vec<TimmChoice> {
        let ops: Vec<TimmOp> = (0..self.operations)
            .map(|_| TimmOp::ALL[stream.index(TimmOp::ALL.len())])
            .collect();
        ops.into_iter().filter_map(|op| self.choose(stream, op)).collect()
    }

    fn choose(&self, stream: &mut Stream, op: TimmOp) -> Option<TimmChoice> {
        let applied = stream.chance(self.probability);
        let magnitude = if self.deviation > 100.0 {
            stream.uniform(0.0, self.magnitude)
        } else if self.deviation > 0.0 {
            self.magnitude + self.deviation * stream.normal()
        } else {
            self.magnitude
        };
        let cubic = stream.chance(0.5);
        let random = if cubic {
            Interpolation::Bicubic
        } else {
            Interpolation::Bilinear
        };
        let choice = TimmChoice {
            op,
            magnitude: magnitude.clamp(0.0, self.maximum.max(0.0)),
            negative: stream.chance(0.5),
            interpolation: self.interpolation.unwrap_or(random),
        };
        applied.then_some(choice)
    }

    /// Returns the operation of a choice for an image of the given width and height.
    pub fn operation(&self, choice: TimmChoice, [width, height]: [usize; 2]) -> Operation {
        let level = choice.magnitude / FULL;
        let signed = |value: f64| if choice.negative { -value } else { value };
        let affine = |matrix| Operation::Affine {
            matrix,
            interpolation: choice.interpolation,
            fill: self.fill,
        };
        let factor = if self.increasing {
            (1.0 + signed(level * 0.9)).max(0.1)
        } else {
            level * 1.8 + 0.1
        };
        match choice.op {
            TimmOp::AutoContrast => Operation::AutoContrast,
            TimmOp::Equalize => Operation::Equalize,
            TimmOp::Invert => Operation::Invert,
            TimmOp::Rotate => Operation::Rotate {
                degrees: signed(level * 30.0),
                interpolation: choice.interpolation,
                fill: self.fill,
            },
            TimmOp::Posterize => {
                let bits = (level * 4.0) as u8;
                let bits = if self.increasing {
                    4u8.saturating_sub(bits)
                } else {
                    bits
                };
                Operation::Posterize { bits }
            }
            TimmOp::Solarize => {
                let threshold = (level * 256.0).trunc().min(256.0);
                let threshold = if self.increasing {
                    256.0 - threshold
                } else {
                    threshold
                };
                Operation::Solarize { threshold }
            }
            TimmOp::SolarizeAdd => Operation::SolarizeAdd {
                amount: (level * 110.0).min(128.0) as u8,
            },
            TimmOp::Color => Operation::Saturation { factor },
            TimmOp::Contrast => Operation::Contrast { factor },
            TimmOp::Brightness => Operation::Brightness { factor },
            TimmOp::Sharpness => Operation::Sharpness { factor },
            TimmOp::ShearX => affine([1.0, signed(level * 0.3), 0.0, 0.0, 1.0, 0.0]),
            TimmOp::ShearY => affine([1.0, 0.0, 0.0, signed(level * 0.3), 1.0, 0.0]),
            TimmOp::TranslateXRel => {
                let pixels = signed(level * self.translate) * width as f64;
                affine([1.0, 0.0, pixels, 0.0, 1.0, 0.0])
            }
            TimmOp::TranslateYRel => {
                let pixels = signed(level * self.translate) * height as f64;
                affine([1.0, 0.0, 0.0, 0.0, 1.0, pixels])
            }
        }
    }
}
