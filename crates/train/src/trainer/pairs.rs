//! Scale and bias of a loss of pairs.

use hipvit::error::{Error, Result};
use hipvit::model::{Checkpoint, TensorValues};
use hipvit::tensor::Tensor;

use super::{Trainer, Weights};
use crate::objective::{BIAS, BIAS_TENSOR, LOG_SCALE, SCALE_TENSOR};

/// Tensors of a model that a loss of pairs learns, and the states with their elements.
const TENSORS: [(&str, &str); 2] = [(SCALE_TENSOR, LOG_SCALE), (BIAS_TENSOR, BIAS)];

/// Returns true for a tensor that the loss of pairs learns.
pub(super) fn is_of_loss(tensor: &str) -> bool {
    TENSORS.iter().any(|(name, _)| *name == tensor)
}

impl Trainer {
    /// Adds the model's tensors that the loss has learned.
    pub(super) fn add_scale(&self, values: &mut TensorValues, weights: Weights) -> Result<()> {
        for (tensor, state) in learned(&self.checkpoint) {
            values.insert(tensor.to_owned(), self.weight(state, weights)?);
        }
        Ok(())
    }

    /// Reduces the scale to its limit, if the last step has exceeded it. The logarithm is not below 0, as in open_clip's training.
    pub(super) fn limit_scale(&self) -> Result<()> {
        let Some(largest) = self.largest_scale() else {
            return Ok(());
        };
        let executor = self.executor()?;
        let found = executor.state(LOG_SCALE)?.to_f32().first().copied();
        let found = found.ok_or_else(|| Error::internal("training", "the scale has no element"))?;
        let limited = found.clamp(0.0, largest.ln());
        if limited != found
            && found.is_finite()
            && let Some(tensor) = Tensor::from_f32([1], vec![limited])
        {
            executor.set_state(LOG_SCALE, &tensor)?;
        }
        Ok(())
    }

    /// Returns the limit of the scale, if it has one.
    pub(super) fn largest_scale(&self) -> Option<f32> {
        let limit = self
            .options
            .loss
            .contrastive()
            .map(|options| options.largest_scale);
        limit.filter(|limit| limit.is_finite())
    }
}

/// Returns the tensors of a checkpoint that the loss learns, with their states.
pub(super) fn learned(checkpoint: &Checkpoint) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    TENSORS
        .into_iter()
        .filter(|(tensor, _)| checkpoint.names().any(|name| name == *tensor))
}
