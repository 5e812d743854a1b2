//! Linear layers: a GEMM, then bias, activation and residual. The library, and whether its epilogue computes the rest, are
//! [selected](crate::exec::select) on submission.
//!
//! - FP8: x is stored in FP8, or rounded to scratch memory first. The GEMM multiplies the result by both scales.
//! - FP8 with a scale per row of x: the library applies the scales, or it writes f32 sums to scratch memory, and a kernel does the rest.
//! - int8: x is rounded row by row. Then one kernel computes the layer, or rocBLAS writes 32-bit sums to scratch memory, and a kernel does
//!   the rest.

pub(crate) mod call;
mod column_sums;

use hipvit_graph::op::{Float8Scale, Levels, Linear, Op, Rounding};

use self::call::{Float8Call, Float8Result, Int8Call, LinearCall};
use super::bindings::QuantizeArgs;
use super::lower::{Call, FACTOR_ALIGNMENT, Lower, Lowering, one, rows, shape_of};
use super::{KernelError, Unit, has_int8_gemm};
use crate::dtype::to_hip;
use crate::graph::Graph;
use crate::graph::plan::{ALIGNMENT, Buffer, Operand, Plan, Step};
use crate::hip::{DType, DeviceAddress, Gemm};
use crate::tensor;

/// Returns the offset of the scales behind an FP8 weight.
pub(crate) fn float8_scales(n: usize, k: usize) -> usize {
    (n * k).next_multiple_of(FACTOR_ALIGNMENT)
}

/// Returns the offsets of the scales and the row sums behind an int8 weight.
pub(crate) fn int8_tables(n: usize, k: usize) -> [usize; 2] {
    let scales = (n * k).next_multiple_of(size_of::<f32>());
    [scales, scales + n * size_of::<f32>()]
}

/// Returns true if the model decodes tokens one by one, so that its linear layers have as many rows as there are texts.
pub(crate) fn decodes(graph: &Graph) -> bool {
    graph
        .nodes()
        .iter()
        .any(|node| matches!(node.op, Op::PagedAttention(_)))
}

/// Returns the units that linear layers of few rows or in 8 bits, and FP8 attention, need besides [`Lower::unit`].
pub(crate) fn linear_units(graph: &Graph, arch: &str) -> impl Iterator<Item = Unit> {
    let any = |of: fn(&Op) -> bool| graph.nodes().iter().any(|node| of(&node.op));
    let rounds = any(|op| match op {
        Op::Linear(spec) => spec.rounding.is_some_and(Rounding::is_to_8_bits),
        _ => false,
    });
    let int8 = any(|op| matches!(op, Op::Linear(spec) if matches!(spec.rounding, Some(Rounding::Int8(_)))));
    let norms_round = graph
        .values()
        .iter()
        .filter_map(|value| value.rounding)
        .any(Rounding::is_of_rows);
    let kernels = [
        ("quantize", rounds),
        ("norm_quantize", norms_round),
        ("bias_activation", rounds),
        ("gemv", decodes(graph)),
        ("int8_gemm", int8 && has_int8_gemm(arch)),
    ];
    let needed = kernels.into_iter().filter(|&(_, needed)| needed);
    needed.map(|(kernel, _)| Unit::of(kernel))
}

/// Scratch memory of a linear layer, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Scratch {
    /// x in 8 bits.
    x: usize,
    /// Scale of each row of x, and its zero point if it has one.
    rows: usize,
    /// Result of the GEMM before the kernel after it.
    sums: usize,
}

impl Scratch {
    fn of(plan: &Plan, step: &Step, spec: &Linear) -> Self {
        let result = plan.buffer(step.output());
        let elements: usize = result.shape.iter().product();
        let x = step.inputs.first().map_or(&[][..], |&x| shape_of(plan, x));
        let x_elements: usize = match bytes_of_x(plan, step) {
            Some(_) => 0,
            None => x.iter().product(),
        };
        let x_rows = x_elements / x.last().copied().unwrap_or(1).max(1);
        let rows = x_rows * spec.rounding.map_or(0, Rounding::row_bytes);
        let wide = elements * plan.dtype().size();
        match spec.rounding {
            None | Some(Rounding::Bf16) => Self {
                sums: if spec.activation.is_some() && step.in_place.is_some() {
                    wide
                } else {
                    0
                },
                ..Self::default()
            },
            Some(Rounding::Float8(Float8Scale::Row)) => Self {
                x: x_elements,
                rows,
                sums: elements * DType::F32.size(),
            },
            Some(Rounding::Float8(Float8Scale::Fixed(_))) => Self {
                x: x_elements,
                rows,
                sums: if result.float8().is_some() || spec.activation.is_some() && step.in_place.is_some() {
                    wide
                } else {
                    0
                },
            },
            Some(Rounding::Int8(_)) => Self {
                x: x_elements,
                rows,
                sums: elements * DType::I32.size(),
            },
        }
    }

