//! Linear layers: a GEMM with its epilogue of bias, activation and residual.

use super::*;

pub(super) fn shape(spec: &Linear, inputs: &[&[usize]]) -> Result<Shape, String> {
    let mut rest = inputs.iter();
    let x = optional(&mut rest, true, "x")?.unwrap_or_default();
    let weight = optional(&mut rest, true, "weight")?.unwrap_or_default();
    let bias = optional(&mut rest, spec.bias, "bias")?;
    let residual = optional(&mut rest, spec.residual, "residual")?;
    finished(&rest)?;
    let Some((&k, outer)) = x.split_last() else {
        return Err("x is a scalar".into());
    };
    let [n, width] = *weight else {
        return Err(format!("`weight` has shape {weight:?}, expected [N, {k}]"));
    };
    expect("weight", &[n, width], &[n, k])?;
    if let Some(bias) = bias {
        expect("bias", bias, &[n])?;
    }
    let output: Shape = outer.iter().copied().chain([n]).collect();
    if let Some(residual) = residual {
        expect("residual", residual, &output)?;
    }
    Ok(output)
}

pub(super) fn flops(spec: &Linear, weight: &[usize], output: &[usize]) -> u64 {
    let per_element = spec.activation.map_or(0, activation::flops_per_element) + u64::from(spec.residual);
    matmul_flops(output, weight[1], spec.bias) + per_element * count(output)
}

/// `2·k` operations per element, and one for the bias.
pub(super) fn matmul_flops(output: &[usize], k: usize, bias: bool) -> u64 {
    count(output) * (2 * k as u64 + u64::from(bias))
}
