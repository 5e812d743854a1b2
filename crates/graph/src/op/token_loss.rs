//! Cross-entropy of the tokens of texts.

use super::operands::{count, exactly, expect};
use super::{
    Definition, Gradients, GraphBuilder, Locality, NodeValues, OpError, Shape, TokenLossBackward,
    only_gradient,
};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers};
use crate::dtype::DType;
use crate::tolerance::tolerance;
use crate::value::ValueId;

/// `(logits [B,T,V], labels [B,T] i32) → (losses [B,T] f32, hits [B,T] f32)`: `−ln softmax(logits)` of each label, and 1 where no logit is
/// larger than that of the label. Tokens whose label is negative, or not below V, are left out: both results are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenLoss;

/// Returns the class of a label. `None` for a token that is left out.
pub fn class<T: Real>(label: T, classes: usize) -> Option<usize> {
    let label = label.to_f64();
    (label >= 0.0 && label < classes as f64).then_some(label as usize)
}

/// Returns the loss of a token, and 1 if no logit is larger than that of `class`.
pub fn of_token<T: Real>(logits: &[T], class: usize) -> [T; 2] {
    let most = logits.iter().copied().fold(T::NEG_INFINITY, T::max);
    let sum: T = logits.iter().map(|&z| (z - most).exp()).sum();
    let hit = if logits[class] >= most { T::ONE } else { T::ZERO };
    [sum.ln() - (logits[class] - most), hit]
}

/// Checks the shapes of logits and labels.
///
/// # Errors
///
/// [`OpError`] if they are not `[B, T, V]` and `[B, T]`.
pub(super) fn check(logits: &[usize], labels: &[usize]) -> Result<(), OpError> {
    let [batch, tokens, _] = *logits else {
        return Err(OpError::layout("the logits", logits, "[B, T, V]"));
    };
    expect("labels", labels, &[batch, tokens])
}

impl Definition for TokenLoss {
    const NAME: &'static str = "token_loss";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [logits, labels] = exactly(operands)?;
        check(logits, labels)?;
        Ok(vec![labels.to_vec(), labels.to_vec()])
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        if index == 0 { dtype } else { DType::I32 }
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    /// A comparison, an exponential and its sum.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        4 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        // Labels have no channels.
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let classes = operands[0].shape().last().copied().unwrap_or(0);
        let logits = operands[0].values().chunks_exact(classes.max(1));
        for (token, (logits, &label)) in logits.zip(operands[1].values()).enumerate() {
            let values = class(label, classes).map_or([T::ZERO; 2], |class| of_token(logits, class));
            for (result, value) in results.iter_mut().zip(values) {
                result.values_mut()[token] = value;
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            let [batch, tokens, classes] = shape;
            // Some labels are not below the number of classes.
            let labels = integers(&[batch, tokens], classes as i32 + 2);
            cases.push(Self, vec![activation(&shape), labels]);
        });
    }

    /// The results are f32. A loss may be far below the terms that it sums, so the bound is relative to those of the largest loss.
    fn tolerance(&self, index: usize, operands: &[&Array], _dtype: DType) -> f64 {
        match index {
            0 => 4.0 * tolerance(DType::F32, operands[0].shape().last().copied().unwrap_or(1)),
            _ => 0.0,
        }
    }

    fn vjp(
        &self,
        builder: &mut dyn GraphBuilder,
        node: NodeValues<'_>,
        gradients: &[Option<ValueId>],
    ) -> Result<Gradients, OpError> {
        if gradients.get(1).is_some_and(Option::is_some) {
            return Err(OpError::derivative("the hits of tokens have no derivative"));
        }
        let operands = [node.inputs[0], node.inputs[1], only_gradient(gradients)?];
        Ok(vec![Some(builder.push(TokenLossBackward, operands)?), None])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of `torch.nn.functional.cross_entropy` of PyTorch 2.15 in f64, without reduction.
    #[test]
    fn losses_are_those_of_pytorch() {
        let logits = vec![1.0, -2.0, 0.5, 30.0, 0.0, -30.0, 0.25, 0.25, 0.0, 1.0, 2.0, 3.0];
        let logits = Array::new([2, 2, 3], logits).unwrap();
        let labels = Array::new([2, 2], vec![2.0, 1.0, 0.0, -100.0]).unwrap();
        let result = TokenLoss.eval(&[&logits, &labels]).unwrap();
        let expected = [
            1.004_596_902_342_283_4,
            30.000_000_000_000_092,
            1.022_019_461_638_551_8,
            0.0,
        ];
        for (loss, expected) in result[0].values().iter().zip(expected) {
            assert!((loss - expected).abs() < 1e-9, "{loss}, expected {expected}");
        }
        assert_eq!(result[1].values(), [0.0, 0.0, 1.0, 0.0]);
        assert!(TokenLoss.eval(&[&labels, &logits]).is_err());
    }
}
