//! Precisions of weights, and the methods that determine their scales.

use serde::Serialize;

use hipvit::model::Format;

/// Target precision of the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// int8, with activations that are rounded to 8 bits at run time.
    #[default]
    Int8,
    /// FP8 (E4M3). With images, activations are in FP8 too.
    Fp8,
    /// FP8 (E4M3), with activations that are rounded to FP8 at run time.
    Fp8Dynamic,
    /// bf16, with activations that the CPU rounds to bf16.
    Bf16,
    /// Unchanged: only [`Options::sparsity`](crate::Options::sparsity) changes the model.
    Full,
}

impl Precision {
    /// Returns the name of the precision.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Fp8 => "fp8",
            Self::Fp8Dynamic => "fp8-dynamic",
            Self::Bf16 => "bf16",
            Self::Full => "full",
        }
    }

    pub(super) fn format(self, images: usize) -> Format {
        match self {
            Self::Int8 => Format::Int8,
            Self::Fp8 if images > 0 => Format::Float8Activations,
            Self::Fp8 => Format::Float8,
            Self::Fp8Dynamic => Format::Float8Dynamic,
            Self::Bf16 | Self::Full => Format::Full,
        }
    }
}

/// Method that determines the scale of a weight's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scales {
    /// The largest magnitude of the row becomes the largest value of the type.
    #[default]
    Largest,
    /// The scale with the least mean square error. It may clip the largest magnitudes.
    MeanSquare,
}
