//! Rotary position embedding, which is computed in place.

use super::{Call, CopyRows, Lowering};
use crate::kernels::RopeArgs;
use crate::ops::Rope;

impl Lowering<'_> {
    pub(super) fn rope(&self, spec: &Rope) -> Result<Vec<Call>, String> {
        let (&[images, tokens, channels], &[_, places, table_channels]) = (self.shape, self.shape_of(1)?)
        else {
            return Err("takes tokens and a table".into());
        };
        let mut calls = Vec::new();
        let from = self.address(0)?;
        if from != self.out {
            let bytes = channels * self.element();
            calls.push(Call::CopyRows(CopyRows {
                from,
                from_stride: bytes,
                to: self.out,
                to_stride: bytes,
                bytes,
                rows: images * tokens,
            }));
        }
        let rotated = RopeArgs::new(
            [self.out, self.address(1)?],
            [images, tokens, channels],
            [places, table_channels],
            spec,
        )?;
        calls.push(rotated.into());
        Ok(calls)
    }
}
