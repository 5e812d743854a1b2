//! Lowering of a plan's step to the calls that compute it on a GPU: kernels or GEMMs with their addresses. Pure functions, independent of a
//! device.

use std::collections::HashMap;

use hipvit_graph::for_each_op;
use hipvit_graph::op::{
    ActivationBackward, ExpandAs, LayerNormBackward, MatMul, Mul, Normalize, Op, PatchConv,
    PatchExtractBackward, PoolBackward, Prepend, RmsNormBackward, Rounding, Slice, SumToSize, SwiGluBackward,
};

pub(crate) use super::attention::lower::AttentionCall;
use super::attention::lower::score_bytes;
use super::attention::{Variant as AttentionVariant, is_fused, unit as attention_unit};
use super::attention_backward::lower::more_units;
use super::bindings::BiasActivationArgs;
pub(crate) use super::custom::CustomCall;
pub(crate) use super::linear::{Float8Call, Float8Result, Int8Call, LinearCall, SparseForm, Unfused};
pub(crate) use super::patch_extract::PatchEmbeddingCall;
#[cfg(test)]
pub(crate) use super::rope::rotation;
use super::{KernelCall, KernelError, Unit, has_int8_gemm};
use crate::graph::plan::{Operand, Plan, Step};
use crate::graph::{Graph, ValueId};
use crate::hip::{self, DeviceAddress, Gemm};
use crate::tensor::DType;

/// Alignment of FP8 scales. With 8 bytes, cuBLASLt 13 rejects GEMMs (NOT_SUPPORTED).
pub(crate) const FACTOR_ALIGNMENT: usize = 16;

/// An op that a GPU can compute.
pub(crate) trait Lower {
    /// The kernel that the op needs besides the libraries, if any.
    fn unit(&self) -> Option<Unit> {
        None
    }

    /// Returns the calls that compute a step, in order.
    ///
    /// # Errors
    ///
    /// [`KernelError`] if the GPU does not support the op, or an extent exceeds 32 bits.
    fn lower(&self, _step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        let reason = "is not computed on a GPU as it is; the passes of `optimize` make it another op";
        Err(KernelError::unsupported(reason))
    }

    /// Bytes that a step needs outside the arena.
    fn scratch_bytes(&self, _plan: &Plan, _step: &Step) -> usize {
        0
    }
}

impl Lower for Normalize {}
impl Lower for PatchConv {}
impl Lower for Prepend {}

macro_rules! not_yet {
    ($($Op:ident),* $(,)?) => {
        $(impl Lower for $Op {
            fn lower(&self, _step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
                let reason = "is part of a backward pass, which no GPU computes yet. Use the CPU";
                Err(KernelError::unsupported(reason))
            }
        })*
    };
}
not_yet!(
    ActivationBackward,
    ExpandAs,
    LayerNormBackward,
    MatMul,
    Mul,
    PatchExtractBackward,
    PoolBackward,
    RmsNormBackward,
    Slice,
    SumToSize,
    SwiGluBackward
);

macro_rules! dispatch {
    ($($module:ident: $Op:ident,)*) => {
        impl Lower for Op {
            fn unit(&self) -> Option<Unit> {
                match self {
                    $(Self::$Op(op) => op.unit(),)*
                }
            }

            fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
                match self {
                    $(Self::$Op(op) => op.lower(step),)*
                }
            }

            fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
                match self {
                    $(Self::$Op(op) => op.scratch_bytes(plan, step),)*
                }
            }
        }
    };
}
for_each_op!(dispatch);

/// A unit of submission. Addresses are those of the device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Kernel(KernelCall),
    Gemm {
        gemm: Gemm,
        a: DeviceAddress,
        b: DeviceAddress,
        c: DeviceAddress,
    },
    Linear(LinearCall),
    /// First of the two steps of a patch embedding.
    Patches(PatchEmbeddingCall),
    /// Second step of a patch embedding.
    Projection(PatchEmbeddingCall),
    Attention(AttentionCall),
    CopyRows(CopyRows),
    /// All-reduce of a tensor-parallel model.
    AllReduce(AllReduceCall),
    /// A kernel of an op that another crate defines.
    Custom(Box<CustomCall>),
}

impl Call {
    /// Returns the form of the weight, if this is a linear layer with a 2:4 sparse weight.
    pub(crate) fn sparse(&self) -> Option<SparseForm> {
        match self {
            Self::Linear(call) => call.sparse,
            _ => None,
        }
    }

    /// Replaces MIOpen's part of the call by builtin kernels.
    pub(crate) fn own(&self) -> Result<Vec<Self>, KernelError> {
        match self {
            Self::Patches(call) => one(call.extract),
            Self::Projection(call) => one(Self::Linear(call.linear)),
            Self::Attention(call) => call.own(),
            call => one(call.clone()),
        }
    }
}

