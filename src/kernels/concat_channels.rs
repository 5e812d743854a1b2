//! Concatenation of channels, by copies.

use hipvit_graph::op::ConcatChannels;

use super::KernelError;
use super::call::CopyRows;
use super::lower::{Call, Lower, Lowering, rows};

impl Lower for ConcatChannels {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let row = |shape: &[usize]| shape.last().map_or(0, |&d| d * step.element());
        let first = row(step.shape_of(0)?);
        let copy = |index: usize, at: usize| {
            let bytes = row(step.shape_of(index)?);
            Ok::<_, KernelError>(Call::CopyRows(CopyRows {
                from: step.address(index)?,
                from_stride: bytes,
                to: step.out.offset(at),
                to_stride: row(step.shape),
                bytes,
                rows: rows(step.shape)?,
            }))
        };
        Ok(vec![copy(0, 0)?, copy(1, first)?])
    }
}
