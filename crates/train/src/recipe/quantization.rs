//! Keys of a recipe that round linear layers.

use serde::{Deserialize, Serialize};

use crate::float8::Float8Options;
use crate::quantization::Quantization as Rounding;

/// Rounding of the linear layers of the blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quantization {
    /// Numbers that the layers compute with.
    pub kind: QuantizationKind,
    /// Share of the elements of a layer's input, weight or gradient that may underflow or overflow in FP8. A layer with a larger share returns to the
    /// dtype of the activations.
    pub max_rate: f64,
    /// Scales of FP8.
    pub scale: Float8Scales,
    /// Layers in FP8.
    pub layers: Float8Selection,
}

/// Scales of numbers in FP8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Float8Scales {
    /// From the largest magnitude of the last steps.
    #[default]
    Delayed,
    /// From the largest magnitude of the same step.
    Current,
}

/// Linear layers of the blocks that are computed in FP8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Float8Selection {
    /// Those that are expected to gain time, or all if there are none.
    #[default]
    Auto,
    /// All.
    All,
}

impl Default for Quantization {
    fn default() -> Self {
        Self {
            kind: QuantizationKind::None,
            max_rate: 0.05,
            scale: Float8Scales::default(),
            layers: Float8Selection::default(),
        }
    }
}

/// Numbers that the linear layers of the blocks compute with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuantizationKind {
    /// The numbers of the other layers.
    #[default]
    None,
    /// Inputs and weights rounded to int8, for a model that is quantised after training.
    Int8,
    /// Inputs and weights in E4M3, gradients in E5M2.
    Fp8,
}

impl From<&Quantization> for Rounding {
    fn from(keys: &Quantization) -> Self {
        match keys.kind {
            QuantizationKind::None => Self::None,
            QuantizationKind::Int8 => Self::Int8,
            QuantizationKind::Fp8 => Self::Float8(Float8Options {
                max_rate: keys.max_rate as f32,
                delayed: keys.scale == Float8Scales::Delayed,
                all_layers: keys.layers == Float8Selection::All,
            }),
        }
    }
}
