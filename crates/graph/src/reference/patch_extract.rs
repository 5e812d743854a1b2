//! Patches as rows of a matrix.

use super::Array;
use super::array::extents;
use super::patch_conv::affine;
use crate::ops::{PatchExtract, PixelLayout};

pub(super) fn patch_extract(spec: &PatchExtract, x: &Array, y: &mut Array) {
    let [h, w] = spec.patch;
    let [batch, patches, length] = extents(y);
    let (height, width) = match (spec.layout, extents(x)) {
        (PixelLayout::Hwc, [_, height, width, _]) | (PixelLayout::Chw, [_, _, height, width]) => {
            (height, width)
        }
    };
    for b in 0..batch {
        for p in 0..patches {
            let (top, left) = (p / (width / w) * h, p % (width / w) * w);
            for e in 0..length {
                let (c, i, j) = match spec.layout {
                    PixelLayout::Hwc => (e % 3, e / 3 / w, e / 3 % w),
                    PixelLayout::Chw => (e / (h * w), e / w % h, e % w),
                };
                let (row, column) = (top + i, left + j);
                let from = match spec.layout {
                    PixelLayout::Hwc => ((b * height + row) * width + column) * 3 + c,
                    PixelLayout::Chw => ((b * 3 + c) * height + row) * width + column,
                };
                let pixel = x.values()[from];
                y.values_mut()[(b * patches + p) * length + e] = match &spec.normalize {
                    Some(normalize) => affine(normalize, c, pixel),
                    None => pixel,
                };
            }
        }
    }
}
