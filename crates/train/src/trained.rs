//! The tensors of a model that a step trains, and how.

use hipvit::graph::ValueId;

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

/// A constant of a model that a step updates.
#[derive(Clone, Debug)]
pub(crate) struct Trained {
    pub(crate) id: ValueId,
    pub(crate) rule: TensorRule,
    /// Factors of the gradient's elements: 0 for those that stay as they are. `None` if all are updated.
    pub(crate) mask: Option<Vec<f32>>,
    /// True for a state, which the forward pass reads in f32.
    pub(crate) is_f32: bool,
}
