//! Transposition of tokens and channels.

use super::{Call, Lowering, one};
use crate::kernels::TransposeArgs;
use crate::ops::Transpose;

impl Lowering<'_> {
    pub(super) fn transpose(&self, spec: Transpose) -> Result<Vec<Call>, String> {
        let &[images, rows, columns] = self.shape_of(0)? else {
            return Err("takes tokens".into());
        };
        let gamma = if spec.scale { self.address(1)? } else { 0 };
        let y = match spec.combine {
            Some(_) => self.address(1 + usize::from(spec.scale))?,
            None => 0,
        };
        one(TransposeArgs::new(
            [self.address(0)?, gamma, y, self.out],
            [images, rows, columns],
            spec,
        )?)
    }
}
