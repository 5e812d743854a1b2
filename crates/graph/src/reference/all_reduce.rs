//! The sum over the ranks of a tensor-parallel model.

use super::Array;
use crate::ops::{AllReduce, Op, output_shape};

/// [`Op::AllReduce`] of what each rank has as its first operand; `rest` are the bias and the residual, as the op has them.
///
/// # Errors
///
/// The reason, if there is not one operand a rank, or if shapes differ.
pub fn all_reduce(spec: &AllReduce, partials: &[&Array], rest: &[&Array]) -> Result<Array, String> {
    let Some((first, others)) = partials.split_first().filter(|_| partials.len() == spec.ranks) else {
        let given = partials.len();
        return Err(format!("sums over {} ranks, but has {given}", spec.ranks));
    };
    let shapes: Vec<&[usize]> = [*first].iter().chain(rest).map(|array| array.shape()).collect();
    let shape = output_shape(&Op::AllReduce(*spec), &shapes)?;
    if let Some(other) = others.iter().find(|other| other.shape() != first.shape()) {
        let (shape, expected) = (other.shape(), first.shape());
        return Err(format!("a rank has {shape:?}, the first has {expected:?}"));
    }
    let mut result = Array::zeros(shape);
    let bias = spec.bias.then(|| rest[0].values());
    let residual = spec.residual.then(|| rest[rest.len() - 1].values());
    for (i, value) in result.values_mut().iter_mut().enumerate() {
        let sum: f64 = partials.iter().map(|partial| partial.values()[i]).sum();
        *value = sum + bias.map_or(0.0, |bias| bias[i % bias.len()]) + residual.map_or(0.0, |r| r[i]);
    }
    Ok(result)
}
