//! Converts an RGB image to a model's input as the model's library does: resize, centre crop, conversion of bytes to
//! floats.
//!
//! [`geometry`] has the sizes and roundings, [`values`] the float arithmetic. [`timm`] and [`hugging_face`] read the
//! libraries' configurations. Results equal those of timm's evaluation transform and of transformers' Pillow-backed
//! processors bit for bit.

mod geometry;
mod hugging_face;
#[cfg(test)]
mod tests;
mod tiling;
mod timm;
mod values;

use std::fmt;

use rayon::prelude::*;
use serde::Serialize;

pub use geometry::Padding;
pub use geometry::Placement;
pub use geometry::{Crop, Resize, Rounding};
pub use tiling::{Tiles, Tiling};
pub use timm::TimmOptions;
pub use values::{Rescale, ValueRule};

use crate::error::{Error, Result};
use crate::patch_grid::{self, PatchGrid};
use crate::resize::{Filter, Resampling, Window};
use crate::rgb_image::RgbImage;
use crate::threads;
use values::Table;

/// Preprocessing of a model: resize, centre crop, then rescale and normalise.
#[derive(Clone, Debug, Serialize)]
pub struct Preprocess {
    resize: Option<(Resize, Filter)>,
    crop: Option<Crop>,
    values: ValueRule,
    /// Height and width of the result.
    #[serde(skip)]
    output: (usize, usize),
    #[serde(skip)]
    table: Table,
}

impl Preprocess {
    /// Creates a rule from its parts.
    ///
    /// Without a crop, the resize must be [`Resize::Exact`], [`Resize::Patches`] or [`Resize::Multiple`]. Only with the last, the size of the
    /// output depends on the image: see [`Self::for_image`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the output is empty or its size depends on the image, or if a standard deviation
    /// is zero.
    pub fn new(resize: Option<(Resize, Filter)>, crop: Option<Crop>, values: ValueRule) -> Result<Self> {
        let output = match (&crop, &resize) {
            (Some(crop), _) => (crop.height, crop.width),
            (None, Some((Resize::Exact { height, width }, _))) => (*height, *width),
            (None, Some((resize @ Resize::Multiple { height, width, .. }, _))) => {
                resize.target(*height, *width)
            }
            (None, Some((Resize::Patches { patch, max_patches }, _))) => {
                let size = patch_grid::image_size(*patch, *max_patches);
                let [height, width] = size.ok_or_else(|| {
                    let reason =
                        format!("there can be no images of {max_patches} patches of {patch}×{patch}");
                    Error::argument("preprocessing", reason)
                })?;
                (height, width)
            }
            _ => {
                let reason = "the output's size would depend on the image: there is no centre crop";
                return Err(Error::argument("preprocessing", reason));
            }
        };
        if output.0 == 0 || output.1 == 0 {
            return Err(Error::argument("preprocessing", "the output is empty"));
        }
        let table = values.table()?;
        Ok(Self {
            resize,
            crop,
            values,
            output,
            table,
        })
    }

    /// Returns the rule with its filter and values, but which [resizes to patches](Resize::Patches) and does not crop.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if there can be no image of that many patches.
    pub fn to_patches(&self, patch: usize, max_patches: usize) -> Result<Self> {
        let filter = self.resize.map_or(Filter::Bicubic, |(_, filter)| filter);
        let resize = Resize::Patches { patch, max_patches };
        Self::new(Some((resize, filter)), None, self.values.clone())
    }

    /// Returns the rule for images of the given height and width: it has one [output size](Self::output_size).
    ///
    /// This is the rule itself, unless it resizes to [multiples](Resize::Multiple).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the image is so thin that a side would shrink to nothing.
    pub fn for_image(&self, height: usize, width: usize) -> Result<Self> {
        match self.resize {
            Some((resize @ Resize::Multiple { .. }, filter)) => {
                let size = resize.target(height, width);
                self.exact(size, filter).map_err(|_| {
                    let (rows, columns) = size;
                    let reason = format!("an image of {height}×{width} would shrink to {rows}×{columns}");
                    Error::argument("preprocessing", reason)
                })
            }
            _ => Ok(self.clone()),
        }
    }

    /// Returns the rule with its values, which resizes to this size without a crop.
    fn exact(&self, (height, width): (usize, usize), filter: Filter) -> Result<Self> {
        let resize = Resize::Exact { height, width };
        Self::new(Some((resize, filter)), None, self.values.clone())
    }

