//! The targets of a batch.

use std::ops::Range;

use hipvit::error::{Error, Result};

use crate::objective::Objective;

/// Targets of a batch. Made of a slice, it has no logits of a teacher.
#[derive(Clone, Copy, Debug, Default)]
pub struct Targets<'a> {
    /// `[images, classes]`: probabilities of the classes, or values for [`LossKind::MeanSquaredError`](crate::LossKind::MeanSquaredError).
    /// `[images, channels]` for [`Objective::Contrastive`]: embeddings of the texts, of any length.
    pub values: &'a [f32],
    /// `[images, classes]`: logits of the teacher for the same images. Only for [`Objective::Distillation`].
    pub teacher: &'a [f32],
}

impl<'a> From<&'a [f32]> for Targets<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self { values, teacher: &[] }
    }
}

impl<'a> From<&'a Vec<f32>> for Targets<'a> {
    fn from(values: &'a Vec<f32>) -> Self {
        Self::from(values.as_slice())
    }
}

impl<'a> Targets<'a> {
    /// Returns the number of images.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if these are not rows of `width` targets, or if the logits of the teacher are missing.
    pub(super) fn images(&self, width: usize, objective: &Objective) -> Result<usize> {
        let len = self.values.len();
        if width == 0 || len == 0 || !len.is_multiple_of(width) {
            let what = if objective.has_classes() {
                "classes"
            } else {
                "channels"
            };
            let reason = format!("{len} were given, which are not rows of {width} {what}");
            return Err(Error::argument("targets", reason));
        }
        let expected = if objective.has_teacher() { len } else { 0 };
        if self.teacher.len() != expected {
            let reason = format!(
                "has {} logits, expected {expected}: {}",
                self.teacher.len(),
                if expected > 0 {
                    "a row for each image of the batch"
                } else {
                    "the loss compares none"
                }
            );
            return Err(Error::argument("teacher", reason));
        }
        Ok(len / width)
    }

    /// Returns the targets of the images `part`.
    pub(super) fn rows(&self, width: usize, part: &Range<usize>) -> Self {
        let rows = part.start * width..part.end * width;
        Self {
            values: &self.values[rows.clone()],
            teacher: self.teacher.get(rows).unwrap_or_default(),
        }
    }
}
