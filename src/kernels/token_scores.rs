//! `token_scores`: scores of tokens, with rules against repeated ones.

use hipvit_graph::op::TokenScores;

use super::bindings::{TOKEN_SCORES_PART, TOKEN_SCORES_THREADS, TokenScoresArgs};
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl TokenScoresArgs {
    /// Creates the arguments for `logits` and `scores` `[rows, vocabulary]`, and `tokens` `[rows, length]`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub fn new(
        [logits, tokens, scores]: [DeviceAddress; 3],
        [rows, vocabulary, length]: [usize; 3],
        op: TokenScores,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            logits,
            tokens,
            scores,
            rows: extent(rows)?,
            vocabulary: extent(vocabulary)?,
            length: extent(length)?,
            ngram: extent(op.ngram)?,
            penalty: op.penalty,
            log: op.log.into(),
        })
    }
}

impl Lower for TokenScores {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("token_scores"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let (&[rows, vocabulary], &[_, length]) = (step.shape_of(0)?, step.shape_of(1)?) else {
            return Err(KernelError::internal("has operands of other shapes"));
        };
        let addresses = [step.address(0)?, step.integers(1)?, step.out];
        one(TokenScoresArgs::new(
            addresses,
            [rows, vocabulary, length],
            *self,
        )?)
    }
}

// SAFETY: see hip/token_scores.hip. Blocks beyond the last row return. Tokens outside of a block's part of the row mark nothing.
unsafe impl KernelArguments for TokenScoresArgs {
    const FILE: &'static str = "token_scores";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if [self.rows, self.vocabulary].contains(&0) {
            return Err("has no logits".into());
        }
        let parts = u64::from(self.vocabulary.div_ceil(TOKEN_SCORES_PART));
        target.blocks(parts.saturating_mul(self.rows.into()), TOKEN_SCORES_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let shape = [self.rows, self.vocabulary];
        visit(Access::read("logits", self.logits, bytes(element, &shape)));
        let tokens = bytes(4, &[self.rows, self.length]);
        visit(Access::read("tokens", self.tokens, tokens));
        visit(Access::write("scores", self.scores, bytes(4, &shape)));
    }
}