    /// Returns the offset of each part, and the end of the last.
    fn offsets(&self) -> [usize; 4] {
        let rows = self.x.next_multiple_of(ALIGNMENT);
        let sums = (rows + self.rows).next_multiple_of(ALIGNMENT);
        [0, rows, sums, sums + self.sums]
    }
}

/// Returns the buffer of x, if x is stored in 8 bits.
fn bytes_of_x<'a>(plan: &'a Plan, step: &Step) -> Option<&'a Buffer> {
    match step.inputs.first() {
        Some(&Operand::Buffer(id)) => Some(plan.buffer(id)).filter(|buffer| buffer.rounding.is_some()),
        _ => None,
    }
}

impl Lower for Linear {
    /// The kernel that may follow or precede the GEMM.
    fn unit(&self) -> Option<Unit> {
        let needed = self.bias || self.activation.is_some() || self.residual;
        needed.then(|| Unit::of("bias_activation"))
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        match self.rounding {
            None if step.is_of_bytes()? => one(Call::Linear(step.linear_of_bytes(self)?)),
            None | Some(Rounding::Bf16) => match step.patch_embedding()? {
                Some(call) => one(Call::Projection(call)),
                None => one(Call::Linear(step.linear_call(self)?)),
            },
            Some(Rounding::Float8(scale)) => step.linear_float8(self, scale),
            Some(Rounding::Int8(levels)) => step.linear_int8(self, levels),
        }
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let [.., end] = Scratch::of(plan, step, self).offsets();
        end
    }
}

