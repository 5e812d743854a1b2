//! From a step of a plan to the calls that compute it on a GPU: which kernel or product, with which addresses. Pure:
//! nothing here knows a device.

use std::collections::HashMap;

use crate::graph::ValueId;
use crate::graph::plan::{Operand, Plan, Step};
use crate::hip::kernels::PatchExtractChwArgs;
use crate::hip::{Gemm, Matrix};
use crate::ops::launch::arguments::{
    AddArgs, AttentionArgs, BiasActivationArgs, LayerNormArgs, PatchExtractArgs, PoolArgs, SoftmaxArgs,
    SwiGluArgs, TokensArgs, Visibility,
};
use crate::ops::launch::attention::{UNBOUNDED, entry_dim};
use crate::ops::launch::elementwise::{activation_code, pool_mode};
use crate::ops::{Activation, Attention, AttentionOperands, Linear, Op, PatchExtract, PixelLayout, Pool};

/// One thing to submit. Addresses are the device's.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Call {
    PatchExtract(PatchExtractArgs),
    PatchExtractChw(PatchExtractChwArgs),
    Tokens(TokensArgs),
    Add(AddArgs),
    LayerNorm(LayerNormArgs),
    BiasActivation(BiasActivationArgs),
    SwiGlu(SwiGluArgs),
    Attention(AttentionArgs),
    Softmax(SoftmaxArgs),
    Pool(PoolArgs),
    Gemm { gemm: Gemm, a: u64, b: u64, c: u64 },
    CopyRows(CopyRows),
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

/// Where everything lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses<'a> {
    pub(super) input: u64,
    pub(super) constants: &'a HashMap<ValueId, u64>,
    pub(super) arena: u64,
    /// For [`scratch_bytes`].
    pub(super) scratch: u64,
}

/// The kernel file that `op` needs beside the libraries, if any.
pub(super) fn kernel_file(op: &Op) -> Option<&'static str> {
    Some(match op {
        Op::PatchExtract(_) => "patch_extract",
        Op::Tokens(_) => "tokens",
        Op::Add | Op::Scale | Op::MulScalar(_) => "add",
        Op::LayerNorm { .. } => "layer_norm",
        Op::Linear(_) | Op::Activation(_) => "bias_activation",
        Op::SwiGlu => "swiglu",
        Op::Attention(spec) if is_fused(spec) => "attention",
        Op::Attention(_) => "softmax",
        Op::Pool(_) => "pool",
        Op::Normalize(_) | Op::PatchConv(_) | Op::Prepend | Op::ConcatChannels => return None,
    })
}

/// The memory that some step needs beside the arena: a product that goes through an activation before a residual that
/// lies where the result goes; the scores of attention that is not fused.
pub(super) fn scratch_bytes(plan: &Plan) -> usize {
    let bytes = |step: &Step| {
        let output = plan.buffer(step.output);
        match &plan.node(step).op {
            Op::Linear(Linear { activation, .. }) if activation.is_some() && step.in_place.is_some() => {
                output.bytes
            }
            Op::Attention(spec) if !is_fused(spec) => {
                let queries: usize =
                    output.shape.iter().product::<usize>() / (spec.heads * spec.head_dim).max(1);
                let keys = match spec.operands {
                    AttentionOperands::PackedQkv => step.inputs.first(),
                    AttentionOperands::PackedKv | AttentionOperands::Separate => step.inputs.get(1),
                };
                let keys = keys.map_or(1, |&keys| match shape_of(plan, keys) {
                    [_, tokens, _] => *tokens,
                    _ => 1,
                });
                spec.heads * queries * keys * plan.dtype().size()
            }
            _ => 0,
        }
    };
    plan.steps().iter().map(bytes).max().unwrap_or(0)
}

/// Whether there is a fused kernel for heads of this size. Where there is none, attention is two products and a softmax.
fn is_fused(spec: &Attention) -> bool {
    u32::try_from(spec.head_dim).is_ok_and(|d| entry_dim(d).is_some())
}

