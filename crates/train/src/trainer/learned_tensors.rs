//! Tensors of a model that a loss of pairs learns.

use hipvit::model::Checkpoint;

use crate::objective::{BIAS, BIAS_TENSOR, LOG_SCALE, SCALE_TENSOR};

/// Tensors of a model that a loss of pairs learns, and the states with their elements.
const TENSORS: [(&str, &str); 2] = [(SCALE_TENSOR, LOG_SCALE), (BIAS_TENSOR, BIAS)];

/// Returns true for a tensor that the loss of pairs learns.
pub(super) fn is_of_loss(tensor: &str) -> bool {
    TENSORS.iter().any(|(name, _)| *name == tensor)
}

/// Returns the tensors of a checkpoint that the loss learns, with their states.
pub(super) fn learned(checkpoint: &Checkpoint) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    TENSORS
        .into_iter()
        .filter(|(tensor, _)| checkpoint.names().any(|name| name == *tensor))
}
