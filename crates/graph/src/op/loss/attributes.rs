//! Attributes of losses.

use std::fmt;

use super::super::OpError;
use super::super::operands::expect;

/// A function of an image's logits and targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// `−Σ target · ln softmax(logits)`. Targets are probabilities, so that label smoothing and mixed images are in them.
    #[default]
    CrossEntropy,
    /// Mean over the classes of `−target · ln σ(logit) − (1 − target) · ln σ(−logit)`.
    BinaryCrossEntropy,
    /// Mean over the outputs of `(output − target)²`.
    MeanSquaredError,
}

impl LossKind {
    /// All kinds.
    pub(in crate::op) const ALL: [Self; 3] = [
        Self::CrossEntropy,
        Self::BinaryCrossEntropy,
        Self::MeanSquaredError,
    ];

    /// Returns the number that kernels know the kind by.
    pub fn code(self) -> u32 {
        match self {
            Self::CrossEntropy => 0,
            Self::BinaryCrossEntropy => 1,
            Self::MeanSquaredError => 2,
        }
    }
}

/// Returns the number of images of logits and targets.
///
/// # Errors
///
/// [`OpError`] if they are not both `[B, C]`.
pub(in crate::op) fn images(logits: &[usize], targets: &[usize]) -> Result<usize, OpError> {
    let [batch, _] = *logits else {
        return Err(OpError::layout("the logits", logits, "[B, C]"));
    };
    expect("targets", targets, logits)?;
    Ok(batch)
}

impl fmt::Display for LossKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::CrossEntropy => "cross_entropy",
            Self::BinaryCrossEntropy => "binary_cross_entropy",
            Self::MeanSquaredError => "mean_squared_error",
        })
    }
}
