//! How well maps of the validation images are predicted.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How well maps of the validation images are predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Figures {
    /// Depths.
    Depth(DepthFigures),
    /// Masks of prompts.
    Masks(MaskFigures),
    /// Boxes of objects.
    Boxes(BoxFigures),
}

/// How well objects are detected, by COCO's definition: means over the classes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BoxFigures {
    /// Mean of the average precisions at intersections over union of 0.5, 0.55, … 0.95.
    pub map: f64,
    /// Average precision at an intersection over union of 0.5.
    pub map_50: f64,
}

/// How well depths are predicted: means over the images, and over the pixels of each whose depth is known. Relative depths are first scaled
/// and shifted to fit the image's inverse depths best.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DepthFigures {
    /// Mean of `|prediction − depth| / depth`.
    pub abs_rel: f64,
    /// Share of the pixels whose prediction is less than 1.25 times the depth, and more than the depth divided by 1.25.
    pub delta_1: f64,
}

/// How well objects are segmented: means over two prompts for each object, a point and its box, of the mask with the highest score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MaskFigures {
    /// Share of the image's pixels that are in the mask and the object, or in neither.
    pub pixel_accuracy: f64,
    /// Intersection of mask and object over their union.
    pub mean_iou: f64,
}

impl Figures {
    /// Returns the figure that is a share of what is predicted well: δ1 for depths, the pixel accuracy for masks, mAP@0.5 for boxes.
    #[must_use]
    pub fn share(&self) -> f64 {
        match self {
            Self::Depth(figures) => figures.delta_1,
            Self::Masks(figures) => figures.pixel_accuracy,
            Self::Boxes(figures) => figures.map_50,
        }
    }

    /// Returns each figure with its tag in TensorBoard.
    pub(super) fn scalars(&self) -> Vec<(&'static str, f64)> {
        match self {
            Self::Depth(DepthFigures { abs_rel, delta_1 }) => {
                vec![("epoch/delta_1", *delta_1), ("epoch/abs_rel", *abs_rel)]
            }
            Self::Masks(MaskFigures {
                pixel_accuracy,
                mean_iou,
            }) => vec![
                ("epoch/pixel_accuracy", *pixel_accuracy),
                ("epoch/mean_iou", *mean_iou),
            ],
            Self::Boxes(BoxFigures { map, map_50 }) => {
                vec![("epoch/map_50", *map_50), ("epoch/map", *map)]
            }
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Depth(DepthFigures { abs_rel, delta_1 }) => {
                write!(f, "δ1 {:.2} %, AbsRel {abs_rel:.4}", 100.0 * delta_1)
            }
            Self::Masks(MaskFigures {
                pixel_accuracy,
                mean_iou,
            }) => write!(
                f,
                "{:.2} % of pixels, mean IoU {mean_iou:.4}",
                100.0 * pixel_accuracy
            ),
            Self::Boxes(BoxFigures { map, map_50 }) => {
                write!(f, "mAP@0.5 {map_50:.4}, mAP@[.5:.95] {map:.4}")
            }
        }
    }
}
