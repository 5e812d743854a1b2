//! Resamples 8-bit RGB bit-exactly like Pillow's `Image.resize`.
//!
//! Pillow resamples one axis, rounds to u8, then resamples the other axis, in fixed point with 22 fractional bits. When
//! reducing, it widens the filter so that every input pixel counts (antialiasing). Nearest is a scaled lookup whose
//! coordinate is accumulated in f64. [`coefficients`] has the weights, and [`passes`] the two vectorised passes.
//!
//! The horizontal pass comes first, with one exception. Pillow 13 begins with the vertical pass if it drops many more
//! rows than the horizontal pass drops columns, mostly in very tall images. Pillow 12 and older have no such exception,
//! so their result for these images may differ by the rounding between the passes.

mod coefficients;
mod filter;
mod passes;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::error::{Error, Result};
use crate::rgb_image::RgbImage;
pub use coefficients::{Axis, PRECISION_BITS};
pub use filter::Filter;

/// A rectangle of pixels inside an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First column.
    pub left: usize,
    /// First row.
    pub top: usize,
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

impl Window {
    /// Returns the window that covers an image of the given width and height.
    pub fn whole([width, height]: [usize; 2]) -> Self {
        Self {
            left: 0,
            top: 0,
            width,
            height,
        }
    }
}

/// Resizes `image` to `width × height` pixels, as `Image.resize((width, height), filter)` does.
///
/// # Errors
///
/// Returns [`Error::Argument`] if a side is 0.
pub fn resize(image: &RgbImage, width: usize, height: usize, filter: Filter) -> Result<RgbImage> {
    resize_window(image, width, height, filter, Window::whole([width, height]))
}

/// Returns the pixels of `window` in `resize(image, width, height, filter)`, without computing the others.
///
/// # Errors
///
/// Returns [`Error::Argument`] if a side is 0 or the window extends beyond the resized image.
pub fn resize_window(
    image: &RgbImage,
    width: usize,
    height: usize,
    filter: Filter,
    window: Window,
) -> Result<RgbImage> {
    Resampling::new([image.width, image.height], [width, height], filter, window)?.apply(image)
}

/// Maximum length of a side, in pixels.
const MAX_SIDE: usize = 1 << 24;

/// Maximum number of pixels of an image between two steps. Each step computes it whole, and thin images would grow without a limit.
const MAX_BETWEEN: usize = 1 << 28;

/// Passes that resample images of one size, with their tables, in Pillow's order.
///
/// Applied in order, with rounding to u8 between them, they give Pillow's pixels.
#[derive(Debug)]
pub struct Resampling {
    input: [usize; 2],
    passes: Vec<Pass>,
}

/// One pass over an image. Positions refer to the input of the pass.
#[derive(Debug)]
pub enum Pass {
    /// Selects the pixels at the intersections of these columns and rows.
    Pick {
        /// Column of the input for each column of the result.
        columns: Vec<usize>,
        /// Row of the input for each row of the result.
        rows: Vec<usize>,
    },
    /// Rotates the image by 90° clockwise.
    Rotate {
        /// Width and height before the rotation.
        input: [usize; 2],
    },
    /// Computes each new column as a weighted sum of old ones.
    Horizontal {
        /// Rows of the input that are resampled.
        rows: Range<usize>,
        /// Weights of the columns.
        axis: Axis,
    },
    /// Computes each new row as a weighted sum of old ones.
    Vertical {
        /// Columns of the input that are resampled.
        columns: Range<usize>,
        /// Weights of the rows.
        axis: Axis,
    },
}

impl Resampling {
    /// Creates the passes that resize an image from `input` to `output` (width, height) and keep `window`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if a side is 0 or too long, or the window extends beyond the resized image.
    pub fn new(input: [usize; 2], output: [usize; 2], filter: Filter, window: Window) -> Result<Self> {
        let [width, height] = output;
        let sides = input
            .into_iter()
            .chain(output)
            .chain([window.width, window.height]);
        // Coordinates stay exact in f64 and i32, and buffer sizes cannot overflow.
        if sides.into_iter().any(|side| side == 0 || side > MAX_SIDE) {
            let reason = format!("{width}×{height}: a side must be between 1 and {MAX_SIDE} pixels");
            return Err(Error::argument("size", reason));
        }
        if window.left + window.width > width || window.top + window.height > height {
            return Err(Error::argument(
                "window",
                format!("{window:?} leaves an image of {width}×{height}"),
            ));
        }
        let passes = passes_of(input, output, filter, window);
        Ok(Self { input, passes })
    }

    /// Creates the passes that resize an image to several sizes (width, height) one after the other. The first is that of the image.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::new`], and [`Error::Argument`] if an image between two steps is too large.
    pub(super) fn chain(sizes: &[[usize; 2]], filter: Filter, window: Window) -> Result<Self> {
        let input = sizes.first().copied().unwrap_or_default();
        let mut passes = Vec::new();
        for (index, pair) in sizes.windows(2).enumerate() {
            let (from, to) = (pair[0], pair[1]);
            if index + 2 == sizes.len() {
                passes.extend(Self::new(from, to, filter, window)?.passes);
            } else if from != to {
                let step = Self::new(from, to, filter, Window::whole(to))?;
                if to[0] * to[1] > MAX_BETWEEN {
                    let reason = format!(
                        "{}×{}: an image between two resizes has at most {MAX_BETWEEN} pixels",
                        to[0], to[1]
                    );
                    return Err(Error::argument("size", reason));
                }
                passes.extend(step.passes);
            }
        }
        Ok(Self { input, passes })
    }