impl<K: Into<KernelCall>> From<K> for Call {
    fn from(kernel: K) -> Self {
        Self::Kernel(kernel.into())
    }
}

/// Copy of `rows` rows of `bytes` bytes each. Strides are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRows {
    pub(crate) from: DeviceAddress,
    pub(crate) from_stride: usize,
    pub(crate) to: DeviceAddress,
    pub(crate) to_stride: usize,
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
}

/// All-reduce of matrices `[rows, channels]`, with bias and residual, which are added once. Null if absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllReduceCall {
    pub(crate) from: DeviceAddress,
    pub(crate) to: DeviceAddress,
    pub(crate) bias: DeviceAddress,
    pub(crate) residual: DeviceAddress,
    pub(crate) rows: usize,
    pub(crate) channels: usize,
    pub(crate) dtype: DType,
}

impl AllReduceCall {
    /// Bytes of one rank's summand.
    pub(crate) fn bytes(&self) -> usize {
        self.rows * self.channels * self.dtype.size()
    }

    /// Returns the kernel after a sum without bias and residual, if they exist.
    pub(crate) fn follows(&self) -> Result<Option<BiasActivationArgs>, KernelError> {
        if self.bias.is_null() && self.residual.is_null() {
            return Ok(None);
        }
        let addresses = [self.to, self.bias, self.residual, self.to];
        BiasActivationArgs::new(addresses, [self.rows, self.channels], None).map(Some)
    }
}

/// Addresses of all operands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses<'a> {
    pub(crate) input: DeviceAddress,
    pub(crate) constants: &'a HashMap<ValueId, DeviceAddress>,
    /// Address of each FP8 scale by its bits: an f32, followed by its reciprocal.
    pub(crate) steps: &'a HashMap<u32, DeviceAddress>,
    /// FP8 encoding of the device, if it has FP8 GEMMs.
    pub(crate) float8: Option<hip::DType>,
    /// 2:4 sparse weights whose zeros the device can skip.
    pub(crate) sparse: &'a HashMap<ValueId, SparseForm>,
    pub(crate) arena: DeviceAddress,
    /// Memory of [`scratch_bytes`].
    pub(crate) scratch: DeviceAddress,
}

/// Returns the units that 8-bit linear layers and FP8 attention need besides [`Lower::unit`].
pub(crate) fn rounding_units(graph: &Graph, arch: &str) -> impl Iterator<Item = Unit> {
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
        ("int8_gemm", int8 && has_int8_gemm(arch)),
    ];
    let needed = kernels.into_iter().filter(|&(_, needed)| needed);
    needed.map(|(kernel, _)| Unit::of(kernel))
}

/// Returns the units that attention needs besides [`Lower::unit`]: a softmax and a bias kernel for unfused attention, the kernel with
/// rotation for rotated queries and keys, and the kernels before its derivative.
pub(crate) fn attention_units(graph: &Graph) -> impl Iterator<Item = Unit> {
    let fuses = graph.optimizations().fused_attention;
    let unfused_bias = graph.nodes().iter().any(|node| match &node.op {
        Op::Attention(spec) => spec.bias && !(fuses && is_fused(spec)),
        _ => false,
    });
    let softmax = (!fuses).then(|| Unit::of("softmax"));
    let heads = graph.nodes().iter().filter_map(|node| match &node.op {
        Op::Rope(spec) => Some(spec.head_dim),
        _ => None,
    });
    let rotating = heads.filter_map(|head_dim| attention_unit(head_dim, AttentionVariant::Rope));
    let rotating = rotating.filter(move |_| fuses);
    let unfused = softmax.into_iter().chain(unfused_bias.then(|| Unit::of("add")));
    let backward = graph.nodes().iter().filter_map(|node| match &node.op {
        Op::AttentionBackward(op) => Some(more_units(op)),
        _ => None,
    });
    unfused.chain(rotating).chain(backward.flatten())
}

/// Returns true if the step is attention by rocBLAS GEMMs.
pub(crate) fn attention_is_unfused(plan: &Plan, step: &Step) -> bool {
    matches!(&plan.node(step).op, Op::Attention(spec) if score_bytes(plan, step, spec) > 0)
}

/// Returns the maximum bytes that a step needs outside the arena. A GEMM before an activation and an in-place residual needs some, as do
/// the 8-bit operands and sums of linear layers and the scores of unfused attention.
pub(crate) fn scratch_bytes(plan: &Plan) -> usize {
    let bytes = |step: &Step| plan.node(step).op.scratch_bytes(plan, step);
    plan.steps().iter().map(bytes).max().unwrap_or(0)
}