    /// Returns height and width of the result, in pixels.
    ///
    /// If the rule resizes to [multiples](Resize::Multiple), this is the size of the result for an image with the proportions of the box.
    ///
    /// If the rule [resizes to patches](Resize::Patches), the result packs an image of any aspect ratio, see
    /// [`Self::apply`].
    pub fn output_size(&self) -> (usize, usize) {
        self.output
    }

    /// Returns the values subtracted from rescaled red, green and blue. They are 0 if the rule does not normalise.
    pub fn mean(&self) -> [f32; 3] {
        self.values.mean_std().0
    }

    /// Returns the divisors of the channels after the subtraction. They are 1 if the rule does not normalise.
    pub fn std(&self) -> [f32; 3] {
        self.values.mean_std().1
    }

    /// Returns the factor that bytes are multiplied by first. It is 1 if the rule does not rescale.
    pub fn rescale(&self) -> f64 {
        self.values.rescale.factor()
    }

    /// Returns the resize and its filter, if there is one.
    pub fn resize(&self) -> Option<(Resize, Filter)> {
        self.resize
    }

    /// Returns the centre crop, if there is one.
    pub fn crop(&self) -> Option<Crop> {
        self.crop
    }

    /// Resizes and crops the image to the model's size, as bytes.
    ///
    /// A rule that [resizes to patches](Resize::Patches) of p × p pixels, at most P patches, gives `[P·p + 1, p, 3]`.
    /// It contains the patches in row-major order one below the other, then zeros. The last row begins with the number
    /// of rows and columns of patches, each a little-endian u16.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the image is so thin that a side would shrink to nothing, which Pillow rejects
    /// too. Also returns it if a side would exceed 2²⁴ pixels.
    pub fn apply(&self, image: &RgbImage) -> Result<RgbImage> {
        let resized = self.placement([image.width, image.height])?.apply(image)?;
        match self.patch() {
            Some(patch) => self.packed(&resized, patch),
            None => Ok(resized),
        }
    }

    /// Returns the number of rows and columns of patches of an image with the given size. Returns `None` unless the
    /// rule [resizes to patches](Resize::Patches).
    pub fn patch_grid(&self, height: usize, width: usize) -> Option<[usize; 2]> {
        let (patch, (resize, _)) = (self.patch()?, self.resize?);
        let (height, width) = resize.target(height, width);
        Some([height / patch, width / patch])
    }

    /// Returns height and width of a patch if the rule resizes to patches.
    pub fn patch(&self) -> Option<usize> {
        match self.resize {
            Some((Resize::Patches { patch, .. }, _)) => Some(patch),
            _ => None,
        }
    }

    /// Packs the image's patches one below the other, followed by their grid.
    fn packed(&self, image: &RgbImage, patch: usize) -> Result<RgbImage> {
        let (height, width) = self.output;
        let mut data = vec![0; height * width * 3];
        let row = patch * 3;
        let grid = PatchGrid {
            rows: image.height / patch,
            columns: image.width / patch,
        };
        let too_many = || Error::argument("preprocessing", "the image has more patches than the maximum");
        let (patches, last) = data.split_at_mut(patch_grid::first([height, width]));
        let mut to = patches.chunks_exact_mut(row);
        for band in image.data.chunks_exact(image.width.max(1) * 3 * patch) {
            for column in 0..grid.columns {
                for line in band.chunks_exact(image.width * 3) {
                    let to = to.next().ok_or_else(too_many)?;
                    to.copy_from_slice(&line[column * row..(column + 1) * row]);
                }
            }
        }
        grid.write(last).ok_or_else(too_many)?;
        Ok(RgbImage { width, height, data })
    }

    /// Checks that [`Self::apply`] accepts an image of this size.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::apply`].
    pub fn check(&self, image: &RgbImage) -> Result<()> {
        self.placement([image.width, image.height]).map(drop)
    }

