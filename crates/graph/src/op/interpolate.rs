//! Interpolation of images to another size, channels last.

mod attributes;

use std::fmt;

use rayon::prelude::*;

pub use self::attributes::{Coordinates, Interpolate, InterpolationKernel, NearestRounding};
use super::operands::{count, exactly, one};
use super::window_gradients::sides;
use super::windows::checked;
use super::{
    BatchMatMul, Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Reshape, Shape,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, Scale, activation, image_size};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};
use crate::value::ValueId;

/// `(x [B,H,W,C]) → [B,h,w,C]`.
impl Definition for Interpolate {
    const NAME: &'static str = "interpolate";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [height, width] = self.size;
        f.write_str(match self.kernel {
            InterpolationKernel::Nearest(_) => " nearest",
            InterpolationKernel::Linear => " linear",
            InterpolationKernel::Cubic(_) => " cubic",
        })?;
        write!(f, " to {height}×{width}")
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x] = exactly(operands)?;
        let [batch, height, width, channels] = *x else {
            return Err(OpError::layout("x", x, "[B, H, W, C]"));
        };
        if height == 0 || width == 0 || self.size.contains(&0) {
            return Err(format!("makes {:?} pixels of {height}×{width}", self.size).into());
        }
        if !self.is_defined(0, height) || !self.is_defined(1, width) {
            return Err(format!("has a scale of {:?} from {height}×{width}", self.scale).into());
        }
        one(checked([batch, self.size[0], self.size[1], channels])?)
    }

    fn flops(&self, operands: &[&[usize]], results: &[Shape]) -> u64 {
        let taps = |axis: usize| (2.0 * self.support() * self.stretch(axis, operands[0][axis + 1])) as u64;
        2 * count(&results[0]) * taps(0).max(1) * taps(1).max(1)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, height, width, channels] = operands[0].extents();
        let [rows, columns] = self.size;
        let columns_of_x: Vec<_> = (0..columns).map(|index| self.taps(1, index, width)).collect();
        let x = operands[0].values();
        let lines = results[0]
            .values_mut()
            .par_chunks_mut((columns * channels).max(1));
        lines.enumerate().for_each(|(line, y)| {
            let x = &x[line / rows * height * width * channels..][..height * width * channels];
            for (row, down) in self.taps(0, line % rows, height) {
                let x = &x[row * width * channels..][..width * channels];
                for (y, taps) in y.chunks_exact_mut(channels).zip(&columns_of_x) {
                    for &(column, across) in taps {
                        let weight = T::from_f64(down * across);
                        let x = &x[column * channels..][..channels];
                        y.iter_mut().zip(x).for_each(|(y, &x)| *y += weight * x);
                    }
                }
            }
        });
    }

    fn cases(cases: &mut Cases<Self>) {
        match cases.scale() {
            Scale::Model { sizes, .. } => {
                let [height, width] = image_size(sizes.tokens, [1, 1], 0);
                let x = [sizes.batch, height, width, sizes.channels()];
                let twice = [2 * height, 2 * width];
                let nearest = InterpolationKernel::Nearest(NearestRounding::Floor);
                cases.push(of(nearest, Coordinates::Asymmetric, twice), vec![activation(&x)]);
                let linear = of(InterpolationKernel::Linear, Coordinates::HalfPixel, twice);
                cases.push(linear, vec![activation(&x)]);
            }
            Scale::Awkward => {
                for op in awkward() {
                    cases.push(op, vec![activation(&[2, 7, 9, 33])]);
                    cases.push(op, vec![activation(&[1, 4, 1, 8])]);
                }
            }
            Scale::Heads => {}
        }
    }

    /// Executors compute positions in f32: with an error of up to 4 roundings of the largest one. A weight then changes by up to twice
    /// that (the steepest slope of a cubic kernel is below 2), times two elements of at most the largest one along both axes.
    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        if matches!(self.kernel, InterpolationKernel::Nearest(_)) {
            return 0.0;
        }
        let [_, height, width, _] = operands[0].extents();
        let most = |array: &Array| array.values().iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let result = self.eval(operands).ok().map_or(1.0, |results| most(&results[0]));
        let position = 4.0 * f64::from(f32::EPSILON) / 2.0
            * height.max(width).max(self.size[0].max(self.size[1])) as f64;
        let ratio = most(operands[0]) / result.max(f64::MIN_POSITIVE);
        let stretch = self.stretch(0, height).max(self.stretch(1, width));
        let taps = (2.0 * self.support() * stretch).powi(2) as usize;
        narrow(dtype) + (tolerance(DType::F32, taps) + 8.0 * position) * ratio.max(1.0)
    }

    /// The interpolation multiplies both axes by matrices of weights, and its derivative by their transposes.
    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        let (x, gradient) = (node.inputs[0], only_gradient(gradients)?);
        let [height, width] = sides(builder, x)?;
        let [down, across] = [self.matrix(builder, 0, height)?, self.matrix(builder, 1, width)?];
        let product = BatchMatMul {
            transpose_a: true,
            transpose_b: false,
        };
        let d_x = builder.push(product, [across, gradient])?;
        let (shape, at_2) = (builder.shape(x).to_vec(), builder.shape_at(x, 2)?);
        let batch = (shape[0] != at_2[0]).then_some(0);
        let rows = Reshape {
            extents: vec![shape[0], self.size[0], width * shape[3]],
            batch,
        };
        let d_x = builder.push(rows, [d_x])?;
        let d_x = builder.push(product, [down, d_x])?;
        let image = Reshape {
            extents: shape,
            batch,
        };
        Ok(vec![Some(builder.push(image, [d_x])?)])
    }
}

