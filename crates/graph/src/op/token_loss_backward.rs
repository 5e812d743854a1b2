//! Derivative of the cross-entropy of tokens.

use super::loss_backward::tolerance_of_derivatives;
use super::operands::{count, exactly, expect, one};
use super::token_loss::{check, class};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers, single};
use crate::dtype::DType;
use crate::softmax::softmax;

/// `(logits [B,T,V], labels [B,T] i32, gradient [B,T] f32) → [B,T,V]`: the gradient of each token's [`TokenLoss`](super::TokenLoss) with
/// respect to its logits, times `gradient`. Zeros for a token that is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenLossBackward;

/// Writes the derivative of a token's loss with respect to its logits, times `gradient`.
pub fn of_token<T: Real>(logits: &[T], class: usize, gradient: T, derivative: &mut [T]) {
    derivative.copy_from_slice(logits);
    softmax(derivative);
    derivative[class] -= T::ONE;
    derivative.iter_mut().for_each(|d| *d *= gradient);
}

impl Definition for TokenLossBackward {
    const NAME: &'static str = "token_loss_backward";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [logits, labels, gradient] = exactly(operands)?;
        check(logits, labels)?;
        expect("gradient", gradient, labels)?;
        one(logits)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            0 => dtype,
            1 => DType::I32,
            _ => DType::F32,
        }
    }

    /// Softmax, and the product with the gradient.
    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        6 * count(operands[0])
    }

    fn locality(&self, _index: usize) -> Locality {
        // Labels have no channels.
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let classes = operands[0].shape().last().copied().unwrap_or(0).max(1);
        let logits = operands[0].values().chunks_exact(classes);
        let tokens = operands[1].values().iter().zip(operands[2].values());
        let derivatives = results[0].values_mut().chunks_exact_mut(classes);
        for (d, (logits, (&label, &gradient))) in derivatives.zip(logits.zip(tokens)) {
            match class(label, classes) {
                Some(class) => of_token(logits, class, gradient, d),
                None => d.fill(T::ZERO),
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, shape, _| {
            let [batch, tokens, classes] = shape;
            let labels = integers(&[batch, tokens], classes as i32 + 2);
            cases.push(Self, vec![activation(&shape), labels, single(&[batch, tokens])]);
        });
    }

    fn tolerance(&self, _index: usize, operands: &[&Array], dtype: DType) -> f64 {
        tolerance_of_derivatives(self, operands, dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of PyTorch 2.15 in f64.
    #[test]
    fn derivatives_are_those_of_pytorch() {
        let logits = Array::new([1, 3, 3], vec![1.0, -2.0, 0.5, 30.0, 0.0, -30.0, 5.0, 6.0, 7.0]).unwrap();
        let labels = Array::new([1, 3], vec![2.0, 1.0, -100.0]).unwrap();
        let gradient = Array::new([1, 3], vec![1.0, 0.5, 1.0]).unwrap();
        let expected = [
            0.603_748_896_149,
            0.030_058_887_570,
            -0.633_807_783_718,
            0.5,
            -0.5,
            0.0,
            0.0,
            0.0,
            0.0,
        ];
        let result = TokenLossBackward.eval(&[&logits, &labels, &gradient]).unwrap();
        for (d, expected) in result[0].values().iter().zip(expected) {
            assert!((d - expected).abs() < 1e-9, "{d}, expected {expected}");
        }
    }
}
