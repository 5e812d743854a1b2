//! Addition and scaling, where they are not fused into another op.

use super::*;

pub(super) fn add_shape([x, y]: [&[usize]; 2]) -> Result<Shape, String> {
    let broadcast = y.len() == x.len() && y.first() == Some(&1) && y[1..] == x[1..];
    if x == y || broadcast {
        Ok(x.to_vec())
    } else {
        Err(format!("cannot add {y:?} to {x:?}"))
    }
}

pub(super) fn scale_shape([x, gamma]: [&[usize]; 2]) -> Result<Shape, String> {
    let [.., d] = *x else {
        return Err("x is a scalar".into());
    };
    expect("gamma", gamma, &[d])?;
    Ok(x.to_vec())
}

pub(super) fn affine_shape([x, weight, bias]: [&[usize]; 3]) -> Result<Shape, String> {
    let [.., d] = *x else {
        return Err("x is a scalar".into());
    };
    expect("weight", weight, &[d])?;
    expect("bias", bias, &[d])?;
    Ok(x.to_vec())
}
