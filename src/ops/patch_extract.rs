//! Patches as rows of the patch GEMM's left-hand matrix.

use rayon::prelude::*;

use super::{PatchExtract, PixelLayout};
use crate::tensor::Input;

/// [`Op::PatchExtract`](crate::ops::Op::PatchExtract) of images of `width` columns and `height` rows.
pub(crate) fn run(spec: &PatchExtract, x: Input<'_>, [height, width]: [usize; 2], out: &mut [f32]) {
    let length = 3 * spec.patch[0] * spec.patch[1];
    out.par_chunks_mut(length.max(1))
        .enumerate()
        .for_each(|(index, row)| {
            extract(spec, x, [height, width], index, row);
        });
}

/// Patch `index`, counted through the batch, as one row.
pub(super) fn extract(
    spec: &PatchExtract,
    x: Input<'_>,
    [height, width]: [usize; 2],
    index: usize,
    out: &mut [f32],
) {
    let [h, w] = spec.patch;
    let (across, down) = (width / w, height / h);
    let (image, patch) = (index / (across * down), index % (across * down));
    let (top, left) = (patch / across * h, patch % across * w);
    // A run is contiguous in memory: the patch's part of an image row, of all channels or of one.
    let (runs, run, stride) = match spec.layout {
        PixelLayout::Hwc => (h, 3 * w, 3),
        PixelLayout::Chw => (3 * h, w, 1),
    };
    let start = |i: usize| match spec.layout {
        PixelLayout::Hwc => (image * height + top + i) * width + left,
        PixelLayout::Chw => ((image * 3 + i / h) * height + top + i % h) * width + left,
    };
    for (i, out) in out.chunks_exact_mut(run).take(runs).enumerate() {
        let from = start(i) * stride;
        match x {
            Input::Pixels(x) => {
                let x = &x[from..from + run];
                out.iter_mut().zip(x).for_each(|(y, &v)| *y = f32::from(v));
            }
            Input::Values(x) => out.copy_from_slice(&x[from..from + run]),
        }
        if let Some(normalize) = &spec.normalize {
            match spec.layout {
                PixelLayout::Hwc => out.as_chunks_mut::<3>().0.iter_mut().for_each(|pixel| {
                    for (c, v) in pixel.iter_mut().enumerate() {
                        *v = *v * normalize.scale[c] + normalize.shift[c];
                    }
                }),
                PixelLayout::Chw => {
                    let (scale, shift) = (normalize.scale[i / h], normalize.shift[i / h]);
                    out.iter_mut().for_each(|v| *v = *v * scale + shift);
                }
            }
        }
    }
}
