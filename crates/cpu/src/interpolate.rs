//! Interpolation of images to another size, channels last: first between rows, then between columns.

use hipvit_graph::op::{Interpolate, OpError};
use rayon::prelude::*;

use super::rows::{SharedLoop, with_scratch};
use super::{CpuOp, Operands};

impl CpuOp for Interpolate {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let &[_, height, width, channels] = operands.batched_shape(0)? else {
            return Err("takes images".into());
        };
        let [rows, columns] = self.size;
        let taps = |axis: usize, extent: usize| -> Vec<Vec<(usize, f32)>> {
            let of = |index| self.taps(axis, index, extent).into_iter();
            let single = |index| of(index).map(|(at, weight)| (at, weight as f32)).collect();
            (0..self.size[axis]).map(single).collect()
        };
        let (down, across) = (taps(0, height), taps(1, width));
        let x = operands.values(0)?;
        let lines = results[0].par_chunks_mut((columns * channels).max(1)).enumerate();
        lines.for_each_item(|(line, y)| {
            let image = &x[line / rows * height * width * channels..];
            with_scratch(width * channels, |between| {
                let source = |row: usize| &image[row * width * channels..][..width * channels];
                let between = match &*down[line % rows] {
                    &[(row, 1.0)] => source(row),
                    taps => {
                        sum(taps.iter().map(|&(row, weight)| (source(row), weight)), between);
                        between
                    }
                };
                for (y, taps) in y.chunks_exact_mut(channels).zip(&across) {
                    let taps = taps.iter();
                    sum(
                        taps.map(|&(at, weight)| (&between[at * channels..][..channels], weight)),
                        y,
                    );
                }
            });
        });
        Ok(())
    }
}

/// Computes the weighted sum of vectors.
fn sum<'a>(terms: impl Iterator<Item = (&'a [f32], f32)>, out: &mut [f32]) {
    for (i, (x, weight)) in terms.enumerate() {
        let pairs = out.iter_mut().zip(x);
        if i == 0 {
            pairs.for_each(|(y, x)| *y = weight * x);
        } else {
            pairs.for_each(|(y, x)| *y += weight * x);
        }
    }
}