/// Returns the operand's extents, at batch 1 for images and constants.
pub(super) fn shape_of(plan: &Plan, operand: Operand) -> &[usize] {
    let graph = plan.graph();
    match operand {
        Operand::Input if graph.takes_activations() => plan.input_shape(),
        Operand::Input => &graph.value(graph.input()).shape,
        Operand::Constant(id) | Operand::State(id) => &graph.value(id).shape,
        Operand::Buffer(id) => &plan.buffer(id).shape,
    }
}

/// Returns the calls that compute `step`, in order.
///
/// # Errors
///
/// The GPU does not support the step, or an extent exceeds 32 bits.
pub(crate) fn lower(plan: &Plan, step: &Step, addresses: Addresses<'_>) -> Result<Vec<Call>, KernelError> {
    plan.node(step).op.lower(&Lowering::new(plan, step, addresses))
}

pub(super) fn one(call: impl Into<Call>) -> Result<Vec<Call>, KernelError> {
    Ok(vec![call.into()])
}

/// A step that is being lowered.
pub(crate) struct Lowering<'a> {
    pub(super) plan: &'a Plan,
    pub(super) step: &'a Step,
    pub(super) addresses: Addresses<'a>,
    /// Address of the first result.
    pub(super) out: DeviceAddress,
    /// Extents of the first result.
    pub(super) shape: &'a [usize],
}

impl<'a> Lowering<'a> {
    pub(super) fn new(plan: &'a Plan, step: &'a Step, addresses: Addresses<'a>) -> Self {
        let output = plan.buffer(step.output());
        Self {
            plan,
            step,
            addresses,
            out: addresses.arena.offset(output.offset),
            shape: &output.shape,
        }
    }

    /// Returns the address of result `index`.
    pub(super) fn result(&self, index: usize) -> Result<DeviceAddress, KernelError> {
        let id = self.step.outputs.get(index);
        let id = id.ok_or_else(|| KernelError::internal("has no such result"))?;
        Ok(self.addresses.arena.offset(self.plan.buffer(*id).offset))
    }

    pub(super) fn operand(&self, index: usize) -> Result<Operand, KernelError> {
        let operand = self.step.inputs.get(index).copied();
        operand.ok_or_else(|| format!("its operand {index} is missing").into())
    }

    pub(super) fn shape_of(&self, index: usize) -> Result<&'a [usize], KernelError> {
        Ok(shape_of(self.plan, self.operand(index)?))
    }

    /// Returns the address of an operand in the plan's dtype.
    pub(super) fn address(&self, index: usize) -> Result<DeviceAddress, KernelError> {
        match self.operand(index)? {
            Operand::Input if self.plan.graph().takes_activations() => Ok(self.addresses.input),
            Operand::Input => {
                let reason = "reads the image, which only patch_extract does on a GPU";
                Err(KernelError::unsupported(reason))
            }
            Operand::Constant(id) => self.constant(id),
            Operand::State(_) => {
                let reason = "reads a parameter or state, which only the CPU keeps";
                Err(KernelError::unsupported(reason))
            }
            Operand::Buffer(id) => Ok(self.addresses.arena.offset(self.plan.buffer(id).offset)),
        }
    }

    /// Returns the addresses of an FP8 scale and its reciprocal.
    pub(super) fn step_of_float8(&self, step: f32) -> Result<[DeviceAddress; 2], KernelError> {
        let address = self.addresses.steps.get(&step.to_bits()).copied();
        let address = address.ok_or("the plan is of another graph than the executor")?;
        Ok([address, address.offset(FACTOR_ALIGNMENT)])
    }

    pub(super) fn constant(&self, id: ValueId) -> Result<DeviceAddress, KernelError> {
        let address = self.addresses.constants.get(&id).copied();
        address.ok_or_else(|| "the plan is of another graph than the executor".into())
    }

    /// Returns the FP8 scale of the result. `None` if it is not stored in FP8.
    pub(super) fn float8(&self) -> Option<f32> {
        self.plan.buffer(self.step.output()).float8()
    }

    pub(super) fn element(&self) -> usize {
        self.plan.dtype().size()
    }

    /// Returns the result as a matrix: rows and channels.
    pub(super) fn matrix(&self) -> Result<[usize; 2], KernelError> {
        let channels = self.shape.last().ok_or("its result is a scalar")?;
        Ok([rows(self.shape)?, *channels])
    }
}

/// Returns the number of rows of a tensor, whose last extent is a row.
pub(super) fn rows(shape: &[usize]) -> Result<usize, KernelError> {
    let (_, outer) = shape.split_last().ok_or("an operand is a scalar")?;
    Ok(outer.iter().product())
}
