//! From an image to the rows of the patch matrix: normalisation, the patch convolution, patch extraction.

use rayon::prelude::*;

use super::linear::{self, PackedWeight, Tail};
use super::rows::with_scratch;
use super::{Shape, expect, finished, optional};
use crate::graph::{Input, Normalize, PatchConv, PatchExtract, PixelLayout};

pub(super) fn normalize_shape([x]: [&[usize]; 1]) -> Result<Shape, String> {
    match *x {
        [b, h, w, 3] => Ok(vec![b, 3, h, w]),
        _ => Err(format!("pixels have shape {x:?}, expected [B, H, W, 3]")),
    }
}

pub(super) fn conv_shape(spec: &PatchConv, inputs: &[&[usize]]) -> Result<Shape, String> {
    let mut rest = inputs.iter();
    let x = optional(&mut rest, true, "x")?.unwrap_or_default();
    let weight = optional(&mut rest, true, "weight")?.unwrap_or_default();
    let bias = optional(&mut rest, spec.bias, "bias")?;
    finished(&rest)?;
    let [b, 3, h, w] = *x else {
        return Err(format!("x has shape {x:?}, expected [B, 3, H, W]"));
    };
    let [d, ..] = *weight else {
        return Err("weight is a scalar".into());
    };
    expect("weight", weight, &[d, 3, spec.patch[0], spec.patch[1]])?;
    if let Some(bias) = bias {
        expect("bias", bias, &[d])?;
    }
    Ok(vec![b, patches(h, w, spec.patch)?, d])
}

pub(super) fn extract_shape(spec: &PatchExtract, [x]: [&[usize]; 1]) -> Result<Shape, String> {
    let (b, h, w) = match (spec.layout, x) {
        (PixelLayout::Hwc, &[b, h, w, 3]) | (PixelLayout::Chw, &[b, 3, h, w]) => (b, h, w),
        (PixelLayout::Hwc, _) => return Err(format!("pixels have shape {x:?}, expected [B, H, W, 3]")),
        (PixelLayout::Chw, _) => return Err(format!("x has shape {x:?}, expected [B, 3, H, W]")),
    };
    Ok(vec![
        b,
        patches(h, w, spec.patch)?,
        3 * spec.patch[0] * spec.patch[1],
    ])
}

fn patches(h: usize, w: usize, [ph, pw]: [usize; 2]) -> Result<usize, String> {
    if ph == 0 || pw == 0 || h < ph || w < pw {
        return Err(format!("a patch of {ph}×{pw} does not fit an image of {h}×{w}"));
    }
    Ok((h / ph) * (w / pw))
}

/// [`Op::Normalize`](crate::graph::Op::Normalize) of images with `plane` pixels.
pub(crate) fn run_normalize(spec: &Normalize, pixels: &[u8], plane: usize, out: &mut [f32]) {
    out.par_chunks_mut(plane.max(1)).enumerate().for_each(|(i, out)| {
        let (image, c) = (i / 3, i % 3);
        let pixels = pixels[3 * plane * image..].chunks_exact(3);
        for (y, pixel) in out.iter_mut().zip(pixels) {
            *y = f32::from(pixel[c]) * spec.scale[c] + spec.shift[c];
        }
    });
}

/// [`Op::PatchExtract`](crate::graph::Op::PatchExtract) of images of `width` columns and `height` rows.
pub(crate) fn run_extract(spec: &PatchExtract, x: Input<'_>, [height, width]: [usize; 2], out: &mut [f32]) {
    let length = 3 * spec.patch[0] * spec.patch[1];
    out.par_chunks_mut(length.max(1))
        .enumerate()
        .for_each(|(index, row)| {
            extract(spec, x, [height, width], index, row);
        });
}

/// Patch `index`, counted through the batch, as one row.
fn extract(spec: &PatchExtract, x: Input<'_>, [height, width]: [usize; 2], index: usize, out: &mut [f32]) {
    let [h, w] = spec.patch;
    let (across, down) = (width / w, height / h);
    let (image, patch) = (index / (across * down), index % (across * down));
    let (top, left) = (patch / across * h, patch % across * w);
    // A run is what lies together in memory: the patch's part of an image row, of all channels or of one.
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

/// Patches that [`run_conv`] extracts at once.
const CONV_BLOCK: usize = 96;

/// [`Op::PatchConv`](crate::graph::Op::PatchConv): some patches at a time are made rows of a matrix, for a product
/// with the weight as `[D, 3·h·w]`.
pub(crate) fn run_conv(
    spec: &PatchConv,
    x: &[f32],
    size: [usize; 2],
    weight: &PackedWeight,
    bias: Option<&[f32]>,
    out: &mut [f32],
) -> Result<(), String> {
    let (k, d) = (weight.k(), weight.n());
    let extraction = PatchExtract {
        patch: spec.patch,
        layout: PixelLayout::Chw,
        normalize: None,
    };
    let tail = Tail {
        bias,
        activation: None,
        residual: None,
    };
    let blocks = out.par_chunks_mut(CONV_BLOCK * d).enumerate();
    blocks.try_for_each(|(block, out)| {
        with_scratch(out.len() / d * k, |patches| {
            for (i, row) in patches.chunks_exact_mut(k).enumerate() {
                extract(&extraction, Input::Values(x), size, block * CONV_BLOCK + i, row);
            }
            linear::run(patches, weight, tail, out)
        })
    })
}
