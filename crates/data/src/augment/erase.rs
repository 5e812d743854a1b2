//! Random erasing.

use serde::{Deserialize, Serialize};

use super::geometry::{ATTEMPTS, rectangle_sides};
use crate::random::Stream;

/// Content of erased rectangles, by timm's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EraseMode {
    /// 0 after normalisation, which is the mean colour.
    #[default]
    Const,
    /// One normally distributed value per channel.
    Rand,
    /// Normally distributed values.
    Pixel,
}

/// Erases random rectangles of normalised images: timm's `RandomErasing`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability of erasing.
    pub probability: f64,
    /// Range of the erased area, as a fraction of the image's, divided by the number of rectangles.
    pub area: [f64; 2],
    /// Range of the height divided by the width.
    pub aspect: [f64; 2],
    /// Content of the rectangles.
    pub mode: EraseMode,
    /// Range of the number of rectangles, both ends included.
    pub count: [usize; 2],
}

impl Default for RandomErasing {
    fn default() -> Self {
        Self {
            probability: 0.25,
            area: [0.02, 1.0 / 3.0],
            aspect: [0.3, 1.0 / 0.3],
            mode: EraseMode::Const,
            count: [1, 1],
        }
    }
}

/// A rectangle that is erased, with its new values.
#[derive(Clone, Debug, PartialEq)]
pub struct Erasure {
    /// First row.
    pub top: usize,
    /// First column.
    pub left: usize,
    /// Number of rows.
    pub height: usize,
    /// Number of columns.
    pub width: usize,
    /// New values: one for all, one per channel, or `[3, height, width]`.
    pub values: Vec<f32>,
}

impl RandomErasing {
    /// Draws the rectangles of an image of the given width and height.
    pub fn draw(&self, stream: &mut Stream, size: [usize; 2]) -> Vec<Erasure> {
        if !stream.chance(self.probability) {
            return Vec::new();
        }
        let [least, most] = self.count;
        let count = least + stream.index(most.saturating_sub(least) + 1);
        (0..count)
            .filter_map(|_| self.rectangle(stream, size, count))
            .collect()
    }

    fn rectangle(&self, stream: &mut Stream, [width, height]: [usize; 2], count: usize) -> Option<Erasure> {
        let area = (width * height) as f64 / count as f64;
        for _ in 0..ATTEMPTS {
            let [h, w] = rectangle_sides(stream, area, self.area, self.aspect);
            if w < width && h < height {
                let (top, left) = (stream.index(height - h + 1), stream.index(width - w + 1));
                let values = match self.mode {
                    EraseMode::Const => 1,
                    EraseMode::Rand => 3,
                    EraseMode::Pixel => 3 * h * w,
                };
                let mut value = || match self.mode {
                    EraseMode::Const => 0.0,
                    EraseMode::Rand | EraseMode::Pixel => stream.normal() as f32,
                };
                return Some(Erasure {
                    top,
                    left,
                    height: h,
                    width: w,
                    values: (0..values).map(|_| value()).collect(),
                });
            }
        }
        None
    }
}

impl Erasure {
    /// Writes the values into a normalised image, `[3, height, width]`.
    pub fn apply(&self, planes: &mut [f32], [width, height]: [usize; 2]) {
        let area = self.height * self.width;
        let value = |channel: usize, at: usize| match self.values.len() {
            1 => self.values[0],
            3 if area != 1 => self.values[channel],
            _ => self.values[channel * area + at],
        };
        for (channel, plane) in planes.chunks_exact_mut((width * height).max(1)).enumerate() {
            for row in 0..self.height {
                let start = (self.top + row) * width + self.left;
                for (column, sample) in plane[start..start + self.width].iter_mut().enumerate() {
                    *sample = value(channel, row * self.width + column);
                }
            }
        }
    }
}
