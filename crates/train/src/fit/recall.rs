//! How often retrieval finds the caption of an image, and an image of a caption.

use serde::{Deserialize, Serialize};

/// Shares of validation images and captions that are found. Captions that occur several times count once, and have several images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Recall {
    /// Share of the images whose caption is the nearest.
    pub image_to_text_1: f64,
    /// Share of the images whose caption is one of the 5 nearest.
    pub image_to_text_5: f64,
    /// Share of the captions with an image that is the nearest.
    pub text_to_image_1: f64,
    /// Share of the captions with an image that is one of the 5 nearest.
    pub text_to_image_5: f64,
}
