//! What a step returns.

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Number of the step, counted from 1 over all runs that were resumed.
    pub step: u64,
    /// Mean loss of the batch, before the update. For texts, the mean over their tokens.
    pub loss: f32,
    /// Norm of all gradients together, before clipping.
    pub grad_norm: f32,
    /// False if the norm is NaN or infinite. The weights and the states of the optimiser are then unchanged.
    pub updated: bool,
    /// Number of images whose largest logit is that of their largest target, or number of tokens whose largest logit is that of their label.
    pub correct: usize,
    /// Number of images, or of tokens that the loss does not leave out.
    pub counted: usize,
}
