//! Policies of torchvision: RandAugment, TrivialAugmentWide and AutoAugment.

use serde::{Deserialize, Serialize};

use super::affine::{Interpolation, shear_translation};
use super::operation::Operation;
use crate::error::{Error, Result};
use crate::random::Stream;

/// Names of a policy's operations, as torchvision spells them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are those of torchvision")]
pub enum PolicyOp {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

/// Interpolation of a policy's affine operations, and the colour outside of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AffineStyle {
    /// Interpolation.
    pub interpolation: Interpolation,
    /// Colour outside of the image.
    pub fill: [u8; 3],
}

impl AffineStyle {
    fn affine(self, center: [f64; 2], translate: [f64; 2], shear: [f64; 2]) -> Operation {
        Operation::Affine {
            matrix: shear_translation(center, translate, shear),
            interpolation: self.interpolation,
            fill: self.fill,
        }
    }

    fn shear(self, shear: [f64; 2]) -> Operation {
        self.affine([0.0; 2], [0.0; 2], shear.map(|level| level.atan().to_degrees()))
    }

    fn translate(self, size: [usize; 2], translate: [f64; 2]) -> Operation {
        let center = size.map(|side| side as f64 * 0.5);
        self.affine(center, translate.map(f64::trunc), [0.0; 2])
    }
}

impl PolicyOp {
    /// Operations of RandAugment and TrivialAugmentWide, in torchvision's order.
    const RANDOM: [Self; 14] = [
        Self::Identity,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
        Self::Rotate,
        Self::Brightness,
        Self::Color,
        Self::Contrast,
        Self::Sharpness,
        Self::Posterize,
        Self::Solarize,
        Self::AutoContrast,
        Self::Equalize,
    ];

    /// Returns true if the magnitude has a random sign.
    fn is_signed(self) -> bool {
        !matches!(
            self,
            Self::Identity
                | Self::Posterize
                | Self::Solarize
                | Self::AutoContrast
                | Self::Equalize
                | Self::Invert
        )
    }

    /// Returns the operation at a magnitude for an image of the given width and height. Returns `None` for the identity.
    pub fn operation(self, magnitude: f64, style: AffineStyle, size: [usize; 2]) -> Option<Operation> {
        let factor = 1.0 + magnitude;
        Some(match self {
            Self::Identity => return None,
            Self::ShearX => style.shear([magnitude, 0.0]),
            Self::ShearY => style.shear([0.0, magnitude]),
            Self::TranslateX => style.translate(size, [magnitude, 0.0]),
            Self::TranslateY => style.translate(size, [0.0, magnitude]),
            Self::Rotate => Operation::Rotate {
                degrees: magnitude,
                interpolation: style.interpolation,
                fill: style.fill,
            },
            Self::Brightness => Operation::Brightness { factor },
            Self::Color => Operation::Saturation { factor },
            Self::Contrast => Operation::Contrast { factor },
            Self::Sharpness => Operation::Sharpness { factor },
            Self::Posterize => Operation::Posterize {
                bits: magnitude as u8,
            },
            Self::Solarize => Operation::Solarize { threshold: magnitude },
            Self::AutoContrast => Operation::AutoContrast,
            Self::Equalize => Operation::Equalize,
            Self::Invert => Operation::Invert,
        })
    }
}

/// Largest magnitudes of a policy's operations.
#[derive(Clone, Copy, Debug)]
struct Range {
    shear: f64,
    /// Translation in x and y, in pixels.
    translate: [f64; 2],
    degrees: f64,
    color: f64,
    /// Bits that posterize drops.
    bits: f64,
}

impl Range {
    /// Returns the range of RandAugment and AutoAugment for an image of the given width and height.
    fn moderate(size: [usize; 2]) -> Self {
        Self {
            shear: 0.3,
            translate: size.map(|side| 150.0 / 331.0 * side as f64),
            degrees: 30.0,
            color: 0.9,
            bits: 4.0,
        }
    }

