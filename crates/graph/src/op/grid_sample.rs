//! Samples of images at given positions, channels last.

use std::fmt;

use super::operands::{count, exactly, one};
use super::windows::checked;
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale, activation, image_size, single};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(x [B,H,W,C], grid [B,h,w,2]) → [B,h,w,C]`: samples of x at the positions `(column, row)` of the grid, which go from −1 to 1 over the
/// image. The positions are in f32 in any dtype of activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridSample {
    /// How a sample is interpolated.
    pub kernel: SampleKernel,
    /// What is beyond the image.
    pub outside: Outside,
    /// True if −1 and 1 are the centres of the corner pixels, instead of the image's edges.
    pub align_corners: bool,
}

/// Interpolation of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKernel {
    /// The nearest pixel, of two the even one.
    Nearest,
    /// Linear interpolation of 2×2 pixels.
    Linear,
    /// Cubic interpolation of 4×4 pixels, with the coefficient −0.75.
    Cubic,
}

/// Pixels beyond the edges of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Zeros.
    Zeros,
    /// The nearest pixel of the image.
    Edge,
    /// The image, reflected at its edges, or at its corner pixels if corners are aligned.
    Reflect,
}

/// Coefficient of the cubic kernel.
const CUBIC: f64 = -0.75;

/// Positions beyond this are as far outside as this one, so that pixels can be counted by integers.
const FARTHEST: f64 = 1e9;

impl GridSample {
    /// Returns the pixels that a sample reads along an axis of `extent` pixels, with their weights. `None` is a zero outside.
    pub fn taps(&self, position: f64, extent: usize) -> ([(Option<usize>, f64); 4], usize) {
        let last = extent as f64 - 1.0;
        let at = if self.align_corners {
            (position + 1.0) / 2.0 * last
        } else {
            f64::midpoint((position + 1.0) * extent as f64, -1.0)
        };
        // NaN samples pixel 0.
        let at = if at.is_nan() {
            0.0
        } else {
            at.clamp(-FARTHEST, FARTHEST)
        };
        let pixel = |index: f64| self.pixel(index as i64, extent);
        let mut taps = [(None, 0.0); 4];
        let first = at.floor();
        let rest = at - first;
        let length = match self.kernel {
            SampleKernel::Nearest => {
                taps[0] = (pixel(at.round_ties_even()), 1.0);
                1
            }
            SampleKernel::Linear => {
                taps[0] = (pixel(first), 1.0 - rest);
                taps[1] = (pixel(first + 1.0), rest);
                2
            }
            SampleKernel::Cubic => {
                for (index, tap) in taps.iter_mut().enumerate() {
                    let step = index as f64 - 1.0;
                    *tap = (pixel(first + step), cubic((rest - step).abs()));
                }
                4
            }
        };
        (taps, length)
    }

    fn pixel(&self, index: i64, extent: usize) -> Option<usize> {
        let count = extent as i64;
        let inside = match self.outside {
            Outside::Zeros => index,
            Outside::Edge => index.clamp(0, count - 1),
            Outside::Reflect if self.align_corners => {
                let folded = index.rem_euclid((2 * (count - 1)).max(1));
                folded.min(2 * (count - 1) - folded)
            }
            Outside::Reflect => {
                let folded = index.rem_euclid(2 * count);
                folded.min(2 * count - 1 - folded)
            }
        };
        usize::try_from(inside).ok().filter(|&inside| inside < extent)
    }

    /// Computes the samples of one image. `zeros` are the elements of y.
    pub fn sample<T: Real>(&self, x: &[T], [height, width]: [usize; 2], grid: &[T], zeros: &mut [T]) {
        let channels = x.len() / (height * width).max(1);
        if channels == 0 {
            return;
        }
        for (y, position) in zeros.chunks_exact_mut(channels).zip(grid.chunks_exact(2)) {
            let (columns, across) = self.taps(position[0].to_f64(), width);
            let (rows, down) = self.taps(position[1].to_f64(), height);
            for &(row, of_row) in &rows[..down] {
                for &(column, of_column) in &columns[..across] {
                    let (Some(row), Some(column)) = (row, column) else {
                        continue;
                    };
                    let weight = T::from_f64(of_row * of_column);
                    let x = &x[(row * width + column) * channels..][..channels];
                    y.iter_mut().zip(x).for_each(|(y, &x)| *y += weight * x);
                }
            }
        }
    }
}

/// Returns the weight of a pixel at this distance.
fn cubic(distance: f64) -> f64 {
    let x = distance;
    if x <= 1.0 {
        ((CUBIC + 2.0) * x - (CUBIC + 3.0)) * x * x + 1.0
    } else {
        CUBIC * (((x - 5.0) * x + 8.0) * x - 4.0)
    }
}

impl Definition for GridSample {
    const NAME: &'static str = "grid_sample";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kernel {
            SampleKernel::Nearest => " nearest",
            SampleKernel::Linear => " linear",
            SampleKernel::Cubic => " cubic",
        })?;
        f.write_str(match self.outside {
            Outside::Zeros => "",
            Outside::Edge => " edge",
            Outside::Reflect => " reflect",
        })?;
        f.write_str(if self.align_corners { " corners" } else { "" })
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, grid] = exactly(operands)?;
        let [batch, height, width, channels] = *x else {
            return Err(OpError::layout("x", x, "[B, H, W, C]"));
        };
        let [images, rows, columns, 2] = *grid else {
            return Err(OpError::layout("grid", grid, "[B, h, w, 2]"));
        };
        if height == 0 || width == 0 || images != batch {
            return Err(format!("cannot sample {x:?} at {grid:?} positions").into());
        }
        one(checked([batch, rows, columns, channels])?)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            1 => DType::F32,
            _ => dtype,
        }
    }

    fn flops(&self, _operands: &[&[usize]], results: &[Shape]) -> u64 {
        let taps = match self.kernel {
            SampleKernel::Nearest => 1,
            SampleKernel::Linear => 4,
            SampleKernel::Cubic => 16,
        };
        2 * taps * count(&results[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, height, width, channels] = operands[0].extents();
        let [_, rows, columns, _] = operands[1].extents();
        if rows * columns * channels == 0 {
            return;
        }
        let images = operands[0].values().chunks_exact(height * width * channels);
        let grids = operands[1].values().chunks_exact(rows * columns * 2);
        let samples = results[0]
            .values_mut()
            .chunks_exact_mut(rows * columns * channels);
        for ((x, grid), y) in images.zip(grids).zip(samples) {
            self.sample(x, [height, width], grid, y);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        let all = || {
            let kernels = [SampleKernel::Linear, SampleKernel::Cubic];
            let outside = [Outside::Zeros, Outside::Edge, Outside::Reflect];
            let pairs = kernels
                .into_iter()
                .flat_map(move |kernel| outside.map(|outside| (kernel, outside)));
            pairs.flat_map(|(kernel, outside)| {
                [false, true].map(|align_corners| Self {
                    kernel,
                    outside,
                    align_corners,
                })
            })
        };
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                let [height, width] = image_size(sizes.tokens, [1, 1], 0);
                let x = activation(&[sizes.batch, height, width, sizes.channels()]);
                let op = Self {
                    kernel: SampleKernel::Linear,
                    outside: Outside::Zeros,
                    align_corners: false,
                };
                cases.push(op, vec![x, single(&[sizes.batch, sizes.heads, sizes.tokens, 2])]);
            }
            Scale::Awkward => {
                for op in all() {
                    cases.push(op, vec![activation(&[2, 7, 9, 33]), single(&[2, 5, 13, 2])]);
                    cases.push(op, vec![activation(&[1, 1, 4, 8]), single(&[1, 3, 1, 2])]);
                }
            }
            Scale::Heads => {}
        }
    }

    /// Executors compute positions in f32, with an error of up to 4 roundings of the extent. A weight then changes by up to twice that (the
    /// steepest slope of a cubic kernel is below 2), times two elements of at most the largest one along both axes.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        let [_, height, width, _] = operands[0].extents();
        let most = |array: &Array| array.values().iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let result = self.eval(operands).ok().map_or(1.0, |results| most(&results[0]));
        let ratio = most(operands[0]) / result.max(f64::MIN_POSITIVE);
        let farthest = most(operands[1]).max(1.0);
        let position = 4.0 * f64::from(f32::EPSILON) / 2.0 * farthest * height.max(width) as f64;
        narrow(dtype) + (tolerance(DType::F32, 16) + 8.0 * position) * ratio.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By torch.nn.functional.grid_sample 2.15.
    #[test]
    fn samples_are_those_of_torch() {
        let x = Array::new([1, 2, 3, 1], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let grid = Array::new([1, 1, 4, 2], vec![0.0, 0.0, -1.0, 0.5, 1.4, -1.2, 0.3, 0.9]).unwrap();
        let sample = |kernel, outside, align_corners| {
            let op = GridSample {
                kernel,
                outside,
                align_corners,
            };
            op.eval(&[&x, &grid]).unwrap()[0].values().to_vec()
        };
        use {Outside::*, SampleKernel::*};
        let expected = [
            (Nearest, Zeros, false, [2.0, 4.0, 0.0, 5.0]),
            (Nearest, Zeros, true, [2.0, 4.0, 3.0, 5.0]),
            (Nearest, Edge, false, [2.0, 4.0, 3.0, 5.0]),
            (Nearest, Edge, true, [2.0, 4.0, 3.0, 5.0]),
            (Nearest, Reflect, false, [2.0, 4.0, 3.0, 5.0]),
            (Nearest, Reflect, true, [2.0, 4.0, 3.0, 5.0]),
            (Linear, Zeros, false, [3.5, 2.0, 0.0, 3.27]),
            (Linear, Zeros, true, [3.5, 3.25, 1.62, 5.15]),
            (Linear, Edge, false, [3.5, 4.0, 3.0, 5.45]),
            (Linear, Edge, true, [3.5, 3.25, 3.0, 5.15]),
            (Linear, Reflect, false, [3.5, 4.0, 2.9, 5.45]),
            (Linear, Reflect, true, [3.5, 3.25, 2.9, 5.15]),
            (Cubic, Zeros, false, [4.15625, 1.90625, -0.0422364375, 4.0518855]),
            (
                Cubic,
                Zeros,
                true,
                [4.15625, 3.77734375, 1.673055, 5.745735429687],
            ),
            (Cubic, Edge, false, [3.5, 3.90625, 2.85825, 5.86990625]),
            (Cubic, Edge, true, [3.5, 3.3203125, 2.92575, 5.2713125]),
            (Cubic, Reflect, false, [3.5, 3.8125, 2.45225, 6.08590625]),
            (Cubic, Reflect, true, [3.5, 3.53125, 2.876, 5.41475]),
        ];
        for (kernel, outside, align_corners, expected) in expected {
            let samples = sample(kernel, outside, align_corners);
            for (sample, expected) in samples.iter().zip(expected) {
                let error = (sample - expected).abs();
                assert!(
                    error < 1e-9,
                    "{kernel:?} {outside:?} {align_corners}: {samples:?}"
                );
            }
        }
    }
}
