//! `token_loss`: the cross-entropy of the tokens of texts.

use hipvit_graph::op::TokenLoss;

use super::bindings::{TOKEN_LOSS_THREADS, TokenLossArgs};
use super::loss::check;
use super::lower::{Call, Lower, Lowering, one, rows};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for TokenLoss {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("token_loss"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let logits = step.shape_of(0)?;
        one(TokenLossArgs {
            logits: step.address(0)?,
            labels: step.integers(1)?,
            losses: step.out,
            hits: step.result(1)?,
            tokens: extent(rows(logits)?)?,
            classes: extent(logits.last().copied().unwrap_or(0))?,
        })
    }
}

// SAFETY: see hip/token_loss.hip. A block takes a token, and exactly as many blocks are launched.
unsafe impl KernelArguments for TokenLossArgs {
    const FILE: &'static str = "token_loss";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check(self.tokens, self.classes)?;
        target.blocks(self.tokens.into(), TOKEN_LOSS_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = bytes(size_of::<f32>(), &[self.tokens]);
        visit(Access::read(
            "logits",
            self.logits,
            bytes(element, &[self.tokens, self.classes]),
        ));
        visit(Access::read("labels", self.labels, single));
        visit(Access::write("losses", self.losses, single));
        visit(Access::write("hits", self.hits, single));
    }
}
