//! Token assembly.

use super::{Call, Lowering, one, rows};
use crate::kernels::TokensArgs;
use crate::ops::Tokens;

impl Lowering<'_> {
    pub(super) fn tokens(&self, spec: Tokens) -> Result<Vec<Call>, String> {
        let &[_, tokens, channels] = self.shape_of(0)? else {
            return Err("takes tokens".into());
        };
        let (prefix, prefixes) = match spec.prefix {
            true => (self.address(1)?, rows(self.shape_of(1)?)?),
            false => (0, 0),
        };
        let position = match spec.position {
            true => self.address(self.step.inputs.len().saturating_sub(1))?,
            false => 0,
        };
        one(TokensArgs::new(
            [self.address(0)?, prefix, position, self.out],
            [self.shape[0], tokens, channels],
            prefixes,
        )?)
    }
}
