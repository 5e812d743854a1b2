//! Scale and bias of a loss of pairs.

use hipvit::error::{Error, Result};
use hipvit::model::TensorValues;
use hipvit::tensor::Tensor;

use super::learned_tensors::learned;
use super::{Trainer, Weights};
use crate::objective::LOG_SCALE;

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
