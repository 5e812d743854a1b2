//! Options of loading a model.

use std::collections::BTreeMap;

use super::onnx::image_rule::ImageRule;
use crate::error::{Error, Result};

/// Options of [`load`](super::load()).
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// Height and width of the images, if they differ from the model's. Position embeddings are interpolated.
    pub image_size: Option<[usize; 2]>,
    /// Input of the graph.
    pub input: InputKind,
    /// If true, the tokens before the first block are an output,
    /// [`OutputKind::EmbeddedTokens`](crate::graph::OutputKind::EmbeddedTokens).
    pub embedded_tokens: bool,
    /// If true, all tokens after the final norm are an output.
    pub tokens: bool,
    /// Blocks, counted from 0, after which all tokens are an output.
    pub hidden_layers: Vec<usize>,
    /// Number of patches in a sequence, if images keep their aspect ratio and several are packed into a sequence.
    pub packed: Option<usize>,
    /// Maximum number of floating-point operations per image, if not [`MAX_FLOPS`].
    pub max_flops: Option<u64>,
    /// Numbers for extents of an ONNX model's inputs that have a name in the file, such as `height`.
    pub extents: BTreeMap<String, usize>,
    /// If true, the model must be a detector, and its graph is the one that training differentiates, with the outputs `logits` and `pred_boxes`
    /// of all layers.
    pub trained_detector: bool,
    /// Preprocessing of an ONNX model, in place of a configuration beside the file.
    pub image_rule: Option<ImageRule>,
}

impl LoadOptions {
    /// Checks that only options in `supported` are given, of those that a model may not have. `kind` completes "is not an option of".
    pub(super) fn check_supported(&self, supported: &[&str], kind: &str) -> Result<()> {
        let given = [
            (self.image_size.is_some(), "image size"),
            (self.packed.is_some(), "packed"),
            (self.tokens || self.embedded_tokens, "tokens"),
            (!self.hidden_layers.is_empty(), "hidden layers"),
            (self.input != InputKind::Pixels, "input"),
            (!self.extents.is_empty(), "extents"),
            (self.image_rule.is_some(), "image rule"),
        ];
        let refused = |(given, option): &(bool, &str)| *given && !supported.contains(option);
        match given.into_iter().find(refused) {
            Some((_, option)) => Err(Error::argument(option, format!("is not an option of {kind}"))),
            None => Ok(()),
        }
    }
}

/// Default limit of floating-point operations per image, several times what the largest supported models take at their
/// own image size.
///
/// Without a limit, a wrong size in a configuration could take hours and all memory.
pub const MAX_FLOPS: u64 = 10_000_000_000_000;

/// Input of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputKind {
    /// Resized and cropped images, u8 `[B,H,W,3]`. The graph normalises them.
    #[default]
    Pixels,
    /// Normalised images, f32 `[B,3,H,W]`, as the libraries' processors return them.
    PixelValues,
    /// The inputs and outputs of an ONNX file, by name; see [`Session::run_tensors`](crate::Session::run_tensors). An ONNX model without
    /// preprocessing has this kind of input in place of [`Pixels`](Self::Pixels).
    Tensors,
}
