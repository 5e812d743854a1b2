//! Names of inputs and outputs of SAM's graphs, as in transformers.

/// Output of the encoder, and input of the decoder.
pub(crate) const EMBEDDING: &str = "image_embeddings";
/// Input of the decoder: the tokens of each prompt.
pub(crate) const TOKENS: &str = "tokens";
/// Output of the decoder: the logits of the masks.
pub const MASKS: &str = "pred_masks";
/// Output of the decoder: the predicted intersection over union of each mask.
pub const SCORES: &str = "iou_scores";
