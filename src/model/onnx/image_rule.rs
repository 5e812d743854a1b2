//! The preprocessing that a caller gives for an ONNX model.

use crate::image::Filter;

/// Preprocessing of an ONNX model that has no configuration beside it, as timm's evaluation transform: resize the shorter edge, crop the
/// centre, normalise. The default has ImageNet's mean and standard deviation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageRule {
    /// Mean of each channel, for pixel values between 0 and 1.
    pub mean: [f64; 3],
    /// Standard deviation of each channel.
    pub std: [f64; 3],
    /// Part of the shorter edge that the crop keeps.
    pub crop_pct: f64,
    /// Filter of the resize.
    pub filter: Filter,
}

impl Default for ImageRule {
    fn default() -> Self {
        Self {
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
            crop_pct: 0.875,
            filter: Filter::Bicubic,
        }
    }
}
