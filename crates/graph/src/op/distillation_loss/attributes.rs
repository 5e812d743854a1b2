//! Attributes of distillation.

use std::fmt;

use super::super::operands::{exactly, expect};
use super::super::{LossKind, OpError};

/// `(logits [B,C], distilled [B,C], targets [B,C] f32, teacher [B,C] f32) → loss [B,1] f32`: the loss of each image as DeiT's
/// `DistillationLoss` computes it, `(1 − alpha) · base + alpha · distillation`. `base` is the loss of `logits` and `targets`. The second term
/// compares the logits `distilled` with those of a teacher. A model without a classifier for distillation takes the same logits twice.
/// <https://arxiv.org/abs/2012.12877>
///
/// The loss has no derivative with respect to the targets and the teacher.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DistillationLoss {
    /// Loss of the targets.
    pub base: LossKind,
    /// Comparison with the teacher.
    pub kind: DistillationKind,
    /// Share of the comparison with the teacher.
    pub alpha: f32,
    /// Divisor of both logits in [`DistillationKind::Soft`].
    pub temperature: f32,
}

/// Comparison of logits with those of a teacher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DistillationKind {
    /// `temperature² / C · KL(softmax(teacher / temperature) ‖ softmax(distilled / temperature))`.
    Soft,
    /// Cross-entropy with the teacher's class, the first of equal ones.
    #[default]
    Hard,
}

impl DistillationLoss {
    /// Returns the extents `[B, C]` of the first four operands.
    pub(in crate::op) fn extents(&self, operands: &[&[usize]]) -> Result<[usize; 2], OpError> {
        let [logits, distilled, targets, teacher] = exactly(operands)?;
        let [batch, classes] = *logits else {
            return Err(OpError::layout("the logits", logits, "[B, C]"));
        };
        expect("distilled logits", distilled, logits)?;
        expect("targets", targets, logits)?;
        expect("teacher's logits", teacher, logits)?;
        let is_divisor = self.temperature > 0.0 && self.temperature.is_finite();
        if !is_divisor || !(0.0..=1.0).contains(&self.alpha) {
            let reason = format!(
                "has a temperature of {} and an alpha of {}, expected a temperature above 0 and an alpha from 0 to 1",
                self.temperature, self.alpha
            );
            return Err(reason.into());
        }
        Ok([batch, classes])
    }
}

impl fmt::Display for DistillationLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            base,
            kind,
            alpha,
            temperature,
        } = self;
        match kind {
            DistillationKind::Soft => write!(f, "{base} + {alpha} soft, τ={temperature}"),
            DistillationKind::Hard => write!(f, "{base} + {alpha} hard"),
        }
    }
}
