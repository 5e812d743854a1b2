//! Normalisation of pixels and the patch convolution, before fusion makes them patch extraction and a GEMM.

use super::patch_extract::patches;
use super::*;

pub(super) fn normalize_shape([x]: [&[usize]; 1]) -> Result<Shape, String> {
    match *x {
        [b, h, w, 3] => Ok(vec![b, 3, h, w]),
        _ => Err(format!("pixels have shape {x:?}, expected [B, H, W, 3]")),
    }
}

pub(super) fn shape(spec: &PatchConv, inputs: &[&[usize]]) -> Result<Shape, String> {
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
