//! From a step of a plan to the calls that compute it on a GPU: which kernel or GEMM, with which addresses. Pure: nothing
//! here knows a device.

mod attention;
mod grid;
mod linear;
mod patch_extract;
mod pool;
mod rope;
mod tokens;
mod transpose;

use std::collections::HashMap;

pub(super) use self::attention::AttentionCall;
pub(super) use self::linear::{Float8Call, Float8Result, Int8Call, LinearCall, SparseForm, Unfused};
pub(super) use self::patch_extract::PatchEmbeddingCall;
#[cfg(test)]
pub(super) use self::rope::rotation;
use super::constants::FACTOR_ALIGNMENT;
use crate::exec::select::Problem;
use crate::graph::plan::{Operand, Plan, Step};
use crate::graph::{Graph, ValueId};
use crate::hip::Gemm;
use crate::kernels::{
    AddArgs, AttentionVariant, BiasActivationArgs, KernelCall, LayerNormArgs, NormQuantizeArgs, QuantizeArgs,
    SwiGluArgs, SwiGluNormArgs, Unit, attention_unit, has_int8_gemm, is_fused,
};
use crate::ops::{AllReduce, Op, Rounding};
use crate::tensor::DType;

/// One thing to submit. Addresses are the device's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Call {
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
}

impl Call {
    /// What there is to select for it.
    pub(super) fn problem(&self) -> Option<Problem> {
        match self {
            Self::Linear(call) => Some(call.shape().into()),
            Self::Patches(call) | Self::Projection(call) => Some(call.shape().into()),
            Self::Attention(call) => Some(call.shape().into()),
            Self::Kernel(_) | Self::Gemm { .. } | Self::CopyRows(_) | Self::AllReduce(_) => None,
        }
    }

    /// How its weight lies there, if it is a linear layer with a 2:4 sparse one.
    pub(super) fn sparse(&self) -> Option<SparseForm> {
        match self {
            Self::Linear(call) => call.sparse,
            _ => None,
        }
    }

