//! From an image to the rows of the patch matrix: normalisation, the patch convolution, patch extraction.

use super::{Shape, expect, finished, optional};
use crate::graph::{PatchConv, PatchExtract, PixelLayout};

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