/// The operand's extents; those of the input and of constants are at batch 1.
fn shape_of(plan: &Plan, operand: Operand) -> &[usize] {
    let graph = plan.graph();
    match operand {
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
    let s = Lowering {
        plan,
        step,
        addresses,
        out: addresses.arena + plan.buffer(step.output).offset as u64,
        shape: &plan.buffer(step.output).shape,
    };
    let last = step.inputs.len().saturating_sub(1);
    let one = |call| Ok(vec![call]);
    match &plan.node(step).op {
        Op::PatchExtract(spec) => one(s.patch_extract(spec)?),
        Op::Tokens(spec) => {
            let &[_, tokens, channels] = s.shape_of(0)? else {
                return Err("takes tokens".into());
            };
            let prefixes = match spec.prefix {
                true => s.rows(s.shape_of(1)?)?,
                false => 0,
            };
            one(Call::Tokens(TokensArgs {
                x: s.address(0)?,
                prefix: if spec.prefix { s.address(1)? } else { 0 },
                position: if spec.position { s.address(last)? } else { 0 },
                out: s.out,
                images: int(s.shape[0])?,
                tokens: int(tokens)?,
                prefixes,
                channels: int(channels)?,
            }))
        }
        Op::Add => one(s.add(0, Some(1), 1.0)?),
        Op::Scale => one(s.add(s.address(1)?, None, 1.0)?),
        Op::MulScalar(factor) => one(s.add(0, None, *factor)?),
        Op::LayerNorm { epsilon } => one(Call::LayerNorm(LayerNormArgs {
            x: s.address(0)?,
            residual: 0,
            weight: s.address(1)?,
            bias: s.address(2)?,
            sum: 0,
            out: s.out,
            rows: s.rows(s.shape)?,
            channels: s.channels()?,
            epsilon: *epsilon,
            whole_block: 0,
        })),
        Op::Linear(spec) => s.linear(spec),
        Op::Activation(activation) => one(s.bias_activation(s.address(0)?, 0, Some(*activation), 0)?),
        Op::SwiGlu => one(Call::SwiGlu(SwiGluArgs {
            x: s.address(0)?,
            bias: 0,
            out: s.out,
            rows: s.rows(s.shape)?,
            channels: s.channels()?,
        })),
        Op::Attention(spec) if is_fused(spec) => one(Call::Attention(s.attention(spec)?)),
        Op::Attention(spec) => s.attention_by_products(spec),
        Op::Pool(spec) => {
            let &[images, tokens, channels] = s.shape_of(0)? else {
                return Err("takes tokens".into());
            };
            let (mode, first) = match *spec {
                Pool::Token(index) => (pool_mode::TOKEN, index),
                Pool::Mean { skip } => (pool_mode::MEAN, skip),
                Pool::Max { skip } => (pool_mode::MAX, skip),
            };
            one(Call::Pool(PoolArgs {
                x: s.address(0)?,
                out: s.out,
                images: int(images)?,
                tokens: int(tokens)?,
                channels: int(channels)?,
                mode,
                first: int(first)?,
                reserved: 0,
            }))
        }
        Op::ConcatChannels => s.concat(),
        Op::Normalize(_) | Op::PatchConv(_) | Op::Prepend => {
            Err("is not computed on a GPU as it is; the passes of `optimize` make it another op".into())
        }
    }
}

struct Lowering<'a> {
    plan: &'a Plan,
    step: &'a Step,
    addresses: Addresses<'a>,
    out: u64,
    shape: &'a [usize],
}

