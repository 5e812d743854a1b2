//! Concatenation along an axis, by copies.

use hipvit_graph::op::Concat;

use super::KernelError;
use super::call::CopyRows;
use super::lower::{Call, Lower, Lowering};

impl Lower for Concat {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let row = |shape: &[usize]| shape[self.axis..].iter().product::<usize>() * step.moved_element();
        let to_stride = row(step.shape);
        let mut at = 0;
        let mut calls = Vec::with_capacity(step.step.inputs.len());
        for index in 0..step.step.inputs.len() {
            let bytes = row(step.shape_of(index)?);
            calls.push(Call::CopyRows(CopyRows {
                from: step.address(index)?,
                from_stride: bytes,
                to: step.out.offset(at),
                to_stride,
                bytes,
                rows: step.shape[..self.axis].iter().product(),
            }));
            at += bytes;
        }
        Ok(calls)
    }
}
