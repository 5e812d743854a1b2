//! One step of a plan on the CPU: finds its operands in memory and calls the op's kernel.

use std::borrow::Cow;
use std::ops::Range;

use super::constants::Constants;
use crate::graph::plan::{Buffer, Operand, Plan, Step};
use crate::ops::attention::Tokens;
use crate::ops::gemm::Products;
use crate::ops::int8::Int8Weight;
use crate::ops::linear::{PrepackedWeight, Tail};
use crate::ops::rows::Source;
use crate::ops::{Attention, AttentionOperands, Linear, Op, PixelLayout, Rounding};
use crate::ops::{
    activation, add, attention, float8, grid_mask, grid_positions, int8, layer_norm, linear, patch_conv,
    patch_extract, pool, rope, swiglu, tokens, transpose,
};
use crate::tensor::{DType, Input};

/// The arena's elements of `buffer`, or `None` if it is not aligned to elements.
pub(super) fn range(buffer: &Buffer) -> Option<Range<usize>> {
    let len: usize = buffer.shape.iter().product();
    let start = buffer.offset / size_of::<f32>();
    let fits = buffer.offset.is_multiple_of(size_of::<f32>()) && buffer.bytes == len * size_of::<f32>();
    fits.then(|| start..start + len)
}

/// The memory that one step reads and writes.
pub(super) struct Memory<'a> {
    plan: &'a Plan,
    step: &'a Step,
    input: Input<'a>,
    constants: &'a Constants,
    /// The arena before and after the output.
    before: &'a [f32],
    after: &'a [f32],
    output: &'a mut [f32],
}

impl<'a> Memory<'a> {
    pub(super) fn split(
        plan: &'a Plan,
        step: &'a Step,
        input: Input<'a>,
        constants: &'a Constants,
        arena: &'a mut [f32],
    ) -> Result<Self, String> {
        let range = range(plan.buffer(step.output)).filter(|range| range.end <= arena.len());
        let range = range.ok_or("its result lies outside the arena")?;
        let (before, rest) = arena.split_at_mut(range.start);
        let (output, after) = rest.split_at_mut(range.len());
        Ok(Self {
            plan,
            step,
            input,
            constants,
            before,
            after,
            output,
        })
    }

