//! The graph of a training step: forward pass, loss, backward pass and AdamW.

/// Constants of AdamW that all tensors share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWOptions {
    /// Decay of the mean of the gradients.
    pub beta1: f32,
    /// Decay of the mean of their squares.
    pub beta2: f32,
    /// Added to the root of the mean of squares.
    pub epsilon: f32,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
        }
    }
}

/// A tensor of the checkpoint, for which a [`TensorRule`] is asked.
#[derive(Clone, Copy, Debug)]
pub struct TensorInfo<'a> {
    /// Name in the weight file.
    pub name: &'a str,
    /// Shape in the weight file.
    pub shape: &'a [usize],
    /// Layer that reads the tensor: 0 for the embedding, i + 1 for block i, and `layers` for what follows the blocks.
    pub layer: usize,
    /// Number of blocks plus 1.
    pub layers: usize,
}

/// How a tensor is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorRule {
    /// False for a tensor that stays as it is.
    pub trained: bool,
    /// Weight decay.
    pub weight_decay: f32,
    /// Multiplied with the learning rate.
    pub rate_factor: f32,
}

impl Default for TensorRule {
    fn default() -> Self {
        Self {
            trained: true,
            weight_decay: 0.0,
            rate_factor: 1.0,
        }
    }
}
