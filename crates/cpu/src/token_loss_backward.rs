//! Derivative of the cross-entropy of tokens.

use hipvit_graph::op::{OpError, TokenLossBackward, token_loss, token_loss_backward};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for TokenLossBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (logits, labels, gradients) = (operands.values(0)?, operands.values(1)?, operands.values(2)?);
        let classes = (logits.len() / labels.len().max(1)).max(1);
        let rows = logits.par_chunks_exact(classes).zip(labels).zip(gradients);
        let derivatives = results[0].par_chunks_exact_mut(classes);
        derivatives
            .zip(rows)
            .for_each(
                |(d, ((logits, &label), &gradient))| match token_loss::class(label, classes) {
                    Some(class) => token_loss_backward::of_token(logits, class, gradient, d),
                    None => d.fill(0.0),
                },
            );
        Ok(())
    }
}
