//! Maps and objects of an image.

use std::path::PathBuf;

use serde::Deserialize;

/// What a list says about an image, beside its file. All images of a list have the same kinds of annotations.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Annotations {
    /// File with the depth of each pixel: `depth_file_name`.
    pub depth: Option<PathBuf>,
    /// File with the number of the object of each pixel: `mask_file_name`.
    pub mask: Option<PathBuf>,
    /// Boxes of objects: `objects`.
    pub objects: Option<Objects>,
}

/// Boxes of an image, in the form of Hugging Face's datasets.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct Objects {
    /// Left, top, width and height of each box in pixels.
    #[serde(rename = "bbox")]
    pub boxes: Vec<[f32; 4]>,
    /// Class of each box.
    #[serde(rename = "categories", alias = "category")]
    pub classes: Vec<usize>,
}