    /// The same without MIOpen.
    pub(super) fn own(self) -> Result<Vec<Self>, String> {
        match self {
            Self::Patches(call) => one(call.extract),
            Self::Projection(call) => one(Self::Linear(call.linear)),
            Self::Attention(call) => call.own(),
            call => one(call),
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
pub(super) struct CopyRows {
    pub(super) from: u64,
    pub(super) from_stride: usize,
    pub(super) to: u64,
    pub(super) to_stride: usize,
    pub(super) bytes: usize,
    pub(super) rows: usize,
}

/// The sum of matrices `[rows, channels]`, with the bias and the residual that are added once; 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AllReduceCall {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bias: u64,
    pub(super) residual: u64,
    pub(super) rows: usize,
    pub(super) channels: usize,
    pub(super) dtype: DType,
}

impl AllReduceCall {
    /// Of each rank's part.
    pub(super) fn bytes(&self) -> usize {
        self.rows * self.channels * self.dtype.size()
    }

    /// What follows a sum without bias and residual, if anything does.
    pub(super) fn follows(&self) -> Result<Option<BiasActivationArgs>, String> {
        if self.bias == 0 && self.residual == 0 {
            return Ok(None);
        }
        let addresses = [self.to, self.bias, self.residual, self.to];
        BiasActivationArgs::new(addresses, [self.rows, self.channels], None).map(Some)
    }
}

/// Where everything lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses<'a> {
    pub(super) input: u64,
    pub(super) constants: &'a HashMap<ValueId, u64>,
    /// Where each step of FP8 lies, an f32, by its bits; then its reciprocal.
    pub(super) steps: &'a HashMap<u32, u64>,
    /// How the device encodes FP8, if it multiplies it.
    pub(super) float8: Option<DType>,
    /// The 2:4 sparse weights, if it can skip their zeros.
    pub(super) sparse: &'a HashMap<ValueId, SparseForm>,
    pub(super) arena: u64,
    /// For [`scratch_bytes`].
    pub(super) scratch: u64,
}

/// What linear layers in 8 bits need beside [`unit`].
pub(super) fn rounding_units(graph: &Graph, arch: &str) -> impl Iterator<Item = Unit> {
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

/// The kernel that `op` needs beside the libraries, if any.
pub(super) fn unit(op: &Op) -> Option<Unit> {
    Some(match op {
        Op::PatchExtract(_) => Unit::of("patch_extract"),
        Op::Tokens(_) => Unit::of("tokens"),
        Op::Add | Op::Scale | Op::Affine | Op::MulScalar(_) => Unit::of("add"),
        Op::GridPositions => Unit::of("grid_positions"),
        Op::GridMask => Unit::of("grid_mask"),
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => Unit::of("layer_norm"),
        Op::Linear(spec) if !linear::needs_kernel(spec) => return None,
        Op::Linear(_) | Op::Activation(_) => Unit::of("bias_activation"),
        Op::SwiGlu | Op::SwiGluNorm { .. } => Unit::of("swiglu"),
        Op::Rope(_) => Unit::of("rope"),
        Op::Attention(spec) => {
            let variant = if spec.bias {
                AttentionVariant::Bias
            } else {
                AttentionVariant::Plain
            };
            attention_unit(spec.head_dim, variant).unwrap_or(Unit::of("softmax"))
        }
        Op::Transpose(_) => Unit::of("transpose"),
        Op::AttentionStatistics(spec) => return attention_unit(spec.head_dim, AttentionVariant::Statistics),
        Op::Pool(_) => Unit::of("pool"),
        Op::AllReduce(spec) if spec.bias || spec.residual => Unit::of("bias_activation"),
        Op::AllReduce(_) => return None,
        Op::Normalize(_) | Op::PatchConv(_) | Op::Prepend | Op::ConcatChannels => return None,
    })
}

/// What attention needs beside [`unit`]: where it is not fused a softmax, and what adds a bias; where queries and keys are
/// rotated, the kernel that does that too.
pub(super) fn attention_units(graph: &Graph) -> impl Iterator<Item = Unit> {
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
pub(super) fn attention_is_unfused(plan: &Plan, step: &Step) -> bool {
    matches!(&plan.node(step).op, Op::Attention(spec) if attention::score_bytes(plan, step, spec) > 0)
}

/// The memory that some step needs beside the arena: a GEMM whose result goes through an activation before a residual
/// that lies where the result goes; what linear layers round to 8 bits, and sum; the scores of attention that is not fused.
pub(super) fn scratch_bytes(plan: &Plan) -> usize {
    let bytes = |step: &Step| match &plan.node(step).op {
        Op::Linear(spec) => linear::scratch_bytes(plan, step, spec),
        Op::Attention(spec) => attention::scratch_bytes(plan, step, spec),
        _ => 0,
    };
    plan.steps().iter().map(bytes).max().unwrap_or(0)
}

/// The operand's extents; those of an image and of constants are at batch 1.
fn shape_of(plan: &Plan, operand: Operand) -> &[usize] {
    let graph = plan.graph();
    match operand {
        Operand::Input if graph.takes_activations() => plan.input_shape(),
        Operand::Input => &graph.value(graph.input()).shape,
        Operand::Constant(id) => &graph.value(id).shape,
        Operand::Buffer(id) => &plan.buffer(id).shape,
    }
}

/// The calls that compute `step`, in order.
///
/// # Errors
///
/// What the GPU does not compute, or an extent beyond 32 bits.
pub(super) fn lower(plan: &Plan, step: &Step, addresses: Addresses<'_>) -> Result<Vec<Call>, String> {
    let s = Lowering::new(plan, step, addresses);
    match &plan.node(step).op {
        Op::PatchExtract(spec) => s.patch_extract(spec),
        Op::Tokens(spec) => s.tokens(*spec),
        Op::GridPositions => s.grid_positions(),
        Op::GridMask => s.grid_mask(),
        Op::Add => {
            let y = (s.address(1)?, rows(s.shape_of(1)?)?);
            one(AddArgs::new(
                [s.address(0)?, s.out],
                s.matrix()?,
                1.0,
                0,
                Some(y),
            )?)
        }
        Op::Scale => one(AddArgs::new(
            [s.address(0)?, s.out],
            s.matrix()?,
            1.0,
            s.address(1)?,
            None,
        )?),
        Op::Affine => one(AddArgs::new(
            [s.address(0)?, s.out],
            s.matrix()?,
            1.0,
            s.address(1)?,
            Some((s.address(2)?, 1)),
        )?),
        Op::MulScalar(factor) => one(AddArgs::new(
            [s.address(0)?, s.out],
            s.matrix()?,
            *factor,
            0,
            None,
        )?),
        Op::LayerNorm { epsilon } => {
            let addresses = [s.address(0)?, s.address(1)?, s.address(2)?, s.out];
            s.norm(LayerNormArgs::new(addresses, s.groups()?, *epsilon)?)
        }
        Op::RmsNorm { epsilon } => {
            let addresses = [s.address(0)?, s.address(1)?, s.out];
            s.norm(LayerNormArgs::rms(addresses, s.groups()?, *epsilon)?)
        }
        Op::Linear(spec) => s.linear(spec),
        Op::Activation(activation) => s.activation(*activation),
        Op::SwiGlu => {
            let arguments = SwiGluArgs::new([s.address(0)?, 0, s.out], s.matrix()?)?;
            one(s.float8().map_or(arguments, |step| arguments.to_float8(step)))
        }
        Op::SwiGluNorm { epsilon, padding } => {
            let addresses = [s.address(0)?, s.address(1)?, s.address(2)?, s.out];
            let arguments = SwiGluNormArgs::new(addresses, s.matrix()?, *epsilon)?.padded(*padding)?;
            one(s.float8().map_or(arguments, |step| arguments.to_float8(step)))
        }
        Op::Rope(spec) => s.rope(spec),
        Op::Attention(spec) => s.attention(spec),
        Op::Transpose(spec) => s.transpose(*spec),
        Op::AttentionStatistics(spec) => s.attention_statistics(spec),
        Op::Pool(spec) => s.pool(*spec),
        Op::ConcatChannels => s.concat_channels(),
        Op::AllReduce(spec) => s.all_reduce(*spec),
        Op::Normalize(_) | Op::PatchConv(_) | Op::Prepend => {
            Err("is not computed on a GPU as it is; the passes of `optimize` make it another op".into())
        }
    }
}

fn one(call: impl Into<Call>) -> Result<Vec<Call>, String> {
    Ok(vec![call.into()])
}

struct Lowering<'a> {
    plan: &'a Plan,
    step: &'a Step,
    addresses: Addresses<'a>,
    out: u64,
    shape: &'a [usize],
}

impl<'a> Lowering<'a> {
    fn new(plan: &'a Plan, step: &'a Step, addresses: Addresses<'a>) -> Self {
        let output = plan.buffer(step.output);
        Self {
            plan,
            step,
            addresses,
            out: addresses.arena + output.offset as u64,
            shape: &output.shape,
        }
    }

    fn operand(&self, index: usize) -> Result<Operand, String> {
        let operand = self.step.inputs.get(index).copied();
        operand.ok_or_else(|| format!("its operand {index} is missing"))
    }

    fn shape_of(&self, index: usize) -> Result<&'a [usize], String> {
        Ok(shape_of(self.plan, self.operand(index)?))
    }

    /// Where an operand of the plan's dtype lies.
    fn address(&self, index: usize) -> Result<u64, String> {
        match self.operand(index)? {
            Operand::Input if self.plan.graph().takes_activations() => Ok(self.addresses.input),
            Operand::Input => Err("reads the image, which only patch_extract does on a GPU".into()),
            Operand::Constant(id) => self.constant(id),
            Operand::Buffer(id) => Ok(self.addresses.arena + self.plan.buffer(id).offset as u64),
        }
    }

    /// Where a step of FP8 and its reciprocal lie.
    fn step_of_float8(&self, step: f32) -> Result<[u64; 2], String> {
        let address = self.addresses.steps.get(&step.to_bits()).copied();
        let address = address.ok_or("the plan is of another graph than the executor")?;
        Ok([address, address + FACTOR_ALIGNMENT as u64])
    }

    fn constant(&self, id: ValueId) -> Result<u64, String> {
        let address = self.addresses.constants.get(&id).copied();
        address.ok_or_else(|| "the plan is of another graph than the executor".into())
    }

    /// The sum, in place where the plan has it so, with bias and residual.
    fn all_reduce(&self, spec: AllReduce) -> Result<Vec<Call>, String> {
        let [rows, channels] = self.matrix()?;
        let residual = if spec.residual {
            self.address(1 + usize::from(spec.bias))?
        } else {
            0
        };
        Ok(vec![Call::AllReduce(AllReduceCall {
            from: self.address(0)?,
            to: self.out,
            bias: if spec.bias { self.address(1)? } else { 0 },
            residual,
            rows,
            channels,
            dtype: self.plan.dtype(),
        })])
    }

    /// The norm as its result is stored.
    fn norm(&self, norm: LayerNormArgs) -> Result<Vec<Call>, String> {
        let result = self.plan.buffer(self.step.output);
        let Some(scales) = result.row_scales() else {
            return one(self.float8().map_or(norm, |step| norm.to_float8(step)));
        };
        let addresses = [0, self.out, self.out + scales as u64];
        let quantize = match result.rounding {
            Some(Rounding::Int8(levels)) => QuantizeArgs::int8(addresses, self.matrix()?, levels)?,
            _ => QuantizeArgs::float8_rows(addresses, self.matrix()?)?,
        };
        one(NormQuantizeArgs::new(LayerNormArgs { out: 0, ..norm }, quantize))
    }

    /// The step of the result in FP8, if that is how it is stored.
    fn float8(&self) -> Option<f32> {
        self.plan.buffer(self.step.output).float8()
    }

    fn element(&self) -> usize {
        self.plan.dtype().size()
    }

    /// The result as a matrix: rows and channels.
    fn matrix(&self) -> Result<[usize; 2], String> {
        let channels = self.shape.last().ok_or("its result is a scalar")?;
        Ok([rows(self.shape)?, *channels])
    }

    /// The result as rows of the channels that are normalised together, which are as many as the weight's.
    fn groups(&self) -> Result<[usize; 2], String> {
        let elements: usize = self.shape.iter().product();
        match *self.shape_of(1)? {
            [channels] if channels > 0 => Ok([elements / channels, channels]),
            ref shape => Err(format!("its weight has shape {shape:?}, expected [D]")),
        }
    }
}

/// Rows of a tensor whose last extent is a row.
fn rows(shape: &[usize]) -> Result<usize, String> {
    let (_, outer) = shape.split_last().ok_or("an operand is a scalar")?;
    Ok(outer.iter().product())
}
