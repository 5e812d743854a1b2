//! How images are prepared, and boxes are scored, for a model that detects objects.

use std::fmt;

use super::loaded::Model;
use super::pixel_input::PixelInput;
use crate::error::Result;
use crate::image::Preprocess;
use crate::labels::Labels;

/// A detector: what prepares images for it, and what its outputs mean.
pub(crate) struct DetectSource {
    pub(crate) preprocess: Preprocess,
    /// Input of an ONNX file. `None` for a model of a directory, whose input is [pixels](super::InputKind::Pixels).
    pub(crate) input: Option<PixelInput>,
    pub(crate) scoring: BoxScoring,
    /// Returns the labels of a number of classes.
    pub(crate) labels: Box<dyn Fn(usize) -> Result<Labels> + Send + Sync>,
    /// The model, if it was loaded from a directory instead of an ONNX file.
    pub(crate) model: Option<Model>,
}

/// How logits become scores, as `post_process_object_detection` of transformers does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoxScoring {
    /// Sigmoids. A query may have several classes. `most` pairs of query and class are considered, by default as many as queries.
    Sigmoid { most: Option<usize> },
    /// A softmax, whose last class is no object. A query has its best class.
    Softmax,
}

impl BoxScoring {
    /// Supported values of `model_type`, for errors.
    pub(crate) const MODEL_TYPES: &str = "rt_detr, rt_detr_v2, d_fine, conditional_detr, deformable_detr, detr, \
        table-transformer and yolos";

    pub(crate) fn of_model_type(kind: &str) -> Option<Self> {
        Some(match kind {
            "rt_detr" | "rt_detr_v2" | "d_fine" => Self::Sigmoid { most: None },
            "conditional_detr" | "deformable_detr" => Self::Sigmoid { most: Some(100) },
            "detr" | "table-transformer" | "yolos" => Self::Softmax,
            _ => return None,
        })
    }
}

impl fmt::Debug for DetectSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetectSource")
            .field("input", &self.input)
            .field("scoring", &self.scoring)
            .finish_non_exhaustive()
    }
}
