//! The sum of what the ranks of a tensor-parallel model computed, with what follows it.

use super::*;

pub(super) fn shape(spec: &AllReduce, inputs: &[&[usize]]) -> Result<Shape, String> {
    let mut rest = inputs.iter();
    let x = optional(&mut rest, true, "x")?.unwrap_or_default();
    let bias = optional(&mut rest, spec.bias, "bias")?;
    let residual = optional(&mut rest, spec.residual, "residual")?;
    finished(&rest)?;
    let Some(&channels) = x.last() else {
        return Err("x is a scalar".into());
    };
    if let Some(bias) = bias {
        expect("bias", bias, &[channels])?;
    }
    if let Some(residual) = residual {
        expect("residual", residual, x)?;
    }
    Ok(x.to_vec())
}

/// What one rank computes if each sums its part, and what follows the sum.
pub(super) fn flops(spec: &AllReduce, output: &[usize]) -> u64 {
    let sums = u64::from(spec.ranks > 1);
    (sums + u64::from(spec.bias) + u64::from(spec.residual)) * count(output)
}
