//! Transformations with fixed parameters.

use hipvit_image::{Filter, RgbImage, resize};
use serde::{Deserialize, Serialize};

use super::affine::{Interpolation, Matrix, Sampling, affine, rotate};
use super::crop::{self, PaddingMode};
use super::{color, table};
use crate::error::Result;

/// A transformation of an image whose parameters are all fixed, as a random transform draws it.
///
/// Each variant gives the bytes of the Pillow function that its documentation names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Operation {
    /// Cuts out a rectangle, as `Image.crop`. Pixels outside of the image are black.
    Crop {
        /// First row; may be negative.
        top: i64,
        /// First column; may be negative.
        left: i64,
        /// Number of rows.
        height: usize,
        /// Number of columns.
        width: usize,
    },
    /// Adds a border on all sides, as torchvision's `pad`.
    Pad {
        /// Left, top, right and bottom border, in pixels.
        border: [usize; 4],
        /// Content of the border.
        mode: PaddingMode,
        /// Colour of a constant border.
        fill: [u8; 3],
    },
    /// Resizes, as `Image.resize`.
    Resize {
        /// Height in pixels.
        height: usize,
        /// Width in pixels.
        width: usize,
        /// Resampling filter.
        filter: Filter,
    },
    /// Mirrors left and right, as `Image.transpose(FLIP_LEFT_RIGHT)`.
    HorizontalFlip,
    /// Mirrors top and bottom, as `Image.transpose(FLIP_TOP_BOTTOM)`.
    VerticalFlip,
    /// Scales the brightness, as `ImageEnhance.Brightness`.
    Brightness {
        /// Factor; 1 changes nothing.
        factor: f64,
    },
    /// Scales the contrast, as `ImageEnhance.Contrast`.
    Contrast {
        /// Factor; 1 changes nothing.
        factor: f64,
    },
    /// Scales the saturation, as `ImageEnhance.Color`.
    Saturation {
        /// Factor; 1 changes nothing, 0 gives grey.
        factor: f64,
    },
    /// Scales the sharpness, as `ImageEnhance.Sharpness`.
    Sharpness {
        /// Factor; 1 changes nothing, 0 smooths.
        factor: f64,
    },
    /// Rotates the hue, as torchvision's `adjust_hue`.
    Hue {
        /// Turns, from −0.5 to 0.5.
        factor: f64,
    },
    /// Keeps the high bits of each byte, as `ImageOps.posterize`.
    Posterize {
        /// Number of bits, at most 8.
        bits: u8,
    },
    /// Inverts bright bytes, as `ImageOps.solarize`.
    Solarize {
        /// Smallest byte that is inverted.
        threshold: f64,
    },
    /// Adds to bytes below 128, as timm's `SolarizeAdd`.
    SolarizeAdd {
        /// Amount to add.
        amount: u8,
    },
    /// Inverts all bytes, as `ImageOps.invert`.
    Invert,
    /// Flattens the channels' histograms, as `ImageOps.equalize`.
    Equalize,
    /// Stretches the channels' ranges, as `ImageOps.autocontrast`.
    #[serde(rename = "autocontrast")]
    AutoContrast,
    /// Rotates counterclockwise around the centre, as `Image.rotate`.
    Rotate {
        /// Angle in degrees.
        degrees: f64,
        /// Interpolation.
        interpolation: Interpolation,
        /// Colour outside of the image.
        fill: [u8; 3],
    },
    /// Shears or translates, as `Image.transform` with `AFFINE`.
    Affine {
        /// Mapping from output to input coordinates.
        matrix: Matrix,
        /// Interpolation.
        interpolation: Interpolation,
        /// Colour outside of the image.
        fill: [u8; 3],
    },
    /// Fills a rectangle with a colour.
    Fill {
        /// First row.
        top: usize,
        /// First column.
        left: usize,
        /// Number of rows.
        height: usize,
        /// Number of columns.
        width: usize,
        /// Colour.
        color: [u8; 3],
    },
}

impl Operation {
    /// Returns width and height of the result for an image of this width and height.
    pub fn output(&self, [image_width, image_height]: [usize; 2]) -> [usize; 2] {
        match *self {
            Self::Crop { height, width, .. } | Self::Resize { height, width, .. } => [width, height],
            Self::Pad {
                border: [left, top, right, bottom],
                ..
            } => [image_width + left + right, image_height + top + bottom],
            _ => [image_width, image_height],
        }
    }

    /// Applies the operation.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`](crate::Error::Argument) if a crop is empty or a border cannot be mirrored, and the
    /// errors of [`hipvit_image::resize`].
    pub fn apply(&self, mut image: RgbImage) -> Result<RgbImage> {
        match *self {
            Self::Crop {
                top,
                left,
                height,
                width,
            } => return crop::crop(&image, [top, left], [height, width]),
            Self::Pad { border, mode, fill } => return crop::pad(&image, border, mode, fill),
            Self::Resize {
                height,
                width,
                filter,
            } => return Ok(resize(&image, width, height, filter)?),
            Self::Rotate {
                degrees,
                interpolation,
                fill,
            } => return Ok(rotate(&image, degrees, interpolation, fill)),
            Self::Affine {
                ref matrix,
                interpolation,
                fill,
            } => return Ok(affine(&image, matrix, interpolation, fill)),
            Self::Fill {
                top,
                left,
                height,
                width,
                color,
            } => crop::fill(&mut image, [top, left], [height, width], color),
            _ => self.apply_in_place(&mut image),
        }
        Ok(image)
    }

    /// Returns the byte that [`Operation::Hue`] adds to the hue of each pixel.
    pub fn hue_shift(factor: f64) -> u8 {
        color::hue_shift(factor)
    }

    /// Returns the bits of a byte that [`Operation::Posterize`] keeps.
    pub fn posterize_mask(bits: u8) -> u8 {
        table::posterize_mask(bits)
    }

    /// Returns how a rotation or an affine transformation of an image of this width and height finds its pixels. `None` for other operations,
    /// and if the host has to compute them.
    pub fn sampling(&self, size: [usize; 2]) -> Option<Sampling> {
        match *self {
            Self::Rotate {
                degrees,
                interpolation,
                ..
            } => Sampling::of_rotation(degrees, interpolation, size),
            Self::Affine {
                ref matrix,
                interpolation,
                ..
            } => Sampling::of_affine(matrix, interpolation, size),
            _ => None,
        }
    }

    /// Applies an operation that changes pixels only.
    fn apply_in_place(&self, image: &mut RgbImage) {
        match *self {
            Self::HorizontalFlip => crop::flip_horizontally(image),
            Self::VerticalFlip => crop::flip_vertically(image),
            Self::Brightness { factor } => color::brightness(image, factor),
            Self::Contrast { factor } => color::contrast(image, factor),
            Self::Saturation { factor } => color::saturation(image, factor),
            Self::Sharpness { factor } => color::sharpness(image, factor),
            Self::Hue { factor } => color::hue(image, factor),
            Self::Posterize { bits } => table::posterize(image, bits),
            Self::Solarize { threshold } => table::solarize(image, threshold),
            Self::SolarizeAdd { amount } => table::solarize_add(image, amount),
            Self::Invert => table::map(image, |byte| 255 - byte),
            Self::Equalize => table::equalize(image),
            Self::AutoContrast => table::autocontrast(image),
            Self::Crop { .. }
            | Self::Pad { .. }
            | Self::Resize { .. }
            | Self::Rotate { .. }
            | Self::Affine { .. }
            | Self::Fill { .. } => {}
        }
    }
}
