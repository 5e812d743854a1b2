//! The matrix product with its epilogue: bias, activation, residual.

use rayon::prelude::*;

use super::gemm::{self, Epilogue, GemmInputB, ROW_TILE};
use super::rows::{Source, with_scratch};
use super::{Shape, activation, count, expect, finished, optional};
use crate::graph::{Activation, Linear};

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

/// `2·k` operations an element, and one for the bias.
pub(super) fn matmul_flops(output: &[usize], k: usize, bias: bool) -> u64 {
    count(output) * (2 * k as u64 + u64::from(bias))
}

/// What follows the product.
#[derive(Clone, Copy)]
pub(crate) struct Tail<'a> {
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) activation: Option<Activation>,
    pub(crate) residual: Option<Source<'a>>,
}

/// [`Op::Linear`](crate::graph::Op::Linear) on `x [M,K]`, with the weight as `[K,N]`.
///
/// Blocks of rows go through product, activation and residual while they are in the second-level cache.
pub(crate) fn run(
    x: &[f32],
    weight: GemmInputB<'_, f32>,
    tail: Tail<'_>,
    out: &mut [f32],
) -> Result<(), String> {
    let (k, n) = (weight.rows(), weight.cols());
    if k == 0 || n == 0 {
        return Err("has no channels".into());
    }
    let block = block_rows(out.len() / n);
    out.par_chunks_mut(block * n)
        .zip(x.par_chunks(block * k))
        .enumerate()
        .try_for_each(|(i, (out, x))| {
            let x = gemm::strided(x, out.len() / n, k, k)?;
            if let Some(Source::At(residual)) = tail.residual {
                out.copy_from_slice(&residual[i * block * n..][..out.len()]);
            }
            let epilogue = |accumulate| Epilogue {
                scale: 1.0,
                bias: tail.bias,
                accumulate,
            };
            match (tail.activation, tail.residual.is_some()) {
                (None, residual) => gemm::multiply(x, weight, epilogue(residual), out),
                (Some(activation), false) => {
                    gemm::multiply(x, weight, epilogue(false), out)?;
                    activation::apply(activation, out);
                    Ok(())
                }
                (Some(activation), true) => with_scratch(out.len(), |active| {
                    gemm::multiply(x, weight, epilogue(false), active)?;
                    activation::apply(activation, active);
                    out.iter_mut().zip(active).for_each(|(y, a)| *y += *a);
                    Ok(())
                }),
            }
        })
}

/// Rows of a block: few enough for their results to stay in the second-level cache until the tail, enough for each
/// read of the weight to be worth it. Measured with ViT-B/16 on two Zen 5 cores: 132 takes 84 ms an image at batch 1
/// and 81 at batch 8; 36 takes 98 and 83, and no blocks at all 89 and 84. Within a block the product's columns are
/// shared out too, so that few blocks keep many threads busy.
const BLOCK_ROWS: usize = 132;

/// The rows of each of the equal blocks into which `rows` rows are divided.
fn block_rows(rows: usize) -> usize {
    let blocks = rows.div_ceil(BLOCK_ROWS).max(1);
    rows.div_ceil(blocks).next_multiple_of(ROW_TILE)
}