    /// The operand's extents; those of the input and of constants are at batch 1.
    fn shape(&self, index: usize) -> Result<&'a [usize], String> {
        let value = |id| self.plan.graph().value(id).shape.as_slice();
        match self.step.inputs.get(index) {
            Some(&Operand::Input) => Ok(value(self.plan.graph().input())),
            Some(&Operand::Constant(id)) => Ok(value(id)),
            Some(&Operand::Buffer(id)) => Ok(&self.plan.buffer(id).shape),
            None => Err(missing(index)),
        }
    }

    /// The operand's channels, its last extent.
    fn channels(&self, index: usize) -> Result<usize, String> {
        self.shape(index)?
            .last()
            .copied()
            .ok_or_else(|| "an operand is a scalar".into())
    }

    fn values(&self, index: usize) -> Result<&'a [f32], String> {
        match self.step.inputs.get(index) {
            Some(Operand::Input) => match self.input {
                Input::Values(values) => Ok(values),
                Input::Pixels(_) => Err("takes f32 values, not pixels".into()),
            },
            Some(Operand::Constant(id)) => self
                .constants
                .values
                .get(id)
                .map(Vec::as_slice)
                .ok_or_else(|| "the plan is of another graph than the executor".into()),
            Some(&Operand::Buffer(id)) => {
                let range = range(self.plan.buffer(id)).ok_or("an operand lies outside the arena")?;
                let end = self.before.len() + self.output.len();
                let part = if range.start < end {
                    self.before.get(range)
                } else {
                    self.after.get(range.start - end..range.end - end)
                };
                part.ok_or_else(|| "an operand overlaps the result".into())
            }
            None => Err(missing(index)),
        }
    }

    /// The operand of an op that can run in place.
    fn source(&self, index: usize) -> Result<Source<'a>, String> {
        if self.step.in_place == Some(index) {
            Ok(Source::InPlace)
        } else {
            self.values(index).map(Source::At)
        }
    }

    /// The operand as a prepacked weight; one that is not constant is prepacked now, in `dtype`.
    fn weight(&self, index: usize, dtype: DType) -> Result<Cow<'a, PrepackedWeight>, String> {
        if let Some(Operand::Constant(id)) = self.step.inputs.get(index) {
            let packed = self.constants.weights.get(id);
            let packed = packed.ok_or("the plan is of another graph than the executor")?;
            return Ok(Cow::Borrowed(packed));
        }
        let [n, inner @ ..] = self.shape(index)? else {
            return Err("the weight is a scalar".into());
        };
        PrepackedWeight::new(self.values(index)?, *n, inner.iter().product(), dtype).map(Cow::Owned)
    }

    /// The operand as a packed int8 weight.
    fn int8_weight(&self, index: usize) -> Result<&'a Int8Weight, String> {
        let weight = match self.step.inputs.get(index) {
            Some(Operand::Constant(id)) => self.constants.int8.get(id),
            _ => None,
        };
        weight.ok_or_else(|| "its weight is no int8 constant of the executor's graph".into())
    }

    /// The operand's elements, u8 or f32.
    fn pixels(&self, index: usize) -> Result<Input<'a>, String> {
        match self.step.inputs.get(index) {
            Some(Operand::Input) => Ok(self.input),
            _ => self.values(index).map(Input::Values),
        }
    }

    /// Images of bytes, with their height and width.
    fn images(&self, index: usize) -> Result<(&'a [u8], [usize; 2]), String> {
        match (self.pixels(index)?, self.shape(index)?) {
            (Input::Pixels(pixels), &[_, height, width, _]) => Ok((pixels, [height, width])),
            _ => Err("takes pixels, not f32 values".into()),
        }
    }

    /// Queries, keys or values: the channels from `offset` on of each token of the operand.
    fn tokens(&self, index: usize, offset: usize) -> Result<Tokens<'a>, String> {
        let (images, count, stride) = match *self.shape(index)? {
            [b, n, channels] => (b, n, channels),
            [b, channels] => (b, 1, channels),
            ref shape => return Err(format!("an operand has shape {shape:?}, expected tokens")),
        };
        let data = self.values(index)?.get(offset..);
        Ok(Tokens {
            data: data.ok_or("an operand is too short")?,
            count,
            stride,
            shared: images == 1,
        })
    }

    /// Runs the step.
    pub(super) fn execute(self) -> Result<(), String> {
        let m = &self;
        let (inputs, dtype) = (m.step.inputs.len(), m.constants.dtype);
        match &m.plan.node(m.step).op {
            Op::Normalize(spec) => {
                let (Input::Pixels(pixels), &[_, h, w, _]) = (m.pixels(0)?, m.shape(0)?) else {
                    return Err("takes pixels, not f32 values".into());
                };
                patch_conv::run_normalize(spec, pixels, h * w, self.output);
            }
            Op::PatchConv(spec) => {
                let &[_, _, h, w] = m.shape(0)? else {
                    return Err("takes images".into());
                };
                let bias = if spec.bias { Some(m.values(2)?) } else { None };
                patch_conv::run(
                    spec,
                    m.values(0)?,
                    [h, w],
                    &*m.weight(1, dtype)?,
                    bias,
                    self.output,
                )?;
            }
            Op::PatchExtract(spec) => {
                let size = match (spec.layout, m.shape(0)?) {
                    (PixelLayout::Hwc, &[_, h, w, _]) => [h, w],
                    (PixelLayout::Chw, &[_, _, h, w]) => [h, w],
                    _ => return Err("takes images".into()),
                };
                patch_extract::run(spec, m.pixels(0)?, size, self.output);
            }
            Op::Prepend => {
                let x = inputs.saturating_sub(1);
                let image = m.shape(x)?.iter().skip(1).product();
                let prefixes = (0..x).map(|i| m.values(i)).collect::<Result<Vec<_>, _>>()?;
                tokens::run(m.values(x)?, image, &prefixes, None, self.output);
            }
            Op::Tokens(spec) => {
                let image = m.shape(0)?.iter().skip(1).product();
                let prefix = if spec.prefix { Some(m.values(1)?) } else { None };
                let position = if spec.position {
                    Some(m.values(inputs - 1)?)
                } else {
                    None
                };
                tokens::run(m.values(0)?, image, prefix.as_slice(), position, self.output);
            }
            Op::Add => add::run_add(m.source(0)?, m.values(1)?, self.output),
            Op::Scale => add::run_scale(m.source(0)?, m.values(1)?, self.output),
            Op::Affine => add::run_affine(m.source(0)?, m.values(1)?, m.values(2)?, self.output),
            Op::MulScalar(factor) => add::run_mul_scalar(m.source(0)?, *factor, self.output),
            Op::LayerNorm { epsilon } => {
                layer_norm::run(*epsilon, m.source(0)?, m.values(1)?, m.values(2)?, self.output);
            }
            Op::RmsNorm { epsilon } => {
                layer_norm::run_rms(*epsilon, m.source(0)?, m.values(1)?, self.output);
            }
            Op::Linear(Linear {
                bias,
                activation,
                residual,
                rounding,
            }) => {
                let tail = Tail {
                    bias: if *bias { Some(m.values(2)?) } else { None },
                    activation: *activation,
                    residual: if *residual {
                        Some(m.source(inputs - 1)?)
                    } else {
                        None
                    },
                };
                match rounding {
                    Some(Rounding::Float8(scale)) => {
                        let x = float8::rounded(m.values(0)?, m.channels(0)?, *scale);
                        linear::run(&x, &*m.weight(1, dtype)?, tail, self.output)?;
                    }
                    Some(Rounding::Int8(levels)) => {
                        int8::run(m.values(0)?, m.int8_weight(1)?, *levels, tail, self.output)?;
                    }
                    Some(Rounding::Bf16) => {
                        linear::run_bf16(m.values(0)?, &*m.weight(1, DType::BF16)?, tail, self.output)?;
                    }
                    None => linear::run(m.values(0)?, &*m.weight(1, dtype)?, tail, self.output)?,
                }
            }
            Op::Activation(activation) => activation::run(*activation, m.source(0)?, self.output),
            Op::GridPositions => {
                let &[side, ..] = m.shape(1)? else {
                    return Err("takes a table of positions".into());
                };
                grid_positions::run(m.values(0)?, m.values(1)?, side, m.images(2)?, self.output)?;
            }
            Op::GridMask => {
                let (pixels, size) = m.images(0)?;
                grid_mask::run(pixels, size, self.output)?;
            }
            Op::SwiGlu => swiglu::run(m.values(0)?, m.channels(0)? / 2, self.output),
            Op::SwiGluNorm { epsilon, padding } => {
                let [x, weight, bias] = [m.values(0)?, m.values(1)?, m.values(2)?];
                swiglu::run_norm(*epsilon, *padding, x, weight, bias, self.output);
            }
            Op::Rope(spec) => {
                let (&[_, tokens, channels], &[_, places, _]) = (m.shape(0)?, m.shape(1)?) else {
                    return Err("takes tokens and a table".into());
                };
                let extents = [tokens, channels, places];
                rope::run(spec, m.source(0)?, m.values(1)?, extents, self.output);
            }
            Op::Attention(spec) => {
                let operands = attention_operands(m, spec)?;
                let batch = m.plan.buffer(m.step.output).shape[0];
                let bias = if spec.bias {
                    Some(m.values(spec.operands.count())?)
                } else {
                    None
                };
                let mask = if spec.key_mask {
                    Some(m.values(inputs - 1)?)
                } else {
                    None
                };
                let products = Products::new(dtype);
                attention::run((spec, products), operands, (bias, mask), batch, self.output)?;
            }
            Op::Transpose(spec) => {
                let &[_, rows, columns] = m.shape(0)? else {
                    return Err("takes tokens".into());
                };
                let gamma = if spec.scale { Some(m.values(1)?) } else { None };
                let y = match spec.combine {
                    Some(_) => Some(m.source(inputs - 1)?),
                    None => None,
                };
                transpose::run(*spec, m.values(0)?, gamma, y, [rows, columns], self.output);
            }
            Op::AttentionStatistics(spec) => {
                let [q, k, _] = attention_operands(m, spec)?;
                let bias = if spec.bias {
                    Some(m.values(spec.operands.count())?)
                } else {
                    None
                };
                let mask = if spec.key_mask {
                    Some(m.values(inputs - 1)?)
                } else {
                    None
                };
                attention::run_statistics(spec, [q, k], (bias, mask), self.output)?;
            }
            Op::Pool(spec) => {
                let &[_, n, d] = m.shape(0)? else {
                    return Err("takes tokens".into());
                };
                pool::run(spec, m.values(0)?, [n, d], self.output);
            }
            Op::ConcatChannels => {
                let channels = [m.channels(0)?, m.channels(1)?];
                pool::run_concat([m.values(0)?, m.values(1)?], channels, self.output);
            }
            Op::AllReduce(_) => {
                return Err("sums over the ranks of a tensor-parallel model, which run on GPUs".into());
            }
        }
        Ok(())
    }
}

fn missing(index: usize) -> String {
    format!("its operand {index} is missing")
}

/// Queries, keys and values of attention.
fn attention_operands<'a>(m: &Memory<'a>, spec: &Attention) -> Result<[Tokens<'a>; 3], String> {
    let c = spec.heads * spec.head_dim;
    let places = match spec.operands {
        AttentionOperands::Separate => [(0, 0), (1, 0), (2, 0)],
        AttentionOperands::PackedQkv => [(0, 0), (0, c), (0, 2 * c)],
        AttentionOperands::PackedKv => [(0, 0), (1, 0), (1, c)],
    };
    let [q, k, v] = places.map(|(index, offset)| m.tokens(index, offset));
    Ok([q?, k?, v?])
}