    /// Range of TrivialAugmentWide.
    const WIDE: Self = Self {
        shear: 0.99,
        translate: [32.0; 2],
        degrees: 135.0,
        color: 0.99,
        bits: 6.0,
    };

    /// Returns the magnitude of bin `bin` of `bins`.
    fn magnitude(&self, op: PolicyOp, bin: usize, bins: usize) -> f64 {
        let rising = |end: f64| linspace(0.0, end as f32, bins, bin);
        match op {
            PolicyOp::ShearX | PolicyOp::ShearY => rising(self.shear),
            PolicyOp::TranslateX => rising(self.translate[0]),
            PolicyOp::TranslateY => rising(self.translate[1]),
            PolicyOp::Rotate => rising(self.degrees),
            PolicyOp::Brightness | PolicyOp::Color | PolicyOp::Contrast | PolicyOp::Sharpness => {
                rising(self.color)
            }
            PolicyOp::Posterize => {
                let step = (bins.saturating_sub(1) as f64 / self.bits) as f32;
                8.0 - f64::from((bin as f32 / step).round_ties_even())
            }
            PolicyOp::Solarize => linspace(255.0, 0.0, bins, bin),
            PolicyOp::Identity | PolicyOp::AutoContrast | PolicyOp::Equalize | PolicyOp::Invert => 0.0,
        }
    }
}

/// Returns element `index` of PyTorch's `linspace` in f32, which fuses multiplication and addition.
fn linspace(start: f32, end: f32, steps: usize, index: usize) -> f64 {
    let last = steps.saturating_sub(1);
    let step = (end - start) / last as f32;
    f64::from(if index < steps / 2 {
        step.mul_add(index as f32, start)
    } else {
        (-step).mul_add(last.saturating_sub(index) as f32, end)
    })
}

/// A choice of a policy: an operation, the bin of its magnitude, and whether the magnitude is negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChoice {
    /// Operation.
    pub op: PolicyOp,
    /// Bin of the magnitude, counted from 0.
    pub bin: usize,
    /// True if the magnitude is negated.
    pub negative: bool,
}

impl PolicyChoice {
    fn operation(
        self,
        bins: usize,
        range: &Range,
        style: AffineStyle,
        size: [usize; 2],
    ) -> Option<Operation> {
        let magnitude = range.magnitude(self.op, self.bin, bins);
        let negative = self.negative && self.op.is_signed();
        let magnitude = if negative { -magnitude } else { magnitude };
        self.op.operation(magnitude, style, size)
    }
}

/// Applies operations of equal magnitude: torchvision's `RandAugment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandAugment {
    /// Number of operations.
    pub operations: usize,
    /// Bin of the magnitude, below `bins`.
    pub magnitude: usize,
    /// Number of bins of the magnitude, at least 2.
    pub bins: usize,
    /// Interpolation and fill colour.
    pub style: AffineStyle,
}

impl Default for RandAugment {
    fn default() -> Self {
        Self {
            operations: 2,
            magnitude: 9,
            bins: 31,
            style: AffineStyle::default(),
        }
    }
}

impl RandAugment {
    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if there are fewer than two bins or the magnitude is not a bin.
    pub fn check(&self) -> Result<()> {
        check_bins("RandAugment", self.bins)?;
        if self.magnitude < self.bins {
            return Ok(());
        }
        let reason = format!(
            "magnitude {} must be below the number of bins, {}",
            self.magnitude, self.bins
        );
        Err(Error::argument("RandAugment", reason))
    }

    /// Draws the choices.
    pub fn draw(&self, stream: &mut Stream) -> Vec<PolicyChoice> {
        let choice = |_| PolicyChoice {
            op: PolicyOp::RANDOM[stream.index(PolicyOp::RANDOM.len())],
            bin: self.magnitude,
            negative: stream.chance(0.5),
        };
        (0..self.operations).map(choice).collect()
    }

