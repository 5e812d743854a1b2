//! Exchanges among the ranks of a training step: copies to and from a bucket in the arena, and a collective on it.

use hipvit_graph::op::exchange::{ExchangeKind, part_len};
use hipvit_graph::op::{Exchange, ExchangeResult, RankPart};

use super::KernelError;
use super::call::{CollectiveCall, CopyRows, RankPartCall};
use super::lower::{Call, Lower, Lowering};
use crate::hip::DeviceAddress;
use crate::tensor::DType;

/// Returns the copy of contiguous bytes.
fn copy(from: DeviceAddress, to: DeviceAddress, bytes: usize) -> Call {
    Call::CopyRows(CopyRows {
        from,
        from_stride: bytes,
        to,
        to_stride: bytes,
        bytes,
        rows: 1,
    })
}

impl Lower for Exchange {
    /// Always exchanges: the condition only saves time.
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        if self.bf16_wire {
            let reason = "rounds gradients in f32 to bf16 between ranks, which GPUs do not. Train in bf16, or set the wire to f32";
            return Err(KernelError::unsupported(reason));
        }
        let dtype = if self.f32_tensors {
            DType::F32
        } else {
            step.plan.dtype()
        };
        let size = dtype.size();
        let mut tensors = Vec::new();
        for index in usize::from(self.conditional)..step.step.inputs.len() {
            let elements: usize = step.shape_of(index)?.iter().product();
            tensors.push((step.address(index)?, elements));
        }
        let elements: usize = step.shape.iter().product();
        let mut calls = Vec::new();
        match self.kind {
            ExchangeKind::Sum | ExchangeKind::Gather => {
                let mut at = 0;
                for (address, elements) in tensors {
                    calls.push(copy(address, step.out.offset(at * size), elements * size));
                    at += elements;
                }
            }
            ExchangeKind::Scatter => {
                if tensors
                    .iter()
                    .any(|(_, elements)| !elements.is_multiple_of(self.ranks))
                {
                    calls.push(Call::Zero {
                        to: step.out,
                        bytes: elements * size,
                    });
                }
                let mut at = 0;
                for rank in 0..self.ranks {
                    for &(address, elements) in &tensors {
                        let part = part_len(elements, self.ranks);
                        let start = (rank * part).min(elements);
                        let len = part.min(elements - start);
                        if len > 0 {
                            let from = address.offset(start * size);
                            calls.push(copy(from, step.out.offset(at * size), len * size));
                        }
                        at += part;
                    }
                }
            }
        }
        calls.push(Call::Collective(CollectiveCall {
            kind: self.kind,
            bucket: step.out,
            elements,
            ranks: self.ranks,
            dtype,
        }));
        Ok(calls)
    }
}

impl Lower for ExchangeResult {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let dtype = if self.f32_tensors {
            DType::F32
        } else {
            step.plan.dtype()
        };
        let (size, bucket) = (dtype.size(), step.address(0)?);
        let mut calls = Vec::new();
        // The collective leaves a rank's parts at the start of the bucket.
        for (index, pieces) in self.pieces(0).into_iter().enumerate() {
            let mut to = step.result(index)?;
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                let bytes = piece.len() * size;
                calls.push(copy(bucket.offset(piece.start * size), to, bytes));
                to = to.offset(bytes);
            }
        }
        Ok(calls)
    }
}

impl Lower for RankPart {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        Ok(vec![Call::RankPart(RankPartCall {
            from: step.address(0)?,
            to: step.out,
            elements: step.shape_of(0)?.iter().product(),
            part: step.shape.iter().product(),
            ranks: self.ranks,
        })])
    }
}
