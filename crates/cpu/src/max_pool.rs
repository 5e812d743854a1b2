//! Maxima of sliding windows over images, channels last.

use hipvit_graph::op::{MaxPool, OpError, Windows};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};

impl CpuOp for MaxPool {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        for_each_pixel(operands, self.windows(), results[0], |_, taps, y| {
            y.fill(f32::NEG_INFINITY);
            taps(&mut |x| {
                y.iter_mut()
                    .zip(x)
                    .for_each(|(y, &x)| *y = if x > *y { x } else { *y });
            });
        })
    }
}

/// Calls a function for each pixel in a window.
type Taps<'a> = dyn Fn(&mut dyn FnMut(&[f32])) + 'a;

/// Calls `f([row, column], taps, y)` for each pixel of the result, in parallel.
pub(super) fn for_each_pixel(
    operands: &Operands<'_>,
    [down, across]: [Windows; 2],
    out: &mut [f32],
    f: impl Fn([usize; 2], &Taps<'_>, &mut [f32]) + Sync,
) -> Result<(), OpError> {
    let &[_, height, width, channels] = operands.batched_shape(0)? else {
        return Err("takes images".into());
    };
    let &[_, rows, columns, _] = operands.result_shape(0) else {
        return Err("makes no images".into());
    };
    let x = operands.values(0)?;
    let lines = out.par_chunks_mut((columns * channels).max(1)).enumerate();
    lines.for_each_item(|(line, y)| {
        let (image, row) = (line / rows, line % rows);
        let x = &x[image * height * width * channels..][..height * width * channels];
        for (column, y) in y.chunks_exact_mut(channels).enumerate() {
            let taps = |f: &mut dyn FnMut(&[f32])| {
                for row in down.taps(row, height).filter_map(|tap| down.at(row, tap, height)) {
                    let taps = across.taps(column, width);
                    for column in taps.filter_map(|tap| across.at(column, tap, width)) {
                        f(&x[(row * width + column) * channels..][..channels]);
                    }
                }
            };
            f([row, column], &taps, y);
        }
    });
    Ok(())
}
