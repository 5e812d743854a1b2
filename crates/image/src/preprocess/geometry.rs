//! Computes sizes and crops with the roundings of each library.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

use crate::Result;
use crate::{Filter, Pass, Resampling, RgbImage, Window};

/// Method that determines the size after resizing from the image's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Resize {
    /// Resizes to this size. The aspect ratio may change.
    Exact {
        /// Height in pixels.
        height: usize,
        /// Width in pixels.
        width: usize,
    },
    /// Resizes the shorter edge to `edge`. The other edge is proportional and truncated to a whole number (torchvision,
    /// transformers).
    Shortest {
        /// Length of the shorter edge, in pixels.
        edge: usize,
        /// Maximum length of the longer edge, in pixels. If it applies, the shorter edge is reduced (transformers).
        longest: Option<usize>,
    },
    /// Resizes in proportion to the smallest size that covers this box, rounded half to even (timm).
    Cover {
        /// Height of the box.
        height: usize,
        /// Width of the box.
        width: usize,
    },
    /// Resizes in proportion to the largest size inside this box, rounded half to even (timm's border mode).
    Contain {
        /// Height of the box.
        height: usize,
        /// Width of the box.
        width: usize,
    },
    /// Resizes to the height or the width of this box, whichever changes the image less. The other side is proportional, and both are rounded
    /// half to even to a multiple (DPT).
    Multiple {
        /// Height of the box.
        height: usize,
        /// Width of the box.
        width: usize,
        /// Number that both sides are a multiple of.
        multiple: usize,
    },
    /// Resizes the shorter edge to that of this box, then the result in proportion to fit into the box. Both steps truncate the longer edge to a whole
    /// number (Donut).
    Thumbnail {
        /// Height of the box.
        height: usize,
        /// Width of the box.
        width: usize,
        /// True if images are rotated by 90° clockwise first whose longer edge is not that of the box.
        rotate: bool,
    },
    /// Resizes in proportion to whole patches, as many as the maximum allows (SigLIP 2's NaFlex).
    Patches {
        /// Height and width of a patch.
        patch: usize,
        /// Maximum number of patches of an image.
        max_patches: usize,
    },
}

impl Resize {
    /// Returns height and width after resizing an image of `height × width`.
    pub(super) fn target(self, height: usize, width: usize) -> (usize, usize) {
        match self {
            Self::Exact { height, width } => (height, width),
            Self::Shortest { edge, longest } => shortest(height, width, edge, longest),
            Self::Patches { patch, max_patches } => whole_patches(height, width, patch, max_patches),
            Self::Thumbnail { .. } => {
                let [_, [width, height]] = self.thumbnail([width, height]);
                (height, width)
            }
            Self::Multiple {
                height: h,
                width: w,
                multiple,
            } => whole_multiples([height, width], [h, w], multiple),
            Self::Cover { height: h, width: w } => proportional(
                height,
                width,
                (height as f64 / h as f64).min(width as f64 / w as f64),
            ),
            Self::Contain { height: h, width: w } => proportional(
                height,
                width,
                (height as f64 / h as f64).max(width as f64 / w as f64),
            ),
        }
    }
}

impl Resize {
    /// Returns true if an image of this width and height is rotated by 90° first.
    pub(super) fn rotates(self, [width, height]: [usize; 2]) -> bool {
        match self {
            Self::Thumbnail {
                height: h,
                width: w,
                rotate: true,
            } => w < h && width > height || w > h && width < height,
            _ => false,
        }
    }

    /// Returns width and height after each of the two steps of [`Resize::Thumbnail`], for an image of this width and height. Other rules resize once.
    pub(super) fn thumbnail(self, image: [usize; 2]) -> [[usize; 2]; 2] {
        let Self::Thumbnail { height, width, .. } = self else {
            let (height, width) = self.target(image[1], image[0]);
            return [[width, height]; 2];
        };
        let upright = if self.rotates(image) {
            [image[1], image[0]]
        } else {
            image
        };
        let (rows, columns) = shortest(upright[1], upright[0], height.min(width), None);
        let (most_rows, most_columns) = (rows.min(height), columns.min(width));
        let fitted = match rows.cmp(&columns) {
            // Integers below 2²⁴: the quotient in f64 truncates as in the library.
            Ordering::Greater => [columns * most_rows / rows.max(1), most_rows],
            Ordering::Less => [most_columns, rows * most_columns / columns.max(1)],
            Ordering::Equal => [most_columns, most_rows],
        };
        [[columns, rows], fitted]
    }
}

