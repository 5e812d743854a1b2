//! Resampling that equals Pillow's `Image.resize` bit for bit, for 8-bit RGB.
//!
//! Pillow resamples one axis, rounds to u8, then resamples the other, in fixed point with 22 fractional bits; reducing
//! stretches the filter so that every input pixel counts (antialiasing). Nearest is a scaled lookup whose coordinate
//! is accumulated in f64. [`coefficients`] holds the weights and [`passes`] the two vectorised passes.
//!
//! The horizontal pass comes first, except that Pillow 13 begins with the vertical one where that drops many more rows
//! than the horizontal one drops columns (very tall images, mostly). Pillow 12 and older have no such exception, so
//! their result for such an image may differ by the rounding between the passes.

mod coefficients;
mod passes;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use super::RgbImage;
use crate::{Error, Result};
use coefficients::Axis;

/// A resampling filter, by Pillow's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// The nearest input pixel; no antialiasing.
    Nearest,
    /// The mean of the covered pixels.
    Box,
    /// A triangle, support 1.
    Bilinear,
    /// A raised cosine times sinc, support 1.
    Hamming,
    /// Keys' cubic convolution with a = −0.5, support 2.
    Bicubic,
    /// A sinc windowed by a sinc, support 3.
    Lanczos,
}

impl Filter {
    /// All filters.
    pub const ALL: [Self; 6] = [
        Self::Nearest,
        Self::Box,
        Self::Bilinear,
        Self::Hamming,
        Self::Bicubic,
        Self::Lanczos,
    ];

    /// The filter with Pillow's number (`Image.Resampling`), as `preprocessor_config.json` writes it.
    pub fn from_pillow_id(id: u64) -> Option<Self> {
        Some(match id {
            0 => Self::Nearest,
            1 => Self::Lanczos,
            2 => Self::Bilinear,
            3 => Self::Bicubic,
            4 => Self::Box,
            5 => Self::Hamming,
            _ => return None,
        })
    }

    /// The filter with this lower-case name, as timm's `interpolation` writes it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|filter| filter.name() == name)
    }

    /// The lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Box => "box",
            Self::Bilinear => "bilinear",
            Self::Hamming => "hamming",
            Self::Bicubic => "bicubic",
            Self::Lanczos => "lanczos",
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A rectangle of pixels inside an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first column.
    pub left: usize,
    /// The first row.
    pub top: usize,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
}

/// Resizes `image` to `width × height` pixels, as `Image.resize((width, height), filter)` does.
///
/// # Errors
/// [`Error::Argument`] if a side is 0.
pub fn resize(image: &RgbImage, width: usize, height: usize, filter: Filter) -> Result<RgbImage> {
    resize_window(
        image,
        width,
        height,
        filter,
        Window {
            left: 0,
            top: 0,
            width,
            height,
        },
    )
}

/// The pixels of `window` of `resize(image, width, height, filter)`, without computing the others.
///
/// # Errors
/// [`Error::Argument`] if a side is 0 or the window leaves the resized image.
pub fn resize_window(
    image: &RgbImage,
    width: usize,
    height: usize,
    filter: Filter,
    window: Window,
) -> Result<RgbImage> {
    let sides = [
        width,
        height,
        window.width,
        window.height,
        image.width,
        image.height,
    ];
    // Coordinates stay exact in f64 and i32, and the buffers far from overflow.
    if sides.iter().any(|&side| side == 0 || side > MAX_SIDE) {
        let reason = format!("{width}×{height}: a side must be between 1 and {MAX_SIDE} pixels");
        return Err(Error::argument("size", reason));
    }
    if window.left + window.width > width || window.top + window.height > height {
        return Err(Error::argument(
            "window",
            format!("{window:?} leaves an image of {width}×{height}"),
        ));
    }
    if image.data.len() != image.width * image.height * 3 {
        return Err(Error::argument("image", "the pixel data does not match the size"));
    }
    Ok(resample(image, width, height, filter, window))
}

/// The longest side that is accepted, in pixels.
const MAX_SIDE: usize = 1 << 24;

fn resample(image: &RgbImage, width: usize, height: usize, filter: Filter, window: Window) -> RgbImage {
    let (columns, rows) = (
        window.left..window.left + window.width,
        window.top..window.top + window.height,
    );
    if filter == Filter::Nearest || (width == image.width && height == image.height) {
        let x = nearest_positions(image.width, width, columns);
        let y = nearest_positions(image.height, height, rows);
        return pick(image, &x, &y);
    }
    let x = (width != image.width).then(|| Axis::new(image.width, width, filter, columns.clone()));
    let y = (height != image.height).then(|| Axis::new(image.height, height, filter, rows.clone()));
    let row = image.width * 3;
    let data = match (x, y) {
        (Some(mut x), Some(y)) if vertical_first(image, width, height) => {
            let used = x.rebase();
            let narrow = passes::vertical(&image.data, row, used.start * 3..used.end * 3, &y);
            passes::horizontal(&narrow, used.len() * 3, &x)
        }
        (Some(x), Some(mut y)) => {
            let used = y.rebase();
            let low = passes::horizontal(&image.data[used.start * row..used.end * row], row, &x);
            passes::vertical(&low, window.width * 3, 0..window.width * 3, &y)
        }
        (Some(x), None) => passes::horizontal(&image.data[rows.start * row..rows.end * row], row, &x),
        (None, Some(y)) => passes::vertical(&image.data, row, columns.start * 3..columns.end * 3, &y),
        (None, None) => image.data.clone(),
    };
    RgbImage {
        width: window.width,
        height: window.height,
        data,
    }
}

/// Pillow 13's choice of the first pass. The order shows in the result, by the rounding between the passes.
fn vertical_first(image: &RgbImage, width: usize, height: usize) -> bool {
    let columns_lost = image.width.saturating_sub(width);
    image.height.saturating_sub(height) > 2 * columns_lost
}

/// Nearest's input position for every wanted output position. The coordinate is a running sum, because Pillow's is:
/// a product would round differently.
fn nearest_positions(input: usize, output: usize, wanted: std::ops::Range<usize>) -> Vec<usize> {
    let scale = input as f64 / output as f64;
    let coordinates = std::iter::successors(Some(scale * 0.5), |at| Some(at + scale));
    // The sum may drift past the end by its rounding error; Pillow leaves such a pixel black, which needs millions of
    // pixels to happen. The last pixel is the better answer.
    coordinates
        .skip(wanted.start)
        .take(wanted.len())
        .map(|at| (at as usize).min(input - 1))
        .collect()
}

fn pick(image: &RgbImage, x: &[usize], y: &[usize]) -> RgbImage {
    let mut data = Vec::with_capacity(x.len() * y.len() * 3);
    let contiguous = x.last().is_some_and(|last| last - x[0] + 1 == x.len());
    for &row in y {
        let row = &image.data[row * image.width * 3..(row + 1) * image.width * 3];
        if contiguous {
            data.extend_from_slice(&row[x[0] * 3..(x[0] + x.len()) * 3]);
        } else {
            data.extend(
                x.iter()
                    .flat_map(|&at| <[u8; 3]>::try_from(&row[at * 3..at * 3 + 3]).unwrap_or([0; 3])),
            );
        }
    }
    RgbImage {
        width: x.len(),
        height: y.len(),
        data,
    }
}
