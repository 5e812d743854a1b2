//! Slice of a tensor: of rows by copies, with a step by a copy of a view.

use hipvit_graph::op::Slice;

use super::call::CopyRows;
use super::lower::{Call, Lower, Lowering};
use super::{KernelError, Unit};

impl Lower for Slice {
    fn unit(&self) -> Option<Unit> {
        (self.step != 1).then(|| Unit::of("strided_copy"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let shape = step.shape_of(0)?;
        if self.step != 1 {
            return step.copy_view(&self.view(shape));
        }
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
