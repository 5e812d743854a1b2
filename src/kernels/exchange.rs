//! Exchanges among the ranks of a training step: copies to and from a bucket in the arena, and a collective on it.

use hipvit_graph::op::exchange::{ExchangeKind, part_len};
use hipvit_graph::op::{Exchange, ExchangeResult, Op, RankPart};

use super::bindings::WireArgs;
use super::call::{CollectiveCall, CopyRows, RankPartCall};
use super::lower::{Call, Lower, Lowering};
use super::{KernelError, Unit, extent};
use crate::hip::DeviceAddress;
use crate::tensor::DType;

/// Dtypes of a step's tensors and of their elements in the bucket.
#[derive(Clone, Copy)]
struct Dtypes {
    tensors: DType,
    bucket: DType,
}

impl Dtypes {
    fn new(step: &Lowering<'_>, f32_tensors: bool, bf16_wire: bool) -> Self {
        let tensors = if f32_tensors {
            DType::F32
        } else {
            step.plan.dtype()
        };
        let bucket = if bf16_wire && tensors == DType::F32 {
            DType::BF16
        } else {
            tensors
        };
        Self { tensors, bucket }
    }

    /// Returns true if elements are rounded for the way.
    fn are_different(self) -> bool {
        self.tensors != self.bucket
    }

    /// Returns the copy of elements of a tensor to the bucket.
    fn to_bucket(
        self,
        tensor: DeviceAddress,
        bucket: DeviceAddress,
        elements: usize,
    ) -> Result<Call, KernelError> {
        self.moved([tensor, bucket], elements, false)
    }

    /// Returns the copy of elements of the bucket to a tensor.
    fn to_tensor(
        self,
        bucket: DeviceAddress,
        tensor: DeviceAddress,
        elements: usize,
    ) -> Result<Call, KernelError> {
        self.moved([bucket, tensor], elements, true)
    }

    fn moved(self, [x, out]: [DeviceAddress; 2], elements: usize, back: bool) -> Result<Call, KernelError> {
        if !self.are_different() {
            return Ok(copy(x, out, elements * self.tensors.size()));
        }
        let elements = extent(elements)?;
        let back = back.into();
        Ok(WireArgs {
            x,
            out,
            elements,
            back,
        }
        .into())
    }
}

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
    fn unit(&self) -> Option<Unit> {
        self.bf16_wire.then(|| Unit::of("wire"))
    }

    /// Always exchanges: the condition only saves time. Sums are in the dtype of the bucket.
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let dtypes = Dtypes::new(step, self.f32_tensors, self.bf16_wire);
        let (size, tensor_size) = (dtypes.bucket.size(), dtypes.tensors.size());
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
                    calls.push(dtypes.to_bucket(address, step.out.offset(at * size), elements)?);
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
                            let from = address.offset(start * tensor_size);
                            calls.push(dtypes.to_bucket(from, step.out.offset(at * size), len)?);
                        }
                        at += part;
                    }
                }
            }
        }
        calls.push(Call::Collective(CollectiveCall {
            id: self.id,
            kind: self.kind,
            bucket: step.out,
            elements,
            ranks: self.ranks,
            dtype: dtypes.bucket,
        }));
        Ok(calls)
    }
}

impl Lower for ExchangeResult {
    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let bf16_wire = step.plan.graph().nodes().iter().any(|node| match &node.op {
            Op::Exchange(exchange) => exchange.id == self.id && exchange.bf16_wire,
            _ => false,
        });
        let dtypes = Dtypes::new(step, self.f32_tensors, bf16_wire);
        let (size, bucket) = (dtypes.bucket.size(), step.address(0)?);
        // Leaves a rank's parts at the start of the bucket.
        let mut calls = vec![Call::AwaitCollective(CollectiveCall {
            id: self.id,
            kind: self.kind,
            bucket,
            elements: step.shape_of(0)?.iter().product(),
            ranks: self.ranks,
            dtype: dtypes.bucket,
        })];
        for (index, pieces) in self.pieces(0).into_iter().enumerate() {
            let mut to = step.result(index)?;
            for piece in pieces.into_iter().filter(|piece| !piece.is_empty()) {
                calls.push(dtypes.to_tensor(bucket.offset(piece.start * size), to, piece.len())?);
                to = to.offset(piece.len() * dtypes.tensors.size());
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
