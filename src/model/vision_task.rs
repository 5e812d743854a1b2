//! Tasks of models whose results are boxes, masks or depths, instead of logits or an embedding.

use std::path::Path;

use super::detect_source::BoxScoring;
use super::document::{Document, LONGEST_JSON, parse};
use super::fields::Fields;
use super::source::Source;
use super::{hugging_face, onnx, rt_detr, sam};
use crate::error::{Error, Result};
use hipvit_files::regular_file;

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
/// cannot be read. `path` may also be a configuration, a file that ends in `.json`.
///
/// An ONNX file is a detector if `model_type` in `config.json` beside it is that of one. Its outputs are not checked.
pub fn vision_task(path: &Path) -> Option<VisionTask> {
    let task = if onnx::is_onnx(path) {
        onnx::config_beside(path).map(|config| config.and_then(|config| of_onnx(&config)))
    } else if path.extension().is_some_and(|extension| extension == "json") {
        of_config_file(path)
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
    if source.is_open_clip() {
        return Ok(None);
    }
    Ok(of_config(document.fields()?))
}

fn of_config_file(path: &Path) -> Result<Option<VisionTask>> {
    let bytes = regular_file::read_within(path, LONGEST_JSON).map_err(|error| Error::io(path, error))?;
    let document = parse(path.to_owned(), &bytes)?;
    Ok(of_config(document.fields()?))
}

fn of_config(config: Fields<'_>) -> Option<VisionTask> {
    if config.has("architecture") {
        None
    } else if sam::is_sam(config) {
        Some(VisionTask::Segmentation)
    } else if rt_detr::is_rt_detr(config) {
        Some(VisionTask::Detection)
    } else {
        let estimates_depth = hugging_face::check_estimates_depth(config).is_ok();
        estimates_depth.then_some(VisionTask::Depth)
    }
}
