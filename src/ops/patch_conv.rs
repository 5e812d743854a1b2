//! Normalisation of pixels and the patch convolution, before fusion makes them patch extraction and a GEMM.

use rayon::prelude::*;

use super::linear::{self, PrepackedWeight, Tail};
use super::patch_extract::extract;
use super::rows::with_scratch;
use super::{Normalize, PatchConv, PatchExtract, PixelLayout};
use crate::tensor::Input;

/// [`Op::Normalize`](crate::ops::Op::Normalize) of images with `plane` pixels.
pub(crate) fn run_normalize(spec: &Normalize, pixels: &[u8], plane: usize, out: &mut [f32]) {
    out.par_chunks_mut(plane.max(1)).enumerate().for_each(|(i, out)| {
        let (image, c) = (i / 3, i % 3);
        let pixels = pixels[3 * plane * image..].chunks_exact(3);
        for (y, pixel) in out.iter_mut().zip(pixels) {
            *y = f32::from(pixel[c]) * spec.scale[c] + spec.shift[c];
        }
    });
}

/// Patches that [`run`] extracts at once.
const CONV_BLOCK: usize = 96;

/// [`Op::PatchConv`](crate::ops::Op::PatchConv): blocks of patches become rows of a matrix, for a GEMM
/// with the weight as `[D, 3·h·w]`.
pub(crate) fn run(
    spec: &PatchConv,
    x: &[f32],
    size: [usize; 2],
    weight: &PrepackedWeight,
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
