//! The reference implementation: every op by plain loops in double precision. The executors are checked against it, and
//! constant folding computes with it. Written for clarity; [`crate::exec`] is what is fast.

mod activation;
mod add;
mod all_reduce;
mod array;
mod attention;
mod compare;
mod grid_mask;
mod grid_positions;
mod layer_norm;
mod linear;
mod patch_conv;
mod patch_extract;
mod pool;
mod resize;
mod rope;
mod softmax;
mod swiglu;
#[cfg(test)]
mod tests;
mod tokens;
mod tolerance;
mod transpose;

pub use all_reduce::all_reduce;
pub use array::Array;
pub use attention::{masked_attention, masked_statistics};
pub use compare::{Difference, Mismatch, assert_close, check_close};
pub use resize::resize;
pub use softmax::masked_softmax;
pub use tolerance::{fused_attention_tolerance, layer_norm_tolerance, rounded};
pub use tolerance::{model_tolerance, op_tolerance, tolerance};

use crate::ops::{Op, output_shape};
use activation::activate;

/// `op` on these operands.
///
/// # Errors
///
/// The reason, if the op does not accept operands of these shapes.
pub fn eval(op: &Op, operands: &[&Array]) -> Result<Array, String> {
    let mut result = result_of(op, operands)?;
    match op {
        Op::Normalize(spec) => patch_conv::normalize(spec, operands[0], &mut result),
        Op::PatchConv(spec) => patch_conv::patch_conv(spec, operands, &mut result),
        Op::PatchExtract(spec) => patch_extract::patch_extract(spec, operands[0], &mut result),
        Op::Prepend => tokens::prepend(operands, &mut result),
        Op::Tokens(spec) => tokens::tokens(spec, operands, &mut result),
        Op::GridPositions => {
            grid_positions::grid_positions(operands[0], operands[1], operands[2], &mut result);
        }
        Op::GridMask => grid_mask::grid_mask(operands[0], &mut result),
        Op::Add => add::add(operands[0], operands[1], &mut result),
        Op::Scale => add::scale(operands[0], operands[1], &mut result),
        Op::Affine => add::affine(operands, &mut result),
        Op::MulScalar(factor) => add::map(operands[0], &mut result, |x| f64::from(*factor) * x),
        Op::LayerNorm { epsilon } => layer_norm::layer_norm(*epsilon, operands, &mut result),
        Op::RmsNorm { epsilon } => layer_norm::rms_norm(*epsilon, operands, &mut result),
        Op::Linear(spec) => linear::linear(spec, operands, &mut result),
        Op::Activation(activation) => add::map(operands[0], &mut result, |x| activate(*activation, x)),
        Op::SwiGlu => swiglu::swiglu(operands[0], &mut result),
        Op::SwiGluNorm { epsilon, padding } => {
            let gated = eval(&Op::SwiGlu, &operands[..1])?;
            let operands = [&gated, operands[1], operands[2]];
            layer_norm::padded_layer_norm(*epsilon, *padding, &operands, &mut result);
        }
        Op::Rope(spec) => rope::rope(spec, operands[0], operands[1], &mut result),
        Op::Attention(spec) => attention::attention(spec, operands, &mut result, |_, _, _| true),
        Op::Transpose(spec) => transpose::transpose(*spec, operands, &mut result),
        Op::AttentionStatistics(spec) => attention::statistics(spec, operands, &mut result, |_, _, _| true),
        Op::Pool(spec) => pool::pool(spec, operands[0], &mut result),
        Op::ConcatChannels => pool::concat_channels(operands[0], operands[1], &mut result),
        Op::AllReduce(spec) => return all_reduce(spec, &operands[..1], &operands[1..]),
    }
    Ok(result)
}

/// Zeros of the result's shape.
fn result_of(op: &Op, operands: &[&Array]) -> Result<Array, String> {
    let shapes: Vec<&[usize]> = operands.iter().map(|a| a.shape()).collect();
    Ok(Array::zeros(output_shape(op, &shapes)?))
}
