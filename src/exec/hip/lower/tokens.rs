//! Token assembly.

use super::{Call, Lowering, one, rows};
use crate::kernels::TokensArgs;
use crate::ops::Tokens;

impl Lowering<'_> {
    pub(super) fn tokens(&self, spec: Tokens) -> Result<Vec<Call>, String> {
        let &[_, tokens, channels] = self.shape_of(0)? else {
            return Err("takes tokens".into());
        };
        let (prefix, prefixes) = if spec.prefix {
            (self.address(1)?, rows(self.shape_of(1)?)?)
        } else {
            (0, 0)
        };
        let position = if spec.position {
            self.address(self.step.inputs.len().saturating_sub(1))?
        } else {
            0
        };
        one(TokensArgs::new(
            [self.address(0)?, prefix, position, self.out],
            [self.shape[0], tokens, channels],
            prefixes,
        )?)
    }
}
