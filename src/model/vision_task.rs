//! Tasks of models whose results are boxes, masks or depths, instead of logits or an embedding.

use std::path::Path;

use super::detect_source::BoxScoring;
use super::document::Document;
use super::source::Source;
use super::{hugging_face, onnx, rt_detr, sam};
use crate::error::Result;

/// What a model finds in an image, instead of a class or an embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VisionTask {
    /// Objects with boxes: [`Detector`](crate::Detector) runs the model.
    Detection,
    /// Masks of objects: [`Segmenter`](crate::Segmenter) runs the model.
    Segmentation,
    /// Depth of each pixel: [`DepthEstimator`](crate::DepthEstimator) runs the model.
    Depth,
}

/// Returns the task of the model at `path`, which its configuration says. `None` for a model that has none of these tasks, or whose configuration
/// cannot be read.
///
/// An ONNX file is a detector if `model_type` in `config.json` beside it is that of one. Its outputs are not checked.
pub fn vision_task(path: &Path) -> Option<VisionTask> {
    let task = if onnx::is_onnx(path) {
        onnx::config_beside(path).map(|config| config.and_then(|config| of_onnx(&config)))
    } else {
        of_directory(path)
    };
    task.ok().flatten()
}

fn of_onnx(config: &Document) -> Option<VisionTask> {
    let kind = config.value.get("model_type")?.as_str()?;
    BoxScoring::of_model_type(kind).map(|_| VisionTask::Detection)
}

fn of_directory(path: &Path) -> Result<Option<VisionTask>> {
    let source = Source::open(path)?;
    let document = source.config()?;
    let config = document.fields()?;
    if source.is_open_clip() || config.has("architecture") {
        return Ok(None);
    }
    Ok(if sam::is_sam(config) {
        Some(VisionTask::Segmentation)
    } else if rt_detr::is_rt_detr(config) {
        Some(VisionTask::Detection)
    } else {
        hugging_face::check_estimates_depth(config)
            .is_ok()
            .then_some(VisionTask::Depth)
    })
}