/// Implements transformers' `get_image_size_for_max_num_patches`. It searches for the largest scale at which the image
/// has at most `max_patches` patches. Sides are rounded up to whole patches.
fn whole_patches(height: usize, width: usize, patch: usize, max_patches: usize) -> (usize, usize) {
    const EPSILON: f64 = 1e-5;
    let patches = |side: usize, scale: f64| (side as f64 * scale / patch as f64).ceil().max(1.0);
    let (mut low, mut high) = (EPSILON / 10.0, 100.0);
    while high - low >= EPSILON {
        let scale = f64::midpoint(low, high);
        if patches(height, scale) * patches(width, scale) <= max_patches as f64 {
            low = scale;
        } else {
            high = scale;
        }
    }
    let side = |side: usize| patches(side, low) as usize * patch;
    (side(height), side(width))
}

/// Implements `get_resize_output_image_size` of transformers' DPT processor with `keep_aspect_ratio`, operation by operation: the last bit
/// of a product decides where a side is rounded to.
fn whole_multiples([height, width]: [usize; 2], size: [usize; 2], multiple: usize) -> (usize, usize) {
    let sides = [height as f64, width as f64];
    let mut scales = [size[0] as f64 / sides[0], size[1] as f64 / sides[1]];
    let [down, across] = scales.map(|scale| (1.0 - scale).abs());
    scales = [if across < down { scales[1] } else { scales[0] }; 2];
    let multiple = multiple as f64;
    let [height, width] =
        [0, 1].map(|axis| ((scales[axis] * sides[axis] / multiple).round_ties_even() * multiple) as usize);
    (height, width)
}

fn proportional(height: usize, width: usize, ratio: f64) -> (usize, usize) {
    let scaled = |side: usize| (side as f64 / ratio).round_ties_even() as usize;
    (scaled(height), scaled(width))
}

fn shortest(height: usize, width: usize, edge: usize, longest: Option<usize>) -> (usize, usize) {
    let (short, long) = (height.min(width), height.max(width));
    let mut wanted = edge as f64;
    if let Some(longest) = longest
        && long as f64 / short as f64 * wanted > longest as f64
    {
        wanted = longest as f64 * short as f64 / long as f64;
    }
    let new_short = wanted.round_ties_even() as usize;
    // The longer edge follows from the unrounded shorter edge.
    let new_long = if short == new_short {
        long
    } else {
        (wanted * long as f64 / short as f64) as usize
    };
    if height <= width {
        (new_short, new_long)
    } else {
        (new_long, new_short)
    }
}

/// Rounding of half of an odd difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// torchvision and timm: a crop's offset is rounded half to even, a padding's down.
    Torchvision,
    /// transformers on arrays: a crop's offset is rounded down, a padding's up.
    Transformers,
}

/// A centre crop, which pads images that are too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Crop {
    /// Height of the result.
    pub height: usize,
    /// Width of the result.
    pub width: usize,
    /// Rounding of half of an odd difference.
    pub rounding: Rounding,
    /// Colour of the padding.
    pub fill: [u8; 3],
}

/// One axis of a crop: `length` pixels are copied from `source` to `target`.
struct Span {
    source: usize,
    target: usize,
    length: usize,
}

impl Crop {
    fn span(&self, image: usize, crop: usize) -> Span {
        if image < crop {
            let missing = crop - image;
            let target = match self.rounding {
                Rounding::Torchvision => missing / 2,
                Rounding::Transformers => missing.div_ceil(2),
            };
            return Span {
                source: 0,
                target,
                length: image,
            };
        }
        let half = (image - crop) as f64 / 2.0;
        let source = match self.rounding {
            Rounding::Torchvision => half.round_ties_even(),
            Rounding::Transformers => half.floor(),
        };
        Span {
            source: source as usize,
            target: 0,
            length: crop,
        }
    }

