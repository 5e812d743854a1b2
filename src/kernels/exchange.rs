//! Exchanges among the ranks of a training step: copies to and from a bucket in the arena, and a collective on it.

use hipvit_graph::op::exchange::{ExchangeKind, part_len};
use hipvit_graph::op::{Exchange, ExchangeResult, Op, RankPart};

use super::bindings::WireArgs;
use super::call::{CollectiveCall, RankPartCall};
use super::lower::{Call, Lower, Lowering};
use super::{KernelError, Unit};
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

    /// Returns the copies of pieces of tensors to the bucket, each with its source, its target, and its number of elements.
    fn to_bucket(self, pieces: &[([DeviceAddress; 2], usize)]) -> Result<Vec<Call>, KernelError> {
        calls(pieces, [self.tensors, self.bucket])
    }

    /// Returns the copies of pieces of the bucket to tensors.
    fn to_tensors(self, pieces: &[([DeviceAddress; 2], usize)]) -> Result<Vec<Call>, KernelError> {
        calls(pieces, [self.bucket, self.tensors])
    }
}

fn calls(pieces: &[([DeviceAddress; 2], usize)], dtypes: [DType; 2]) -> Result<Vec<Call>, KernelError> {
    let launches = WireArgs::launches(pieces, dtypes.map(DType::size))?;
    Ok(launches.into_iter().map(Call::from).collect())
}

impl Lower for Exchange {
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("wire"))
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
        let (mut calls, mut pieces) = (Vec::new(), Vec::new());
        match self.kind {
            ExchangeKind::Sum | ExchangeKind::Gather => {
                let mut at = 0;
                for (address, elements) in tensors {
                    pieces.push(([address, step.out.offset(at * size)], elements));
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
                            pieces.push(([from, step.out.offset(at * size)], len));
                        }
                        at += part;
                    }
                }
            }
        }
        calls.extend(dtypes.to_bucket(&pieces)?);
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
    fn unit(&self) -> Option<Unit> {
        Some(Unit::of("wire"))
    }

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
        let mut pieces = Vec::new();
        for (index, of_result) in self.pieces(0).into_iter().enumerate() {
            let mut to = step.result(index)?;
            for piece in of_result.into_iter().filter(|piece| !piece.is_empty()) {
                pieces.push(([bucket.offset(piece.start * size), to], piece.len()));
                to = to.offset(piece.len() * dtypes.tensors.size());
            }
        }
        calls.extend(dtypes.to_tensors(&pieces)?);
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
