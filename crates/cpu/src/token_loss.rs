//! Cross-entropy of the tokens of texts.

use hipvit_graph::op::{OpError, TokenLoss, token_loss};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for TokenLoss {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (logits, labels) = (operands.values(0)?, operands.values(1)?);
        let [losses, hits] = results else {
            return Err("has two results".into());
        };
        let classes = (logits.len() / labels.len().max(1)).max(1);
        let rows = logits.par_chunks_exact(classes).zip(labels);
        let results = losses.par_iter_mut().zip(hits.par_iter_mut());
        results.zip(rows).for_each(|((loss, hit), (logits, &label))| {
            let class = token_loss::class(label, classes);
            [*loss, *hit] = class.map_or([0.0; 2], |class| token_loss::of_token(logits, class));
        });
        Ok(())
    }
}
