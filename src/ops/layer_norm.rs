//! Layer normalisation over the channels.

use super::{Shape, expect};

/// Mean (1), centred square (3), normalise (2), weight and bias (2).
pub(super) const FLOPS_PER_ELEMENT: u64 = 8;

pub(super) fn shape([x, weight, bias]: [&[usize]; 3]) -> Result<Shape, String> {
    let [.., d] = *x else {
        return Err("x is a scalar".into());
    };
    expect("weight", weight, &[d])?;
    expect("bias", bias, &[d])?;
    Ok(x.to_vec())
}
