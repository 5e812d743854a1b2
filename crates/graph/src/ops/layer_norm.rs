//! Layer and RMS normalisation over the channels, or over each head's.

use super::*;

/// Mean (1), centred square (3), normalise (2), weight and bias (2).
pub(super) const FLOPS_PER_ELEMENT: u64 = 8;

/// Square (2), normalise (1), weight (1).
pub(super) const RMS_FLOPS_PER_ELEMENT: u64 = 4;

pub(super) fn shape([x, weight, bias]: [&[usize]; 3]) -> Result<Shape, String> {
    let shape = rms_shape([x, weight])?;
    expect("bias", bias, weight)?;
    Ok(shape)
}

/// One group of channels, or several that are each normalised.
pub(super) fn rms_shape([x, weight]: [&[usize]; 2]) -> Result<Shape, String> {
    let [.., channels] = *x else {
        return Err("x is a scalar".into());
    };
    match *weight {
        [d] if d > 0 && channels > 0 && channels.is_multiple_of(d) => Ok(x.to_vec()),
        _ => Err(format!(
            "`weight` has shape {weight:?}, expected [{channels}] or a part of it for each group of channels"
        )),
    }
}
