//! The ops, one per file: the shapes it accepts, its cost, its CPU kernel. [`Op`] defines what each computes;
//! [`crate::reference`] has its double-precision implementation, [`crate::kernels`] the GPU's.

pub mod activation;
pub mod add;
pub mod all_reduce;
#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
#[path = "../../tests/support/amx_emulation.rs"]
mod amx_emulation;
pub mod attention;
#[cfg(target_arch = "x86_64")]
pub mod bf16;
pub mod float8;
pub(crate) mod gemm;
pub mod grid_mask;
pub mod grid_positions;
pub mod int8;
pub mod layer_norm;
pub mod linear;
mod op;
mod packed;
pub mod patch_conv;
pub mod patch_extract;
pub mod pool;
#[cfg(test)]
mod random;
pub mod rope;
pub(crate) mod rows;
pub mod swiglu;
pub mod tokens;
pub mod transpose;

pub use op::{
    Activation, AllReduce, Attention, AttentionOperands, Combine, Float8Scale, Levels, Linear, Normalize, Op,
    PatchConv, PatchExtract, PixelLayout, Pool, Rope, RopePairs, Rounding, Tokens, Transpose,
};

use crate::tensor::DType;

/// The extents of a tensor, outermost first.
pub type Shape = Vec<usize>;

/// The shape of `op`'s result for operands of these shapes, or why it does not accept them.
pub fn output_shape(op: &Op, inputs: &[&[usize]]) -> Result<Shape, String> {
    match op {
        Op::Normalize(_) => patch_conv::normalize_shape(operands(inputs)?),
        Op::PatchConv(spec) => patch_conv::shape(spec, inputs),
        Op::PatchExtract(spec) => patch_extract::shape(spec, operands(inputs)?),
        Op::Prepend => tokens::prepend_shape(inputs),
        Op::Tokens(spec) => tokens::tokens_shape(spec, inputs),
        Op::GridPositions => grid_positions::shape(inputs),
        Op::GridMask => grid_mask::shape(inputs),
        Op::Add => add::add_shape(operands(inputs)?),
        Op::Scale => add::scale_shape(operands(inputs)?),
        Op::Affine => add::affine_shape(operands(inputs)?),
        Op::MulScalar(_) | Op::Activation(_) => operands(inputs).map(|[x]: [&[usize]; 1]| x.to_vec()),
        Op::LayerNorm { .. } => layer_norm::shape(operands(inputs)?),
        Op::RmsNorm { .. } => layer_norm::rms_shape(operands(inputs)?),
        Op::Linear(spec) => linear::shape(spec, inputs),
        Op::SwiGlu => swiglu::shape(operands(inputs)?),
        Op::SwiGluNorm { padding, .. } => swiglu::norm_shape(*padding, operands(inputs)?),
        Op::Rope(spec) => rope::shape(spec, operands(inputs)?),
        Op::Attention(spec) => attention::shape(spec, inputs),
        Op::Transpose(spec) => transpose::shape(spec, inputs),
        Op::AttentionStatistics(spec) => attention::statistics_shape(spec, inputs),
        Op::Pool(spec) => pool::shape(spec, operands(inputs)?),
        Op::ConcatChannels => pool::concat_shape(operands(inputs)?),
        Op::AllReduce(spec) => all_reduce::shape(spec, inputs),
    }
}

/// Floating-point operations of `op`: an addition, a multiplication or a transcendental function counts as one.
/// The shapes are those that [`output_shape`] accepted and gave.
pub fn flops(op: &Op, inputs: &[&[usize]], output: &[usize]) -> u64 {
    let elements = count(output);
    match op {
        Op::PatchExtract(spec) => {
            if spec.normalize.is_some() {
                2 * elements
            } else {
                0
            }
        }
        Op::Prepend | Op::ConcatChannels | Op::GridMask => 0,
        Op::GridPositions => grid_positions::flops(output),
        Op::Normalize(_) => 2 * elements,
        Op::PatchConv(spec) => linear::matmul_flops(output, inputs[1][1..].iter().product(), spec.bias),
        Op::Tokens(_) => inputs[0].iter().product::<usize>() as u64,
        Op::Add | Op::Scale | Op::MulScalar(_) => elements,
        Op::Affine => 2 * elements,
        Op::LayerNorm { .. } => layer_norm::FLOPS_PER_ELEMENT * elements,
        Op::RmsNorm { .. } => layer_norm::RMS_FLOPS_PER_ELEMENT * elements,
        Op::Linear(spec) => linear::flops(spec, inputs[1], output),
        Op::Activation(activation) => activation::flops_per_element(*activation) * elements,
        Op::SwiGlu => swiglu::FLOPS_PER_ELEMENT * elements,
        Op::SwiGluNorm { .. } => (swiglu::FLOPS_PER_ELEMENT + layer_norm::FLOPS_PER_ELEMENT) * elements,
        Op::Rope(spec) => rope::flops(spec, inputs[1], output),
        Op::Attention(spec) => attention::flops(spec, inputs, output),
        Op::Transpose(spec) => transpose::flops(spec, output),
        Op::AttentionStatistics(spec) => attention::statistics_flops(spec, inputs, output),
        Op::Pool(spec) => pool::flops(spec, inputs[0]),
        Op::AllReduce(spec) => all_reduce::flops(spec, output),
    }
}

/// The element type of `op`'s result in a plan whose activations are of type `dtype`.
pub fn result_dtype(op: &Op, dtype: DType) -> DType {
    match op {
        Op::AttentionStatistics(_) => DType::F32,
        _ => dtype,
    }
}

/// Exactly `N` operands, or an error that says how many came.
fn operands<'a, const N: usize>(inputs: &[&'a [usize]]) -> Result<[&'a [usize]; N], String> {
    inputs
        .try_into()
        .map_err(|_| format!("takes {N} operands, got {}", inputs.len()))
}

fn count(shape: &[usize]) -> u64 {
    shape.iter().map(|&d| d as u64).product()
}

/// The operand after the required ones, if `present`; used by ops with optional operands.
fn optional<'a>(
    rest: &mut std::slice::Iter<'_, &'a [usize]>,
    present: bool,
    name: &str,
) -> Result<Option<&'a [usize]>, String> {
    if present {
        rest.next()
            .copied()
            .map(Some)
            .ok_or_else(|| format!("its operand `{name}` is missing"))
    } else {
        Ok(None)
    }
}

/// No operand is left over.
fn finished(rest: &std::slice::Iter<'_, &[usize]>) -> Result<(), String> {
    match rest.len() {
        0 => Ok(()),
        n => Err(format!("has {n} operands too many")),
    }
}

fn expect(name: &str, shape: &[usize], expected: &[usize]) -> Result<(), String> {
    if shape == expected {
        Ok(())
    } else {
        Err(format!("`{name}` has shape {shape:?}, expected {expected:?}"))
    }
}