    /// Returns the crop of an image that is resized to `sizes` (width, height), one after the other. The first is that of the image. Only the pixels inside the crop are computed.
    pub(super) fn placement(&self, sizes: &[[usize; 2]], filter: Filter) -> Result<Placement> {
        let output = sizes.last().copied().unwrap_or_default();
        let (x, y) = (
            self.span(output[0], self.width),
            self.span(output[1], self.height),
        );
        let window = Window {
            left: x.source,
            top: y.source,
            width: x.length,
            height: y.length,
        };
        let fits = (x.length, y.length) == (self.width, self.height);
        Ok(Placement {
            resampling: Resampling::chain(sizes, filter, window)?,
            padding: (!fits).then_some(Padding {
                width: self.width,
                height: self.height,
                left: x.target,
                top: y.target,
                fill: self.fill,
            }),
        })
    }
}

/// Steps that resize images of one size: resampling, then padding if the result is too small.
#[derive(Debug)]
pub struct Placement {
    /// Passes of resampling, in order.
    pub resampling: Resampling,
    /// Background, if the resampled image is smaller than the output.
    pub padding: Option<Padding>,
}

/// A background of one colour, and the position of the image on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Width of the background, in pixels.
    pub width: usize,
    /// Height of the background, in pixels.
    pub height: usize,
    /// Number of columns left of the image.
    pub left: usize,
    /// Number of rows above the image.
    pub top: usize,
    fill: [u8; 3],
}

impl Placement {
    /// Returns width and height of the result for an image of this width and height.
    pub fn output(&self, input: [usize; 2]) -> [usize; 2] {
        let resampled = self.resampling.passes().last().map_or(input, Pass::output);
        self.padding
            .map_or(resampled, |padding| [padding.width, padding.height])
    }

    /// Applies the resampling and the padding.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`](crate::Error::Argument) if the image does not have the expected size.
    pub fn apply(&self, image: &RgbImage) -> Result<RgbImage> {
        let part = self.resampling.apply(image)?;
        let Some(padding) = &self.padding else {
            return Ok(part);
        };
        let mut data = padding.ground();
        let rows = data.chunks_exact_mut(padding.width * 3).skip(padding.top);
        for (row, from) in rows.zip(part.data.chunks_exact(part.width * 3)) {
            row[padding.left * 3..padding.left * 3 + from.len()].copy_from_slice(from);
        }
        Ok(RgbImage {
            width: padding.width,
            height: padding.height,
            data,
        })
    }
}

impl Padding {
    /// Returns the pixels of the background.
    pub fn ground(&self) -> Vec<u8> {
        self.fill.repeat(self.width * self.height)
    }
}

impl fmt::Display for Resize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact { height, width } => write!(f, "to {height}×{width}"),
            Self::Shortest { edge, longest: None } => write!(f, "shortest edge to {edge}"),
            Self::Shortest {
                edge,
                longest: Some(longest),
            } => {
                write!(f, "shortest edge to {edge}, longest to at most {longest}")
            }
            Self::Cover { height, width } => write!(f, "to cover {height}×{width}"),
            Self::Contain { height, width } => write!(f, "to fit into {height}×{width}"),
            Self::Multiple {
                height,
                width,
                multiple,
            } => {
                write!(f, "near {height}×{width}, both sides multiples of {multiple}")
            }
            Self::Thumbnail {
                height,
                width,
                rotate,
            } => {
                let aligned = if *rotate {
                    ", aligned with its longer edge"
                } else {
                    ""
                };
                write!(
                    f,
                    "shortest edge to {}, then to fit into {height}×{width}{aligned}",
                    height.min(width)
                )
            }
            Self::Patches { patch, max_patches } => {
                write!(f, "to at most {max_patches} patches of {patch}×{patch}")
            }
        }
    }
}

impl fmt::Display for Crop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crop {}×{}", self.height, self.width)?;
        let [red, green, blue] = self.fill;
        if self.fill == [0; 3] {
            Ok(())
        } else {
            write!(f, " padded with ({red}, {green}, {blue})")
        }
    }
}
