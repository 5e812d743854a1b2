//! Attention with a pattern on the caller's memory on the CPU.

use std::borrow::Cow;

use hipvit_graph::op::{Definition as _, OpError, PatternAttention, PatternAttentionBackward};
use hipvit_graph::pattern::Captured;
use hipvit_graph::reference::Array;

use crate::cpu::pattern_attention::attend;
use crate::error::{Error, Result};
use crate::tensor::Input;

/// Attention with a pattern and its derivative on the CPU, for some shapes. It computes in f32 on the caller's memory.
#[derive(Clone, Debug)]
pub struct CpuAttention {
    op: PatternAttention,
    operands: Vec<Vec<usize>>,
    results: Vec<Vec<usize>>,
}

impl CpuAttention {
    /// Prepares attention. `shapes` are those of the op's operands: queries, keys and values in its layout, then the captured tensors.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`] if the shapes do not fit the op.
    pub fn new(op: &PatternAttention, shapes: &[&[usize]]) -> Result<Self> {
        Ok(Self {
            results: op.shapes(shapes).map_err(refused)?,
            op: op.clone(),
            operands: shapes.iter().map(|shape| shape.to_vec()).collect(),
        })
    }

    /// Returns the extents of the result, and of `ln Σ e^s` if it is one.
    pub fn result_shapes(&self) -> &[Vec<usize>] {
        &self.results
    }

    /// Computes attention. `operands` are row-major, in the order of the shapes. Returns the result, followed by `ln Σ e^s` if the op has
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if an operand is missing, or if it has a different number of elements than its shape.
    pub fn forward(&self, operands: &[Input<'_>]) -> Result<Vec<Array<f32>>> {
        let floats = floats(operands, &self.operands)?;
        let operands = self.operands.iter().zip(&floats);
        let operands: Vec<_> = operands
            .map(|(shape, values)| Captured { shape, values })
            .collect();
        let mut results: Vec<_> = self.results.iter().cloned().map(Array::zeros).collect();
        let mut values: Vec<&mut [f32]> = results.iter_mut().map(Array::values_mut).collect();
        attend(&self.op, &operands, &mut values).map_err(refused)?;
        Ok(results)
    }

    /// Computes the derivative. `operands` are those of [`forward`](Self::forward), its two results, and the gradient of the first one.
    /// Returns the gradients of the operands, without captured integers.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the op has no `log_sum_exp`, if an operand is missing, or if it has a different number of elements than its
    /// shape.
    pub fn backward(&self, operands: &[Input<'_>]) -> Result<Vec<Array<f32>>> {
        let [out, log_sum_exp] = self.results.as_slice() else {
            let reason = "has no `log_sum_exp`, which the derivative reads";
            return Err(Error::argument("attention", reason));
        };
        let shapes: Vec<_> = self.operands.iter().chain([out, log_sum_exp, out]).collect();
        let floats = floats(operands, &shapes)?;
        let arrays = shapes.iter().zip(floats);
        let arrays: Option<Vec<_>> = arrays
            .map(|(shape, values)| Array::new(shape.as_slice(), values.into_owned()))
            .collect();
        let arrays = arrays.ok_or_else(|| Error::internal("attention", "has operands of wrong shapes"))?;
        let backward = PatternAttentionBackward(self.op.clone());
        backward.eval(&arrays.iter().collect::<Vec<_>>()).map_err(refused)
    }
}

fn refused(reason: OpError) -> Error {
    Error::graph("attention", reason)
}

/// Returns the elements of the operands, with integers as floats.
fn floats<'a, S: AsRef<[usize]>>(operands: &[Input<'a>], shapes: &[S]) -> Result<Vec<Cow<'a, [f32]>>> {
    if operands.len() != shapes.len() {
        let reason = format!("are {}, expected {}", operands.len(), shapes.len());
        return Err(Error::argument("operands", reason));
    }
    let operands = operands.iter().zip(shapes).enumerate();
    operands
        .map(|(index, (operand, shape))| {
            let floats = match *operand {
                Input::Values(values) => Cow::Borrowed(values),
                Input::Integers(values) => values.iter().map(|&value| value as f32).collect(),
                Input::Pixels(values) => values.iter().map(|&value| f32::from(value)).collect(),
            };
            let (found, shape) = (floats.len(), shape.as_ref());
            if found == shape.iter().product::<usize>() {
                return Ok(floats);
            }
            let reason = format!("have {found} elements in operand {index} of shape {shape:?}");
            Err(Error::argument("operands", reason))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attention::{Pattern, masks};
    use hipvit_graph::op::AttentionOperands;

    #[test]
    fn wrong_operands_are_an_error() {
        let pattern = Pattern::new().with_mask(masks::documents("documents"));
        let op = PatternAttention::new((1, 4), 0.5, AttentionOperands::PackedQkv, &pattern).unwrap();
        let error = CpuAttention::new(&op, &[&[2, 3, 11], &[2, 3]]).unwrap_err();
        assert!(error.to_string().contains("11"), "{error}");
        let attention = CpuAttention::new(&op, &[&[2, 3, 12], &[2, 3]]).unwrap();
        assert_eq!(attention.result_shapes(), [[2, 3, 4]]);
        let (qkv, documents) = (vec![1.0; 72], [0, 0, 1, 0, 1, 1]);
        let error = attention.forward(&[Input::Values(&qkv)]).unwrap_err();
        assert!(error.to_string().contains("are 1, expected 2"), "{error}");
        let short = [Input::Values(&qkv[1..]), Input::Integers(&documents)];
        let error = attention.forward(&short).unwrap_err();
        assert!(error.to_string().contains("71 elements"), "{error}");
        let operands = [Input::Values(&qkv), Input::Integers(&documents)];
        assert_eq!(attention.forward(&operands).unwrap()[0].values(), [1.0; 24]);
        let error = attention.backward(&operands).unwrap_err();
        assert!(error.to_string().contains("log_sum_exp"), "{error}");
    }
}