    /// Returns the resampling and padding that [`Self::apply`] performs on an image of the given width and height.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::apply`].
    pub fn placement(&self, [width, height]: [usize; 2]) -> Result<Placement> {
        let input = [width, height];
        let Some((resize, filter)) = self.resize else {
            return self.placed(&[input, input], Filter::Nearest);
        };
        if !matches!(resize, Resize::Thumbnail { .. }) {
            let (height, width) = resize.target(height, width);
            return self.placed(&[input, [width, height]], filter);
        }
        let [first, second] = resize.thumbnail(input);
        if resize.rotates(input) {
            let mut placement = self.placed(&[[height, width], first, second], filter)?;
            placement.resampling = placement.resampling.after_rotation();
            return Ok(placement);
        }
        self.placed(&[input, first, second], filter)
    }

    /// Returns the resampling of an image to these sizes (width, height), one after the other, and the crop.
    fn placed(&self, sizes: &[[usize; 2]], filter: Filter) -> Result<Placement> {
        if let Some(crop) = self.crop {
            return crop.placement(sizes, filter);
        }
        let output = sizes.last().copied().unwrap_or_default();
        Ok(Placement {
            resampling: Resampling::chain(sizes, filter, Window::whole(output))?,
            padding: None,
        })
    }

    /// Resizes and crops like [`Self::apply`], into a buffer of `height × width × 3` bytes of the output size.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::apply`], and [`Error::Argument`] if the buffer has another length.
    pub fn apply_into(&self, image: &RgbImage, output: &mut [u8]) -> Result<()> {
        let done = self.apply(image)?;
        if done.data.len() != output.len() {
            let reason = format!("{} bytes instead of {}", output.len(), done.data.len());
            return Err(Error::argument("output", reason));
        }
        output.copy_from_slice(&done.data);
        Ok(())
    }

    /// Resizes and crops several images in parallel, to `[n, height, width, 3]`.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Self::apply`] for the first image that fails, or [`Error::Resource`] if the threads
    /// cannot be started.
    pub fn apply_batch<T: AsRef<RgbImage> + Sync>(&self, images: &[T]) -> Result<Vec<u8>> {
        threads::start_shared()?;
        let (height, width) = self.output;
        let mut batch = vec![0; images.len() * height * width * 3];
        let slots = batch.par_chunks_exact_mut(height * width * 3);
        images
            .par_iter()
            .zip(slots)
            .try_for_each(|(image, slot)| self.apply_into(image.as_ref(), slot))?;
        Ok(batch)
    }

    /// Converts bytes, `[height, width, 3]`, to the model's floats, `[3, height, width]`, with one table lookup per
    /// sample.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the lengths differ or are not whole pixels.
    pub fn normalize(&self, pixels: &[u8], output: &mut [f32]) -> Result<()> {
        if pixels.len() != output.len() || !pixels.len().is_multiple_of(3) {
            let reason = format!("{} floats for {} bytes", output.len(), pixels.len());
            return Err(Error::argument("pixel values", reason));
        }
        self.table.look_up(pixels, output);
        Ok(())
    }
}

impl Preprocess {
    /// Converts the bytes that [`Self::apply`] packs to the model's floats, for a rule that [resizes to
    /// patches](Resize::Patches).
    ///
    /// Returns `[P, p·p·3]` as transformers does, with zeros after the image's own patches, and the rows and columns of
    /// these.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the rule does not resize to patches, or if the bytes are not such an image.
    pub fn normalize_patches(&self, pixels: &[u8]) -> Result<(Vec<f32>, [usize; 2])> {
        let (height, width) = self.output;
        let whole = self.patch().is_some() && pixels.len() == height * width * 3;
        let patches = patch_grid::most_patches([height, width]);
        let grid = PatchGrid::read(pixels, [height, width], patches).filter(|_| whole);
        let grid = grid
            .ok_or_else(|| Error::argument("pixel values", "are not an image of patches with their grid"))?;
        let mut planes = vec![0.0; pixels.len()];
        self.normalize(pixels, &mut planes)?;
        let area = height * width;
        let own = grid.patches() * width * width;
        let pixel = |at: usize| [0, 1, 2].map(|channel| planes[channel * area + at]);
        let mut values: Vec<f32> = (0..own).flat_map(pixel).collect();
        values.resize(patches * width * width * 3, 0.0);
        Ok((values, [grid.rows, grid.columns]))
    }
}

impl fmt::Display for Preprocess {
    /// Formats the rule in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((resize, filter)) = &self.resize {
            write!(f, "resize {resize} {filter}, ")?;
        }
        if let Some(crop) = &self.crop {
            write!(f, "{crop}, ")?;
        }
        write!(f, "{}", self.values)
    }
}