    /// Returns the operation of a choice for an image of the given width and height.
    pub fn operation(&self, choice: PolicyChoice, size: [usize; 2]) -> Option<Operation> {
        choice.operation(self.bins, &Range::moderate(size), self.style, size)
    }
}

fn check_bins(policy: &'static str, bins: usize) -> Result<()> {
    if bins >= 2 {
        return Ok(());
    }
    Err(Error::argument(
        policy,
        format!("{bins} bins: at least 2 are needed"),
    ))
}

/// Applies one operation of random magnitude: torchvision's `TrivialAugmentWide`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrivialAugmentWide {
    /// Number of bins of the magnitude, at least 2.
    pub bins: usize,
    /// Interpolation and fill colour.
    pub style: AffineStyle,
}

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        Self {
            bins: 31,
            style: AffineStyle::default(),
        }
    }
}

impl TrivialAugmentWide {
    /// Checks the number of bins.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if there are fewer than two bins.
    pub fn check(&self) -> Result<()> {
        check_bins("TrivialAugmentWide", self.bins)
    }

    /// Draws the choice.
    pub fn draw(&self, stream: &mut Stream) -> PolicyChoice {
        PolicyChoice {
            op: PolicyOp::RANDOM[stream.index(PolicyOp::RANDOM.len())],
            bin: stream.index(self.bins),
            negative: stream.chance(0.5),
        }
    }

    /// Returns the operation of a choice for an image of the given width and height.
    pub fn operation(&self, choice: PolicyChoice, size: [usize; 2]) -> Option<Operation> {
        choice.operation(self.bins, &Range::WIDE, self.style, size)
    }
}

/// Applies one of 25 learned pairs of operations: torchvision's `AutoAugment` with the ImageNet policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AutoAugment {
    /// Interpolation and fill colour.
    pub style: AffineStyle,
}

/// Number of bins of AutoAugment's magnitudes.
const AUTO_AUGMENT_BINS: usize = 10;

impl AutoAugment {
    /// Draws the choices: those operations of a pair that its probabilities select.
    pub fn draw(&self, stream: &mut Stream) -> Vec<PolicyChoice> {
        let pair = IMAGENET[stream.index(IMAGENET.len())];
        let selected = pair.map(|(op, probability, bin)| {
            let choice = PolicyChoice {
                op,
                bin,
                negative: stream.chance(0.5),
            };
            stream.chance(probability).then_some(choice)
        });
        selected.into_iter().flatten().collect()
    }

    /// Returns the operation of a choice for an image of the given width and height.
    pub fn operation(&self, choice: PolicyChoice, size: [usize; 2]) -> Option<Operation> {
        choice.operation(AUTO_AUGMENT_BINS, &Range::moderate(size), self.style, size)
    }

    /// Returns the choices of pair `pair`, with their probabilities.
    #[cfg(test)]
    pub(super) fn pair(pair: usize) -> [(PolicyOp, f64, usize); 2] {
        IMAGENET[pair]
    }
}

/// ImageNet policy: operation, probability and bin of the magnitude.
const IMAGENET: [[(PolicyOp, f64, usize); 2]; 25] = {
    use PolicyOp::*;
    [
        [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
        [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
        [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
        [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
        [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
        [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
        [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
        [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
        [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
        [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
        [(Rotate, 0.8, 8), (Color, 0.4, 0)],
        [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
        [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
        [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
        [(Color, 0.6, 4), (Contrast, 1.0, 8)],
        [(Rotate, 0.8, 8), (Color, 1.0, 2)],
        [(Color, 0.8, 8), (Solarize, 0.8, 7)],
        [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
        [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
        [(Color, 0.4, 0), (Equalize, 0.6, 0)],
        [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
        [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
        [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
        [(Color, 0.6, 4), (Contrast, 1.0, 8)],
        [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    ]
};