impl Lowering<'_> {
    pub(super) fn linear_call(&self, spec: &Linear) -> Result<LinearCall, KernelError> {
        let [n, inner @ ..] = self.shape_of(1)? else {
            return Err("the weight is a scalar".into());
        };
        let residual = if spec.residual {
            self.address(2 + usize::from(spec.bias))?
        } else {
            DeviceAddress::NULL
        };
        let [.., sums, _] = Scratch::of(self.plan, self.step, spec).offsets();
        Ok(LinearCall {
            gemm: Gemm::linear(
                rows(self.shape)?,
                *n,
                inner.iter().product(),
                to_hip(self.plan.dtype()),
            ),
            x: self.address(0)?,
            weight: self.address(1)?,
            bias: if spec.bias {
                self.address(2)?
            } else {
                DeviceAddress::NULL
            },
            residual,
            out: self.out,
            scratch: self.addresses.scratch.offset(sums),
            activation: spec.activation,
            preactivation: DeviceAddress::NULL,
            float8: None,
            int8: None,
            sparse: match self.operand(1)? {
                Operand::Constant(id) => self.addresses.sparse.get(&id).copied(),
                _ => None,
            },
        })
    }

    fn linear_float8(&self, spec: &Linear, scale: Float8Scale) -> Result<Vec<Call>, KernelError> {
        let Some(float8) = self.addresses.float8 else {
            let reason = "is in FP8, which the GPU does not multiply";
            return Err(KernelError::unsupported(reason));
        };
        let mut call = self.linear_call(spec)?;
        let mut calls = Vec::with_capacity(2);
        let extents = [call.gemm.m, call.gemm.k];
        let (rounded, rows) = self.rounded_x(spec)?;
        if bytes_of_x(self.plan, self.step).is_none() {
            calls.push(match scale {
                Float8Scale::Row => QuantizeArgs::float8_rows([call.x, rounded, rows], extents)?.into(),
                Float8Scale::Fixed(scale) => QuantizeArgs::float8([call.x, rounded], extents, scale)?.into(),
            });
        }
        call.x = rounded;
        let x_scale = match scale {
            Float8Scale::Row => rows,
            Float8Scale::Fixed(scale) => self.step_of_float8(scale)?[0],
        };
        let result = self.plan.buffer(self.step.output()).float8();
        call.gemm.inputs = float8;
        call.gemm.output = if result.is_some() {
            float8
        } else {
            to_hip(self.plan.dtype())
        };
        let out = match result {
            Some(step) => Some(Float8Result {
                step,
                reciprocal: self.step_of_float8(step)?[1],
            }),
            None => None,
        };
        call.float8 = Some(Float8Call {
            rows: scale == Float8Scale::Row,
            x: x_scale,
            weight: call.weight.offset(float8_scales(call.gemm.n, call.gemm.k)),
            out,
        });
        calls.push(Call::Linear(call));
        Ok(calls)
    }

    /// Returns true if x and the weight are results of [`RoundFloat8`](hipvit_graph::op::RoundFloat8) in bytes.
    fn is_of_bytes(&self) -> Result<bool, KernelError> {
        let [x, weight] = [self.bytes_of(0)?, self.bytes_of(1)?];
        if x.is_some() != weight.is_some() {
            return Err(KernelError::internal("multiplies FP8 by another dtype"));
        }
        Ok(x.is_some())
    }

    /// Returns the buffer of an operand in FP8 that its scale follows.
    fn bytes_of(&self, index: usize) -> Result<Option<&Buffer>, KernelError> {
        Ok(match self.operand(index)? {
            Operand::Buffer(id) => {
                Some(self.plan.buffer(id)).filter(|buffer| buffer.tensor_scale().is_some())
            }
            _ => None,
        })
    }

    /// Returns the call of a layer in training, whose operands are in FP8. One that is a gradient is in E5M2.
    fn linear_of_bytes(&self, spec: &Linear) -> Result<LinearCall, KernelError> {
        let Some(float8) = self.addresses.float8 else {
            let reason = "is in FP8, which the GPU does not multiply";
            return Err(KernelError::unsupported(reason));
        };
        let mut call = self.linear_call(spec)?;
        let mut scales = [DeviceAddress::NULL; 2];
        for (index, scale) in scales.iter_mut().enumerate() {
            let buffer = self.bytes_of(index)?;
            let behind = buffer.and_then(Buffer::tensor_scale);
            let behind = behind.ok_or_else(|| KernelError::internal("has no scale of an operand"))?;
            *scale = self.address(index)?.offset(behind);
            let is_gradient = buffer.is_some_and(|buffer| buffer.dtype == tensor::DType::F8E5M2);
            match index {
                0 if is_gradient => call.gemm.left = float8.e5m2(),
                1 if is_gradient => return Err(KernelError::unsupported("has a weight in E5M2")),
                _ => {}
            }
        }
        call.gemm.inputs = float8;
        call.gemm.output = to_hip(self.plan.dtype());
        call.float8 = Some(Float8Call {
            rows: false,
            x: scales[0],
            weight: scales[1],
            out: None,
        });
        Ok(call)
    }

    /// Returns the address of x in 8 bits, stored or to be written, and of the parameters of its rows.
    fn rounded_x(&self, spec: &Linear) -> Result<(DeviceAddress, DeviceAddress), KernelError> {
        if let Some(buffer) = bytes_of_x(self.plan, self.step) {
            let x = self.address(0)?;
            return Ok((x, x.offset(buffer.row_scales().unwrap_or(0))));
        }
        let [x, rows, ..] = Scratch::of(self.plan, self.step, spec).offsets();
        let at = |offset: usize| self.addresses.scratch.offset(offset);
        Ok((at(x), at(rows)))
    }

    fn linear_int8(&self, spec: &Linear, levels: Levels) -> Result<Vec<Call>, KernelError> {
        let mut call = self.linear_call(spec)?;
        let Gemm { m, n, k, .. } = call.gemm;
        let mut calls = Vec::with_capacity(2);
        let (x, ranges) = self.rounded_x(spec)?;
        if bytes_of_x(self.plan, self.step).is_none() {
            calls.push(QuantizeArgs::int8([call.x, x, ranges], [m, k], levels)?.into());
        }
        let [scales, column_sums] = int8_tables(n, k).map(|at| call.weight.offset(at));
        call.gemm.inputs = DType::I8;
        call.x = x;
        call.int8 = Some(Int8Call {
            ranges,
            scales,
            column_sums,
        });
        calls.push(Call::Linear(call));
        Ok(calls)
    }
}