impl Interpolate {
    /// Appends the weights of `extent` elements of x for each element of the result along `axis`, `[size, extent]`.
    fn matrix(&self, builder: &mut dyn GraphBuilder, axis: usize, extent: usize) -> Result<ValueId, OpError> {
        let size = self.size[axis];
        let mut weights = vec![0.0; size * extent];
        for (row, weights) in weights.chunks_exact_mut(extent).enumerate() {
            for (at, weight) in self.taps(axis, row, extent) {
                weights[at] += weight as f32;
            }
        }
        let matrix = builder.constant(weights.len(), &weights)?;
        let reshape = Reshape {
            extents: vec![size, extent],
            batch: None,
        };
        builder.push(reshape, [matrix])
    }
}

fn of(kernel: InterpolationKernel, coordinates: Coordinates, size: [usize; 2]) -> Interpolate {
    Interpolate {
        size,
        scale: None,
        kernel,
        coordinates,
        antialias: false,
        exclude_outside: false,
    }
}

/// Returns each kernel and each rule of coordinates, to a larger and a smaller size.
fn awkward() -> Vec<Interpolate> {
    use Coordinates::{AlignCorners, Asymmetric, HalfPixel, HalfPixelSymmetric, PytorchHalfPixel};
    use InterpolationKernel::{Cubic, Linear, Nearest};
    use NearestRounding::{Ceil, Floor, PreferCeil, PreferFloor};
    let mut ops = vec![
        of(Nearest(Floor), Asymmetric, [14, 11]),
        of(Nearest(PreferFloor), HalfPixel, [5, 13]),
        of(Nearest(PreferCeil), AlignCorners, [3, 17]),
        of(Nearest(Ceil), Asymmetric, [9, 4]),
        of(Linear, HalfPixel, [13, 21]),
        of(Linear, AlignCorners, [5, 1]),
        of(Linear, Asymmetric, [3, 11]),
        of(Linear, PytorchHalfPixel, [1, 20]),
        of(Cubic(-0.75), HalfPixel, [16, 5]),
        of(Cubic(-0.5), AlignCorners, [4, 19]),
        Interpolate {
            scale: Some([1.7, 0.61]),
            ..of(Linear, HalfPixelSymmetric, [11, 5])
        },
        Interpolate {
            exclude_outside: true,
            ..of(Cubic(-0.75), HalfPixel, [9, 7])
        },
    ];
    for kernel in [Linear, Cubic(-0.5)] {
        for exclude_outside in [false, true] {
            ops.push(Interpolate {
                antialias: true,
                exclude_outside,
                ..of(kernel, HalfPixel, [3, 4])
            });
        }
    }
    ops
}
