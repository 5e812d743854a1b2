//! Convolution of images, channels last:
//!
//! - 1×1: the GEMM of linear layers.
//! - Depthwise: SIMD over channels.
//! - Others: rows of pixels in windows are the left matrix of a GEMM, for each group of channels.

mod depthwise;
mod patches;
mod pixel_blocks;

use hipvit_graph::op::{Conv, OpError};
use rayon::prelude::*;

use self::patches::Patches;
use self::pixel_blocks::in_blocks;
use super::gemm::{self, Blocks, Epilogue, PackedBMatrix, ROW_TILE};
use super::prepacked::{self, PrepackedWeight};
use super::rows::{SharedLoop, with_scratch};
use super::tail::Tail;
use super::{CpuOp, Form, Operands};
use hipvit_graph::tensor::DType;

impl CpuOp for Conv {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let &[_, height, width, channels] = operands.batched_shape(0)? else {
            return Err("takes images".into());
        };
        let &[_, rows, columns, features] = operands.result_shape(0) else {
            return Err("makes no images".into());
        };
        let tail = Tail {
            bias: operands.optional(self.bias, 2)?,
            activation: self.activation,
            residual: if self.residual {
                Some(operands.source(operands.count() - 1)?)
            } else {
                None
            },
        };
        let patches = Patches {
            x: operands.values(0)?,
            windows: self.windows(),
            image: [height, width, channels],
            result: [rows, columns],
            channels: 0..channels,
        };
        let out = &mut *results[0];
        if self.is_pointwise() {
            return prepacked::run(patches.x, &*operands.weight(1, operands.dtype())?, tail, out);
        }
        if self.groups == 1 {
            return dense(&patches, &*operands.weight(1, operands.dtype())?, tail, out);
        }
        let weight = operands.values(1)?;
        if self.groups == channels && features == channels {
            return depthwise::run(&patches, weight, tail, out);
        }
        grouped(&patches, weight, self.groups, tail, out)
    }

    fn constant_form(&self, index: usize, dtype: DType) -> Form {
        if index == 1 && self.groups == 1 {
            Form::Weight(dtype)
        } else {
            Form::Values
        }
    }
}

/// Elements of patches of a task: half of an L2 cache of 1 MiB.
const PATCHES: usize = 1 << 17;

/// Elements of patches of a GEMM that widens its weight: 64 MiB.
const WIDENED: usize = 1 << 24;

/// Returns the pixels of a task whose patches have `length` elements.
fn block_of(pixels: usize, length: usize) -> usize {
    let most = (PATCHES / length).clamp(ROW_TILE, gemm::BLOCK_ROWS);
    let blocks = Blocks { most, overhead: 16 };
    blocks.divide(pixels, 1, rayon::current_num_threads()).0
}

fn dense(
    patches: &Patches<'_>,
    weight: &PrepackedWeight,
    tail: Tail<'_>,
    out: &mut [f32],
) -> Result<(), OpError> {
    let (k, n) = (weight.k(), weight.n());
    let block = block_of(out.len() / n, k);
    if weight.is_repacked() {
        // Each GEMM widens the whole weight: a few large ones.
        let most = (WIDENED / k).max(block);
        for (i, out) in out.chunks_mut(most * n).enumerate() {
            let pixels = i * most..i * most + out.len() / n;
            with_scratch(pixels.len() * k, |matrix| {
                let parts = matrix.par_chunks_mut(block * k).enumerate();
                parts.for_each_item(|(part, matrix)| {
                    let first = pixels.start + part * block;
                    patches.fill(first..first + matrix.len() / k, matrix);
                });
                prepacked::run(matrix, weight, tail.rows(pixels.clone(), n), out)
            })?;
        }
        return Ok(());
    }
    let blocks = out.par_chunks_mut(block * n).enumerate();
    blocks.try_for_each_item(|(i, out)| {
        let pixels = i * block..i * block + out.len() / n;
        with_scratch(pixels.len() * k, |matrix| {
            patches.fill(pixels.clone(), matrix);
            prepacked::run(matrix, weight, tail.rows(pixels, n), out)
        })
    })
}

fn grouped(
    patches: &Patches<'_>,
    weight: &[f32],
    groups: usize,
    tail: Tail<'_>,
    out: &mut [f32],
) -> Result<(), OpError> {
    let depth = patches.channels.len() / groups;
    let k = patches.taps() * depth;
    let of_group = weight.len() / k / groups;
    let n = of_group * groups;
    let panels = weight
        .par_chunks(of_group * k)
        .map(|rows| Ok(gemm::prepack(gemm::strided(rows, of_group, k, k)?.transposed())));
    let panels: Vec<PackedBMatrix<f32>> = panels.collect::<Result<_, OpError>>()?;
    let block = block_of(out.len() / n, k);
    in_blocks(n, block, tail, out, |pixels, result| {
        with_scratch(pixels.len() * (k + of_group), |scratch| {
            let (matrix, sums) = scratch.split_at_mut(pixels.len() * k);
            for (group, panel) in panels.iter().enumerate() {
                let patches = Patches {
                    channels: group * depth..(group + 1) * depth,
                    ..patches.clone()
                };
                patches.fill(pixels.clone(), matrix);
                let epilogue = Epilogue {
                    scale: 1.0,
                    bias: tail.bias.map(|bias| &bias[group * of_group..][..of_group]),
                };
                gemm::multiply(gemm::strided(matrix, pixels.len(), k, k)?, panel, epilogue, sums)?;
                for (result, sums) in result.chunks_exact_mut(n).zip(sums.chunks_exact(of_group)) {
                    result[group * of_group..][..of_group].copy_from_slice(sums);
                }
            }
            Ok(())
        })
    })
}
