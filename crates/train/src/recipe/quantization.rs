//! Keys of a recipe that round linear layers.

use serde::{Deserialize, Serialize};

use crate::quantization::Quantization as Rounding;

/// Rounding of the linear layers of the blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quantization {
    /// Numbers that the layers compute with.
    pub kind: QuantizationKind,
    /// Share of the elements of a layer's input, weight or gradient that may underflow in FP8. A layer with a larger share returns to the
    /// dtype of the activations.
    pub max_rate: f64,
}

impl Default for Quantization {
    fn default() -> Self {
        Self {
            kind: QuantizationKind::None,
            max_rate: 0.05,
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
            QuantizationKind::Fp8 => Self::Float8 {
                max_rate: keys.max_rate as f32,
            },
        }
    }
}
