//! Patch convolution, before fusion turns it into patch extraction and a GEMM.

use hipvit_graph::op::{OpError, PatchConv, PatchExtract, PixelLayout};
use rayon::prelude::*;

use super::patch_extract::extract;
use super::prepacked::{self, PrepackedWeight};
use super::rows::{SharedLoop, with_scratch};
use super::tail::Tail;
use super::{CpuOp, Form, Operands};
use hipvit_graph::tensor::{DType, Input};

impl CpuOp for PatchConv {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let &[_, _, height, width] = operands.shape(0)? else {
            return Err("takes images".into());
        };
        let bias = operands.optional(self.bias, 2)?;
        let weight = operands.weight(1, operands.dtype())?;
        convolve(
            self,
            operands.values(0)?,
            [height, width],
            &weight,
            bias,
            results[0],
        )?;
        Ok(())
    }

    fn constant_form(&self, index: usize, dtype: DType) -> Form {
        if index == 1 {
            Form::Weight(dtype)
        } else {
            Form::Values
        }
    }
}

/// Patches that [`convolve`] extracts at once.
const CONV_BLOCK: usize = 96;

/// Computes the convolution. Blocks of patches become rows of a matrix, which a GEMM multiplies by the weight as `[D, 3·h·w]`.
fn convolve(
    spec: &PatchConv,
    x: &[f32],
    size: [usize; 2],
    weight: &PrepackedWeight,
    bias: Option<&[f32]>,
    out: &mut [f32],
) -> Result<(), OpError> {
    let (k, d) = (weight.k(), weight.n());
    let extraction = PatchExtract {
        patch: spec.patch,
        layout: PixelLayout::Chw,
        normalize: None,
    };
    let tail = Tail {
        bias,
        activation: None,
        residual: None,
    };
    let blocks = out.par_chunks_mut(CONV_BLOCK * d).enumerate();
    blocks.try_for_each_item(|(block, out)| {
        with_scratch(out.len() / d * k, |patches| {
            for (i, row) in patches.chunks_exact_mut(k).enumerate() {
                extract(&extraction, Input::Values(x), size, block * CONV_BLOCK + i, row);
            }
            prepacked::run(patches, weight, tail, out)
        })
    })
}
