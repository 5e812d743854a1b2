//! Random crops and flips.

use hipvit_image::Filter;
use serde::{Deserialize, Serialize};

use super::crop::PaddingMode;
use super::operation::Operation;
use crate::error::{Error, Result};
use crate::random::Stream;

/// Number of random rectangles that are tried before the fallback, as in torchvision and timm.
pub(super) const ATTEMPTS: usize = 10;

/// Crops a rectangle of random area and aspect ratio, and resizes it: torchvision's `RandomResizedCrop`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomResizedCrop {
    /// Height and width of the result, in pixels.
    pub size: [usize; 2],
    /// Range of the crop's area, as a fraction of the image's.
    pub scale: [f64; 2],
    /// Range of the crop's width divided by its height.
    pub ratio: [f64; 2],
    /// Resampling filter.
    pub filter: Filter,
}

impl Default for RandomResizedCrop {
    fn default() -> Self {
        Self {
            size: [224, 224],
            scale: [0.08, 1.0],
            ratio: [3.0 / 4.0, 4.0 / 3.0],
            filter: Filter::Bilinear,
        }
    }
}

impl RandomResizedCrop {
    /// Draws the crop of an image of the given width and height.
    pub fn draw(&self, stream: &mut Stream, size: [usize; 2]) -> [Operation; 2] {
        let crop = self.rectangle(stream, size);
        let resize = Operation::Resize {
            height: self.size[0],
            width: self.size[1],
            filter: self.filter,
        };
        [crop, resize]
    }

    fn rectangle(&self, stream: &mut Stream, [width, height]: [usize; 2]) -> Operation {
        let area = (width * height) as f64;
        for _ in 0..ATTEMPTS {
            let [w, h] = rectangle_sides(stream, area, self.scale, self.ratio);
            if (1..=width).contains(&w) && (1..=height).contains(&h) {
                return Operation::Crop {
                    top: stream.index(height - h + 1) as i64,
                    left: stream.index(width - w + 1) as i64,
                    height: h,
                    width: w,
                };
            }
        }
        self.central(width, height)
    }

    /// Returns the largest crop in the centre whose aspect ratio is in the range.
    fn central(&self, width: usize, height: usize) -> Operation {
        let ratio = width as f64 / height as f64;
        let [low, high] = self.ratio;
        let rounded = |side: f64| (side.round_ties_even() as usize).max(1);
        let (w, h) = if ratio < low {
            (width, rounded(width as f64 / low).min(height))
        } else if ratio > high {
            (rounded(height as f64 * high).min(width), height)
        } else {
            (width, height)
        };
        Operation::Crop {
            top: ((height - h) / 2) as i64,
            left: ((width - w) / 2) as i64,
            height: h,
            width: w,
        }
    }
}

/// Draws width and height of a rectangle: a uniform fraction of the area, a log-uniform aspect ratio.
pub(super) fn rectangle_sides(
    stream: &mut Stream,
    area: f64,
    scale: [f64; 2],
    ratio: [f64; 2],
) -> [usize; 2] {
    let target = area * stream.uniform(scale[0], scale[1]);
    let aspect = stream.uniform(ratio[0].ln(), ratio[1].ln()).exp();
    [target * aspect, target / aspect].map(|side| side.sqrt().round_ties_even() as usize)
}

/// Crops a rectangle of fixed size at a random position, after padding: torchvision's `RandomCrop`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomCrop {
    /// Height and width of the result, in pixels.
    pub size: [usize; 2],
    /// Border that is added on each side before, in pixels.
    pub padding: usize,
    /// Content of the border.
    pub mode: PaddingMode,
    /// Colour of a constant border.
    pub fill: [u8; 3],
}

impl RandomCrop {
    /// Draws the crop of an image of the given width and height.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the padded image is smaller than the crop.
    pub fn draw(&self, stream: &mut Stream, size: [usize; 2]) -> Result<[Operation; 2]> {
        let [width, height] = size.map(|side| side + 2 * self.padding);
        let [h, w] = self.size;
        if h > height || w > width {
            let reason =
                format!("a padded image of {width}×{height} pixels is smaller than the crop of {w}×{h}");
            return Err(Error::argument("random crop", reason));
        }
        let pad = Operation::Pad {
            border: [self.padding; 4],
            mode: self.mode,
            fill: self.fill,
        };
        let crop = Operation::Crop {
            top: stream.index(height - h + 1) as i64,
            left: stream.index(width - w + 1) as i64,
            height: h,
            width: w,
        };
        Ok([pad, crop])
    }
}

/// Changes brightness, contrast, saturation and hue in random order: torchvision's `ColorJitter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ColorJitter {
    /// Largest deviation of the brightness factor from 1.
    pub brightness: f64,
    /// Largest deviation of the contrast factor from 1.
    pub contrast: f64,
    /// Largest deviation of the saturation factor from 1.
    pub saturation: f64,
    /// Largest rotation of the hue, in turns, at most 0.5.
    pub hue: f64,
}

impl ColorJitter {
    /// Draws the operations. Parameters that are 0 give none.
    pub fn draw(&self, stream: &mut Stream) -> Vec<Operation> {
        let mut order = [0, 1, 2, 3];
        stream.shuffle(&mut order);
        let mut factor = |range: f64| stream.uniform((1.0 - range).max(0.0), 1.0 + range);
        let factors = [self.brightness, self.contrast, self.saturation].map(&mut factor);
        let turn = stream.uniform(-self.hue, self.hue);
        let operation = |index| match index {
            0 => (self.brightness > 0.0).then_some(Operation::Brightness { factor: factors[0] }),
            1 => (self.contrast > 0.0).then_some(Operation::Contrast { factor: factors[1] }),
            2 => (self.saturation > 0.0).then_some(Operation::Saturation { factor: factors[2] }),
            _ => (self.hue > 0.0).then_some(Operation::Hue { factor: turn }),
        };
        order.into_iter().filter_map(operation).collect()
    }
}
