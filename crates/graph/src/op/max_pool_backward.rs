//! Derivative of maxima of sliding windows.

use std::fmt;

use super::max_pool::of_cases;
use super::operands::{count, exactly, expect, one};
use super::{Definition, Locality, MaxPool, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation};
use crate::dtype::DType;
use crate::tolerance::{narrow, tolerance};

/// `(x [B,H,W,C], dy [B,h,w,C]) → dx` of a [`MaxPool`]: each element of dy is added to the largest element of its window, to the first of equal
/// ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxPoolBackward(pub MaxPool);

impl MaxPoolBackward {
    /// Adds the gradients of an image to `dx`.
    pub fn add_image<T: Real>(&self, x: &[T], dy: &[T], dx: &mut [T], [size, results]: [[usize; 2]; 2]) {
        let [down, across] = self.0.windows();
        let [height, width] = size;
        let channels = x.len() / (height * width).max(1);
        for (pixel, dy) in dy.chunks_exact(channels.max(1)).enumerate() {
            let (row, column) = (pixel / results[1], pixel % results[1]);
            for (channel, &dy) in dy.iter().enumerate() {
                let mut largest: Option<usize> = None;
                for row in down.taps(row, height).filter_map(|tap| down.at(row, tap, height)) {
                    let taps = across.taps(column, width);
                    for column in taps.filter_map(|tap| across.at(column, tap, width)) {
                        let at = (row * width + column) * channels + channel;
                        if largest.is_none_or(|largest| x[at] > x[largest]) {
                            largest = Some(at);
                        }
                    }
                }
                if let Some(at) = largest {
                    dx[at] += dy;
                }
            }
        }
    }
}

impl Definition for MaxPoolBackward {
    const NAME: &'static str = "max_pool_backward";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_attributes(f)
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, dy] = exactly(operands)?;
        let forward = self.0.shapes(&[x])?;
        expect("dy", dy, &forward[0])?;
        one(x)
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        count(operands[1]) * (count(&self.0.kernel) + 1)
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Images
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [_, height, width, channels] = operands[0].extents();
        let [_, rows, columns, _] = operands[1].extents();
        let images = operands[0]
            .values()
            .chunks_exact((height * width * channels).max(1))
            .zip(
                operands[1]
                    .values()
                    .chunks_exact((rows * columns * channels).max(1)),
            );
        let results = results[0]
            .values_mut()
            .chunks_exact_mut((height * width * channels).max(1));
        for (dx, (x, dy)) in results.zip(images) {
            self.add_image(x, dy, dx, [[height, width], [rows, columns]]);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        for (pool, size) in of_cases(cases.scale()) {
            if let Ok(results) = pool.shapes(&[&size]) {
                cases.push(Self(pool), vec![activation(&size), activation(&results[0])]);
            }
        }
    }

    /// An element is the largest one of at most as many windows as contain it.
    fn tolerance(&self, _index: usize, _operands: &[&Array], dtype: DType) -> f64 {
        narrow(dtype) + tolerance(DType::F32, self.0.kernel.iter().product())
    }
}
