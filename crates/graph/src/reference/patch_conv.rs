//! Normalisation of pixels and the patch convolution.

use super::Array;
use super::array::extents;
use crate::ops::{Normalize, PatchConv};

pub(super) fn normalize(spec: &Normalize, x: &Array, y: &mut Array) {
    let [batch, height, width, _] = extents(x);
    for b in 0..batch {
        for c in 0..3 {
            for row in 0..height {
                for column in 0..width {
                    let from = ((b * height + row) * width + column) * 3 + c;
                    let to = ((b * 3 + c) * height + row) * width + column;
                    y.values_mut()[to] = affine(spec, c, x.values()[from]);
                }
            }
        }
    }
}

pub(super) fn affine(spec: &Normalize, channel: usize, pixel: f64) -> f64 {
    pixel * f64::from(spec.scale[channel]) + f64::from(spec.shift[channel])
}

pub(super) fn patch_conv(spec: &PatchConv, operands: &[&Array], y: &mut Array) {
    let (x, weight) = (operands[0], operands[1]);
    let [_, _, height, width] = extents(x);
    let [h, w] = spec.patch;
    let [batch, patches, channels] = extents(y);
    for b in 0..batch {
        for p in 0..patches {
            let (top, left) = (p / (width / w) * h, p % (width / w) * w);
            for d in 0..channels {
                let mut sum = if spec.bias { operands[2].values()[d] } else { 0.0 };
                for c in 0..3 {
                    for i in 0..h {
                        for j in 0..w {
                            let pixel = x.values()[((b * 3 + c) * height + top + i) * width + left + j];
                            sum += pixel * weight.values()[((d * 3 + c) * h + i) * w + j];
                        }
                    }
                }
                y.values_mut()[(b * patches + p) * channels + d] = sum;
            }
        }
    }
}
