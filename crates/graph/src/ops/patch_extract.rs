//! Patches as rows of the patch GEMM's left-hand matrix.

use super::*;

pub(super) fn shape(spec: &PatchExtract, [x]: [&[usize]; 1]) -> Result<Shape, String> {
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

pub(super) fn patches(h: usize, w: usize, [ph, pw]: [usize; 2]) -> Result<usize, String> {
    if ph == 0 || pw == 0 || h < ph || w < pw {
        return Err(format!("a patch of {ph}×{pw} does not fit an image of {h}×{w}"));
    }
    Ok((h / ph) * (w / pw))
}
