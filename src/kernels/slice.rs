//! Slice of a tensor, by copies.

use hipvit_graph::op::Slice;

use super::KernelError;
use super::call::CopyRows;
use super::lower::{Call, Lower, Lowering};

impl Lower for Slice {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        if self.step != 1 {
            return Err(KernelError::unsupported("has a step, which no kernel computes"));
        }
        let shape = step.shape_of(0)?;
        let inner: usize = shape.iter().skip(self.axis + 1).product();
        let [all, start, bytes] =
            [shape[self.axis], self.start, self.len].map(|n| n * inner * step.moved_element());
        Ok(vec![Call::CopyRows(CopyRows {
            from: step.address(0)?.offset(start),
            from_stride: all,
            to: step.out,
            to_stride: bytes,
            bytes,
            rows: shape[..self.axis].iter().product(),
        })])
    }
}