    /// Returns the passes with a rotation by 90° clockwise before them.
    pub(super) fn after_rotation(mut self) -> Self {
        let [width, height] = self.input;
        self.input = [height, width];
        self.passes.insert(0, Pass::Rotate { input: self.input });
        self
    }

    /// Returns the passes in order.
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// Applies the passes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the image does not have the expected size.
    pub(super) fn apply(&self, image: &RgbImage) -> Result<RgbImage> {
        let size = [image.width, image.height];
        if size != self.input || image.data.len() != image.width * image.height * 3 {
            return Err(Error::argument("image", "the pixel data does not match the size"));
        }
        let mut done: Option<RgbImage> = None;
        for pass in &self.passes {
            done = Some(pass.apply(done.as_ref().unwrap_or(image)));
        }
        Ok(done.unwrap_or_else(|| image.clone()))
    }
}

fn passes_of(input: [usize; 2], output: [usize; 2], filter: Filter, window: Window) -> Vec<Pass> {
    let columns = window.left..window.left + window.width;
    let rows = window.top..window.top + window.height;
    if filter == Filter::Nearest || input == output {
        return vec![Pass::Pick {
            columns: nearest_positions(input[0], output[0], columns),
            rows: nearest_positions(input[1], output[1], rows),
        }];
    }
    let axis = |n: usize, wanted: &Range<usize>| {
        (input[n] != output[n]).then(|| Axis::new(input[n], output[n], filter, wanted.clone()))
    };
    match (axis(0, &columns), axis(1, &rows)) {
        (Some(mut x), Some(y)) if vertical_first(input, output) => {
            let columns = x.rebase();
            let rows = 0..window.height;
            vec![
                Pass::Vertical { columns, axis: y },
                Pass::Horizontal { rows, axis: x },
            ]
        }
        (Some(x), Some(mut y)) => {
            let rows = y.rebase();
            let columns = 0..window.width;
            vec![
                Pass::Horizontal { rows, axis: x },
                Pass::Vertical { columns, axis: y },
            ]
        }
        (Some(axis), None) => vec![Pass::Horizontal { rows, axis }],
        (None, Some(axis)) => vec![Pass::Vertical { columns, axis }],
        (None, None) => Vec::new(),
    }
}

/// Returns true if Pillow 13 begins with the vertical pass. The order affects the rounding between the passes.
fn vertical_first(input: [usize; 2], output: [usize; 2]) -> bool {
    let [columns_lost, rows_lost] = [0, 1].map(|n| input[n].saturating_sub(output[n]));
    rows_lost > 2 * columns_lost
}

impl Pass {
    /// Returns width and height of the result.
    pub fn output(&self) -> [usize; 2] {
        match self {
            Self::Pick { columns, rows } => [columns.len(), rows.len()],
            Self::Rotate {
                input: [width, height],
            } => [*height, *width],
            Self::Horizontal { rows, axis } => [axis.starts.len(), rows.len()],
            Self::Vertical { columns, axis } => [columns.len(), axis.starts.len()],
        }
    }

    fn apply(&self, image: &RgbImage) -> RgbImage {
        let row = image.width * 3;
        let [width, height] = self.output();
        let data = match self {
            Self::Pick { columns, rows } => pick(image, columns, rows),
            Self::Rotate { .. } => rotate(image),
            Self::Horizontal { rows, axis } => {
                passes::horizontal(&image.data[rows.start * row..rows.end * row], row, axis)
            }
            Self::Vertical { columns, axis } => {
                passes::vertical(&image.data, row, columns.start * 3..columns.end * 3, axis)
            }
        };
        RgbImage { width, height, data }
    }
}

/// Returns the input position for every wanted output position of the nearest filter.
///
/// The coordinate is a running sum, as in Pillow. A multiplication would round differently.
fn nearest_positions(input: usize, output: usize, wanted: Range<usize>) -> Vec<usize> {
    let scale = input as f64 / output as f64;
    let coordinates = std::iter::successors(Some(scale * 0.5), |at| Some(at + scale));
    // Rounding errors may push the sum past the end, in images of millions of pixels. Pillow leaves such a pixel black;
    // the last pixel is a better result.
    coordinates
        .skip(wanted.start)
        .take(wanted.len())
        .map(|at| (at as usize).min(input - 1))
        .collect()
}

/// Returns the pixels of the image rotated by 90° clockwise.
fn rotate(image: &RgbImage) -> Vec<u8> {
    let mut data = Vec::with_capacity(image.data.len());
    for column in 0..image.width {
        for row in (0..image.height).rev() {
            let at = (row * image.width + column) * 3;
            data.extend_from_slice(&image.data[at..at + 3]);
        }
    }
    data
}

fn pick(image: &RgbImage, x: &[usize], y: &[usize]) -> Vec<u8> {
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
    data
}
