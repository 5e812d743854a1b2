//! Patch extraction: patches become rows of the patch GEMM's left-hand matrix.

use hipvit_graph::op::{OpError, PatchExtract, PixelLayout};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};
use hipvit_graph::tensor::Input;

impl CpuOp for PatchExtract {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let size = match (self.layout, operands.shape(0)?) {
            (PixelLayout::Hwc, &[_, height, width, _]) | (PixelLayout::Chw, &[_, _, height, width]) => {
                [height, width]
            }
            _ => return Err("takes images".into()),
        };
        let pixels = operands.pixels(0)?;
        let length = 3 * self.patch[0] * self.patch[1];
        let rows = results[0].par_chunks_mut(length.max(1)).enumerate();
        rows.for_each_item(|(index, row)| extract(self, pixels, size, index, row));
        Ok(())
    }
}

/// Extracts patch `index`, counted over the batch, into a row.
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
            Input::Integers(x) => {
                let x = &x[from..from + run];
                out.iter_mut().zip(x).for_each(|(y, &v)| *y = v as f32);
            }
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
