//! From a step of a plan to the calls that compute it on a GPU: which kernel or GEMM, with which addresses. Pure: nothing
//! here knows a device.

use std::collections::HashMap;

use hipvit_graph::for_each_op;
use hipvit_graph::op::{
    ActivationBackward, AttentionBackward, ExpandAs, LayerNormBackward, MatMul, Mul, Normalize, Op, OpError,
    PatchConv, PatchExtractBackward, PoolBackward, Prepend, RmsNormBackward, Rounding, Slice, SumToSize,
    SwiGluBackward,
};

pub(crate) use super::attention::lower::AttentionCall;
use super::attention::lower::score_bytes;
use super::attention::{Variant as AttentionVariant, is_fused, unit as attention_unit};
use super::bindings::BiasActivationArgs;
pub(crate) use super::custom::CustomCall;
pub(crate) use super::linear::{Float8Call, Float8Result, Int8Call, LinearCall, SparseForm, Unfused};
pub(crate) use super::patch_extract::PatchEmbeddingCall;
#[cfg(test)]
pub(crate) use super::rope::rotation;
use super::{KernelCall, Unit, has_int8_gemm};
use crate::graph::plan::{Operand, Plan, Step};
use crate::graph::{Graph, ValueId};
use crate::hip::{self, Gemm};
use crate::tensor::DType;

/// Alignment of a scale of FP8: with 8 bytes cuBLASLt 13 refuses GEMMs (NOT_SUPPORTED).
pub(crate) const FACTOR_ALIGNMENT: usize = 16;

/// An op that a GPU computes.
pub(crate) trait Lower {
    /// The kernel that the op needs beside the libraries, if any.
    fn unit(&self) -> Option<Unit> {
        None
    }

    /// The calls that compute a step, in order.
    ///
    /// # Errors
    ///
    /// [`OpError`] for what the GPU does not compute, and for an extent beyond 32 bits.
    fn lower(&self, _step: &Lowering<'_>) -> Result<Vec<Call>, OpError> {
        Err("is not computed on a GPU as it is; the passes of `optimize` make it another op".into())
    }

    /// Bytes that a step needs beside the arena.
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
            fn lower(&self, _step: &Lowering<'_>) -> Result<Vec<Call>, OpError> {
                Err("is part of a backward pass, which no GPU computes yet. Use the CPU".into())
            }
        })*
    };
}
not_yet!(
    ActivationBackward,
    AttentionBackward,
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

            fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, OpError> {
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

/// One thing to submit. Addresses are the device's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Kernel(KernelCall),
    Gemm {
        gemm: Gemm,
        a: u64,
        b: u64,
        c: u64,
    },
    Linear(LinearCall),
    /// The first of a patch embedding's two steps.
    Patches(PatchEmbeddingCall),
    /// The second.
    Projection(PatchEmbeddingCall),
    Attention(AttentionCall),
    CopyRows(CopyRows),
    /// The sum over all ranks of a tensor-parallel model.
    AllReduce(AllReduceCall),
    /// A kernel of an op that another crate defines.
    Custom(Box<CustomCall>),
}

impl Call {
    /// How its weight lies there, if it is a linear layer with a 2:4 sparse one.
    pub(crate) fn sparse(&self) -> Option<SparseForm> {
        match self {
            Self::Linear(call) => call.sparse,
            _ => None,
        }
    }

    /// The same without MIOpen.
    pub(crate) fn own(&self) -> Result<Vec<Self>, OpError> {
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

/// `rows` rows of `bytes` each, strides in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyRows {
    pub(crate) from: u64,
    pub(crate) from_stride: usize,
    pub(crate) to: u64,
    pub(crate) to_stride: usize,
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
}

/// The sum of matrices `[rows, channels]`, with the bias and the residual that are added once; 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllReduceCall {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) bias: u64,
    pub(crate) residual: u64,
    pub(crate) rows: usize,
    pub(crate) channels: usize,
    pub(crate) dtype: DType,
}

impl AllReduceCall {
    /// Of each rank's part.
    pub(crate) fn bytes(&self) -> usize {
        self.rows * self.channels * self.dtype.size()
    }

    /// What follows a sum without bias and residual, if anything does.
    pub(crate) fn follows(&self) -> Result<Option<BiasActivationArgs>, String> {
        if self.bias == 0 && self.residual == 0 {
            return Ok(None);
        }
        let addresses = [self.to, self.bias, self.residual, self.to];
        BiasActivationArgs::new(addresses, [self.rows, self.channels], None).map(Some)
    }
}

/// Where everything lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses<'a> {
    pub(crate) input: u64,
    pub(crate) constants: &'a HashMap<ValueId, u64>,
    /// Where each step of FP8 lies, an f32, by its bits; then its reciprocal.
    pub(crate) steps: &'a HashMap<u32, u64>,
    /// How the device encodes FP8, if it multiplies it.
    pub(crate) float8: Option<hip::DType>,
    /// The 2:4 sparse weights, if it can skip their zeros.
    pub(crate) sparse: &'a HashMap<ValueId, SparseForm>,
    pub(crate) arena: u64,
    /// For [`scratch_bytes`].
    pub(crate) scratch: u64,
}

