//! `token_loss_backward`: the derivative of each token's cross-entropy.

use hipvit_graph::op::TokenLossBackward;

use super::bindings::{TOKEN_LOSS_THREADS, TokenLossBackwardArgs};
use super::loss::check;
use super::lower::{Call, Lower, Lowering, one};
use super::{Access, KernelArguments, KernelError, Launch, Target, Unit, bytes, extent};

impl Lower for TokenLossBackward {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("token_loss_backward"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let [tokens, classes] = step.matrix()?;
        one(TokenLossBackwardArgs {
            logits: step.address(0)?,
            labels: step.integers(1)?,
            gradient: step.address(2)?,
            out: step.out,
            tokens: extent(tokens)?,
            classes: extent(classes)?,
        })
    }
}

// SAFETY: see hip/token_loss_backward.hip. A block takes a token, and exactly as many blocks are launched.
unsafe impl KernelArguments for TokenLossBackwardArgs {
    const FILE: &'static str = "token_loss_backward";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        check(self.tokens, self.classes)?;
        target.blocks(self.tokens.into(), TOKEN_LOSS_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let single = bytes(size_of::<f32>(), &[self.tokens]);
        let all = bytes(element, &[self.tokens, self.classes]);
        visit(Access::read("logits", self.logits, all));
        visit(Access::read("labels", self.labels, single));
        visit(Access::read("gradient", self.gradient, single));
        visit(Access::write("out", self.out, all));
    }
}
