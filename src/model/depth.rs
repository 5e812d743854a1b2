//! Neck and head of models that estimate depth, independent of the configuration that describes them.
//!
//! DPT (<https://arxiv.org/abs/2103.13413>) converts tokens of several blocks to maps of several sizes, and fuses them from the smallest to the
//! largest. Depth Anything (<https://arxiv.org/abs/2406.09414>) differs in the sizes of the fused maps and in the head.

use crate::ops::Activation;

/// Name of the output of models that estimate depth, `[B, height, width]`.
pub const PREDICTED_DEPTH: &str = "predicted_depth";

/// Neck and head that convert tokens to a map of depths.
#[derive(Clone, Debug)]
pub(super) struct DepthHead {
    /// Tokens that the neck reads: 0 before the first block, n after block n − 1. In ascending order.
    pub(super) states: Vec<usize>,
    /// True if the encoder's last norm is applied to these tokens.
    pub(super) norm: bool,
    /// True if the encoder has a mask token, which depths do not need.
    pub(super) has_mask_token: bool,
    pub(super) readout: Readout,
    /// Channels and scale of the map of each of the states.
    pub(super) maps: Vec<(usize, Scale)>,
    /// Number of channels of the fused maps.
    pub(super) fusion: usize,
    /// True if the convolutions of the residual units have biases.
    pub(super) fusion_bias: bool,
    /// Index of the fused map that the head reads. They are ordered from the smallest to the largest.
    pub(super) index: usize,
    pub(super) form: Form,
}

/// Role of the class token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readout {
    /// It is dropped.
    Ignore,
    /// It is added to each token.
    Add,
    /// A linear layer of each token and the class token, with an activation.
    Project(Activation),
}

/// Size of a map, compared with the grid of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Larger by this factor, by a transposed convolution.
    Up(usize),
    Same,
    /// A convolution with this stride.
    Down(usize),
}

/// What Depth Anything and DPT differ in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Form {
    /// Each fused map has the size of the next one, and the depths that of the image.
    DepthAnything {
        /// Number of channels before the last layer.
        hidden: usize,
        /// True if a sigmoid ends the head, false if it is ReLU.
        is_metric: bool,
        /// Factor of the depths.
        max_depth: f32,
    },
    /// Each fused map has twice the size of the one before, and the depths twice that of the last.
    Dpt {
        /// True if there is a convolution before the head.
        projection: bool,
    },
}

impl DepthHead {
    /// Returns true if depths are in metres, and false if they are known up to scale and shift.
    pub(super) fn is_metric(&self) -> bool {
        matches!(self.form, Form::DepthAnything { is_metric: true, .. })
    }
}