impl<'a> Lowering<'a> {
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
            Operand::Input => Err("reads the image, which only patch_extract does on a GPU".into()),
            Operand::Constant(id) => self.constant(id),
            Operand::Buffer(id) => Ok(self.addresses.arena + self.plan.buffer(id).offset as u64),
        }
    }

    fn constant(&self, id: ValueId) -> Result<u64, String> {
        let address = self.addresses.constants.get(&id).copied();
        address.ok_or_else(|| "the plan is of another graph than the executor".into())
    }

    fn element(&self) -> usize {
        self.plan.dtype().size()
    }

    /// Rows of a tensor whose last extent is a row.
    fn rows(&self, shape: &[usize]) -> Result<u32, String> {
        let (_, outer) = shape.split_last().ok_or("an operand is a scalar")?;
        int(outer.iter().product())
    }

    /// Channels of the result.
    fn channels(&self) -> Result<u32, String> {
        int(*self.shape.last().ok_or("its result is a scalar")?)
    }

    fn patch_extract(&self, spec: &PatchExtract) -> Result<Call, String> {
        if self.operand(0)? != Operand::Input {
            return Err("takes the image that is given, not one that is computed".into());
        }
        let (height, width) = match (spec.layout, self.shape_of(0)?) {
            (PixelLayout::Hwc, &[_, h, w, _]) | (PixelLayout::Chw, &[_, _, h, w]) => (h, w),
            (_, shape) => return Err(format!("takes images, not {shape:?}")),
        };
        let (scale, shift) = spec
            .normalize
            .map_or(([1.0; 3], [0.0; 3]), |n| (n.scale, n.shift));
        let arguments = PatchExtractArgs {
            pixels: self.addresses.input,
            out: self.out,
            scale,
            shift,
            images: int(self.plan.batch())?,
            height: int(height)?,
            width: int(width)?,
            patch_height: int(spec.patch[0])?,
            patch_width: int(spec.patch[1])?,
            reserved: 0,
        };
        Ok(match spec.layout {
            PixelLayout::Hwc => Call::PatchExtract(arguments),
            PixelLayout::Chw => Call::PatchExtractChw(PatchExtractChwArgs(arguments)),
        })
    }

    /// `factor · gamma · x + y`.
    fn add(&self, gamma: u64, y: Option<usize>, factor: f32) -> Result<Call, String> {
        let (y, y_rows) = match y {
            Some(index) => (self.address(index)?, self.rows(self.shape_of(index)?)?),
            None => (0, 0),
        };
        Ok(Call::Add(AddArgs {
            x: self.address(0)?,
            gamma,
            y,
            out: self.out,
            rows: self.rows(self.shape)?,
            channels: self.channels()?,
            y_rows,
            factor,
        }))
    }

    fn bias_activation(
        &self,
        x: u64,
        bias: u64,
        activation: Option<Activation>,
        residual: u64,
    ) -> Result<Call, String> {
        Ok(Call::BiasActivation(BiasActivationArgs {
            x,
            bias,
            residual,
            out: self.out,
            rows: self.rows(self.shape)?,
            channels: self.channels()?,
            activation: activation_code(activation),
            reserved: 0,
        }))
    }

    /// The product, then bias, activation and residual in one pass, if there are any. A residual that lies where the
    /// result goes is summed up by the product itself; before an activation that would be wrong, and the product goes
    /// elsewhere.
    fn linear(&self, spec: &Linear) -> Result<Vec<Call>, String> {
        let [n, inner @ ..] = self.shape_of(1)? else {
            return Err("the weight is a scalar".into());
        };
        let k = inner.iter().product();
        let m = self.rows(self.shape)? as usize;
        let bias = if spec.bias { self.address(2)? } else { 0 };
        let residual = match spec.residual {
            true => self.address(2 + usize::from(spec.bias))?,
            false => 0,
        };
        let in_place = spec.residual && residual == self.out;
        let (c, beta, residual) = match (in_place, spec.activation) {
            (true, None) => (self.out, 1.0, 0),
            (true, Some(_)) => (self.addresses.scratch, 0.0, residual),
            (false, _) => (self.out, 0.0, residual),
        };
        let gemm = Gemm {
            beta,
            ..Gemm::linear(m, *n, k, self.plan.dtype())
        };
        let (a, b) = (self.address(0)?, self.address(1)?);
        let mut calls = vec![Call::Gemm { gemm, a, b, c }];
        if bias != 0 || spec.activation.is_some() || residual != 0 {
            calls.push(self.bias_activation(c, bias, spec.activation, residual)?);
        }
        Ok(calls)
    }

    /// Queries, keys or values: the channels from `channel` on of each token of an operand. The address, tokens of an
    /// image, and the strides of images and tokens.
    fn heads(&self, index: usize, channel: usize) -> Result<(u64, u32, u64, u32), String> {
        let (images, tokens, channels) = match *self.shape_of(index)? {
            [b, n, channels] => (b, n, channels),
            [b, channels] => (b, 1, channels),
            ref shape => return Err(format!("an operand has shape {shape:?}, expected tokens")),
        };
        let address = self.address(index)? + (channel * self.element()) as u64;
        let image = if images == 1 {
            0
        } else {
            (tokens * channels) as u64
        };
        Ok((address, int(tokens)?, image, int(channels)?))
    }

    fn attention(&self, spec: &Attention) -> Result<AttentionArgs, String> {
        let channels = spec.heads * spec.head_dim;
        let [q, k, v] = match spec.operands {
            AttentionOperands::Separate => [(0, 0), (1, 0), (2, 0)],
            AttentionOperands::PackedQkv => [(0, 0), (0, channels), (0, 2 * channels)],
            AttentionOperands::PackedKv => [(0, 0), (1, 0), (1, channels)],
        };
        let (q, queries, q_image, q_token) = self.heads(q.0, q.1)?;
        let (k, keys, k_image, k_token) = self.heads(k.0, k.1)?;
        let (v, _, v_image, v_token) = self.heads(v.0, v.1)?;
        Ok(AttentionArgs {
            q,
            k,
            v,
            out: self.out,
            visible: Visibility {
                key_mask: 0,
                diagonal: 0,
                left: UNBOUNDED,
                right: UNBOUNDED,
                reserved: 0,
            },
            q_image,
            k_image,
            v_image,
            out_image: u64::from(queries) * channels as u64,
            q_token,
            k_token,
            v_token,
            out_token: int(channels)?,
            images: int(self.shape[0])?,
            heads: int(spec.heads)?,
            queries,
            keys,
            head_dim: int(spec.head_dim)?,
            scale: spec.scale,
        })
    }

    /// Scores, softmax, mix. A product is one head of all images: the images' results lie apart, the heads' side by side.
    /// The scores are scaled by the product itself, so that those of f16 do not overflow before.
    fn attention_by_products(&self, spec: &Attention) -> Result<Vec<Call>, String> {
        let a = self.attention(spec)?;
        let (element, dtype) = (self.element() as u64, self.plan.dtype());
        let [images, heads, queries, keys, head_dim] =
            [a.images, a.heads, a.queries, a.keys, a.head_dim].map(|n| n as usize);
        let matrix = |token: u32, image: u64| Matrix::rows(token as usize).every(image as usize);
        let scores = Matrix::rows(keys).every(heads * queries * keys);
        let score = Gemm {
            batch: images,
            a: matrix(a.q_token, a.q_image),
            b: Matrix {
                transposed: true,
                ..matrix(a.k_token, a.k_image)
            },
            c: scores,
            alpha: a.scale,
            ..Gemm::new(queries, keys, head_dim, dtype)
        };
        let mix = Gemm {
            batch: images,
            a: scores,
            b: matrix(a.v_token, a.v_image),
            c: matrix(a.out_token, a.out_image),
            ..Gemm::new(queries, head_dim, keys, dtype)
        };
        let of_head = |head: u64| {
            (
                head * u64::from(a.head_dim) * element,
                self.addresses.scratch + head * (queries * keys) as u64 * element,
            )
        };
        let mut calls = Vec::with_capacity(2 * heads + 1);
        for (channel, c) in (0..heads as u64).map(of_head) {
            let (a, b) = (a.q + channel, a.k + channel);
            calls.push(Call::Gemm { gemm: score, a, b, c });
        }
        calls.push(Call::Softmax(SoftmaxArgs {
            x: self.addresses.scratch,
            out: self.addresses.scratch,
            visible: a.visible,
            images: a.images,
            heads: a.heads,
            queries: a.queries,
            keys: a.keys,
            scale: 1.0,
            whole_block: 0,
        }));
        for (channel, scores) in (0..heads as u64).map(of_head) {
            let (b, c) = (a.v + channel, a.out + channel);
            calls.push(Call::Gemm {
                gemm: mix,
                a: scores,
                b,
                c,
            });
        }
        Ok(calls)
    }

    fn concat(&self) -> Result<Vec<Call>, String> {
        let row = |shape: &[usize]| shape.last().map_or(0, |&d| d * self.element());
        let to_stride = row(self.shape);
        let first = row(self.shape_of(0)?);
        let copy = |index: usize, at: usize| {
            let bytes = row(self.shape_of(index)?);
            Ok::<_, String>(Call::CopyRows(CopyRows {
                from: self.address(index)?,
                from_stride: bytes,
                to: self.out + at as u64,
                to_stride,
                bytes,
                rows: self.rows(self.shape)? as usize,
            }))
        };
        Ok(vec![copy(0, 0)?, copy(1, first)?])
    }
}

fn int(n: usize) -> Result<u32, String> {
    u32::try_from(n).map_err(|_| format!("an extent of {n} is too large for a GPU"))
}
