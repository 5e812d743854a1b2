//! Names of the outputs of RT-DETR's graph, the first two as in transformers.

/// Logits of the classes of each query.
pub(crate) const LOGITS: &str = "logits";
/// Box of each query.
pub(crate) const BOXES: &str = "pred_boxes";
/// Index of the pixel that each query was made of, among those of all maps.
pub(crate) const SELECTED: &str = "selected";