/// What linear layers in 8 bits, and attention in FP8, need beside [`Lower::unit`].
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

/// What attention needs beside [`Lower::unit`]: where it is not fused a softmax, and what adds a bias; where queries and keys are
/// rotated, the kernel that does that too.
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
    unfused.chain(rotating)
}

/// Whether the step is attention that takes GEMMs of rocBLAS.
pub(crate) fn attention_is_unfused(plan: &Plan, step: &Step) -> bool {
    matches!(&plan.node(step).op, Op::Attention(spec) if score_bytes(plan, step, spec) > 0)
}

/// The memory that some step needs beside the arena: a GEMM whose result goes through an activation before a residual
/// that lies where the result goes; what linear layers round to 8 bits, and sum; the scores of attention that is not fused.
pub(crate) fn scratch_bytes(plan: &Plan) -> usize {
    let bytes = |step: &Step| plan.node(step).op.scratch_bytes(plan, step);
    plan.steps().iter().map(bytes).max().unwrap_or(0)
}

/// The operand's extents; those of an image and of constants are at batch 1.
pub(super) fn shape_of(plan: &Plan, operand: Operand) -> &[usize] {
    let graph = plan.graph();
    match operand {
        Operand::Input if graph.takes_activations() => plan.input_shape(),
        Operand::Input => &graph.value(graph.input()).shape,
        Operand::Constant(id) | Operand::State(id) => &graph.value(id).shape,
        Operand::Buffer(id) => &plan.buffer(id).shape,
    }
}

/// The calls that compute `step`, in order.
///
/// # Errors
///
/// What the GPU does not compute, or an extent beyond 32 bits.
pub(crate) fn lower(plan: &Plan, step: &Step, addresses: Addresses<'_>) -> Result<Vec<Call>, OpError> {
    plan.node(step).op.lower(&Lowering::new(plan, step, addresses))
}

pub(super) fn one(call: impl Into<Call>) -> Result<Vec<Call>, OpError> {
    Ok(vec![call.into()])
}

/// A step that is lowered.
pub(crate) struct Lowering<'a> {
    pub(super) plan: &'a Plan,
    pub(super) step: &'a Step,
    pub(super) addresses: Addresses<'a>,
    /// Where the first result goes.
    pub(super) out: u64,
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
            out: addresses.arena + output.offset as u64,
            shape: &output.shape,
        }
    }

    /// Where result `index` goes.
    pub(super) fn result(&self, index: usize) -> Result<u64, OpError> {
        let id = self.step.outputs.get(index).ok_or("has no such result")?;
        Ok(self.addresses.arena + self.plan.buffer(*id).offset as u64)
    }

    pub(super) fn operand(&self, index: usize) -> Result<Operand, OpError> {
        let operand = self.step.inputs.get(index).copied();
        operand.ok_or_else(|| format!("its operand {index} is missing").into())
    }

    pub(super) fn shape_of(&self, index: usize) -> Result<&'a [usize], OpError> {
        Ok(shape_of(self.plan, self.operand(index)?))
    }

    /// Where an operand of the plan's dtype lies.
    pub(super) fn address(&self, index: usize) -> Result<u64, OpError> {
        match self.operand(index)? {
            Operand::Input if self.plan.graph().takes_activations() => Ok(self.addresses.input),
            Operand::Input => Err("reads the image, which only patch_extract does on a GPU".into()),
            Operand::Constant(id) => self.constant(id),
            Operand::State(_) => Err("reads a parameter or state, which only the CPU keeps".into()),
            Operand::Buffer(id) => Ok(self.addresses.arena + self.plan.buffer(id).offset as u64),
        }
    }

    /// Where a step of FP8 and its reciprocal lie.
    pub(super) fn step_of_float8(&self, step: f32) -> Result<[u64; 2], OpError> {
        let address = self.addresses.steps.get(&step.to_bits()).copied();
        let address = address.ok_or("the plan is of another graph than the executor")?;
        Ok([address, address + FACTOR_ALIGNMENT as u64])
    }

    pub(super) fn constant(&self, id: ValueId) -> Result<u64, OpError> {
        let address = self.addresses.constants.get(&id).copied();
        address.ok_or_else(|| "the plan is of another graph than the executor".into())
    }

    /// The step of the result in FP8, if that is how it is stored.
    pub(super) fn float8(&self) -> Option<f32> {
        self.plan.buffer(self.step.output()).float8()
    }

    pub(super) fn element(&self) -> usize {
        self.plan.dtype().size()
    }

    /// The result as a matrix: rows and channels.
    pub(super) fn matrix(&self) -> Result<[usize; 2], OpError> {
        let channels = self.shape.last().ok_or("its result is a scalar")?;
        Ok([rows(self.shape)?, *channels])
    }
}

/// Rows of a tensor whose last extent is a row.
pub(super) fn rows(shape: &[usize]) -> Result<usize, OpError> {
    let (_, outer) = shape.split_last().ok_or("an operand is a scalar")?;
    Ok(outer.iter().product())
}
