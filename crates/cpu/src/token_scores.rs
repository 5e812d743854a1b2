//! Scores of tokens, with rules against repeated ones.

use hipvit_graph::op::{OpError, TokenScores};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for TokenScores {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (logits, tokens) = (operands.values(0)?, operands.values(1)?);
        let [scores] = results else {
            return Err("has one result".into());
        };
        let (vocabulary, length) = (operands.channels(0)?, operands.channels(1)?);
        let rows = logits.par_chunks(vocabulary).zip(tokens.par_chunks(length));
        let scores = scores.par_chunks_mut(vocabulary);
        scores.zip(rows).for_each(|(scores, (logits, tokens))| {
            scores.copy_from_slice(logits);
            self.apply(scores, tokens);
        });
        Ok(())
    }
}
