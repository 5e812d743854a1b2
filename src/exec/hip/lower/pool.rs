//! Pooling, and the concatenation of channels, which copies.

use super::{Call, CopyRows, Lowering, one, rows};
use crate::kernels::PoolArgs;
use crate::ops::Pool;

impl Lowering<'_> {
    pub(super) fn pool(&self, spec: Pool) -> Result<Vec<Call>, String> {
        let &[images, tokens, channels] = self.shape_of(0)? else {
            return Err("takes tokens".into());
        };
        one(PoolArgs::new(
            [self.address(0)?, self.out],
            [images, tokens, channels],
            spec,
        )?)
    }

    pub(super) fn concat_channels(&self) -> Result<Vec<Call>, String> {
        let row = |shape: &[usize]| shape.last().map_or(0, |&d| d * self.element());
        let first = row(self.shape_of(0)?);
        let copy = |index: usize, at: usize| {
            let bytes = row(self.shape_of(index)?);
            Ok::<_, String>(Call::CopyRows(CopyRows {
                from: self.address(index)?,
                from_stride: bytes,
                to: self.out + at as u64,
                to_stride: row(self.shape),
                bytes,
                rows: rows(self.shape)?,
            }))
        };
        Ok(vec![copy(0, 0)?, copy(1, first)?])
    }
}
