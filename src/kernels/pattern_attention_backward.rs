//! Lowering of the derivative of attention with a pattern.

#[cfg(test)]
mod tests;

use hipvit_graph::op::PatternAttentionBackward;
use hipvit_graph::pattern::{Dependencies, Derivative, Index, Instruction};

use super::attention::{no_fused_kernel, padded};
use super::attention_backward::lower::Extents;
use super::bindings::{
    AttentionBackwardBiasArgs, AttentionBackwardKvArgs, AttentionBackwardOperands, AttentionBackwardQArgs,
    AttentionBackwardRowsArgs, AttentionBackwardSumArgs, AttentionPatternBackward,
    AttentionPatternGradientArgs, AttentionPatternKvArgs, AttentionPatternLoadArgs, AttentionPatternQArgs,
    AttentionPatternSeenArgs, GRADIENT_ADD, GRADIENT_CLEAR, GRADIENT_LARGEST, GRADIENT_STORE,
};
use super::call::Call;
use super::generated_call::{GeneratedCall, GeneratedKernel};
use super::lower::{Lower, Lowering, shape_of};
use super::pattern_attention::LowerGenerated;
use super::pattern_attention::backward::WORD_BYTES;
use super::pattern_attention::call::differing;
use super::pattern_attention::source::backward_source;
use super::{DeviceAddress, KernelError, Unit, extent};
use crate::graph::plan::{ALIGNMENT, Plan, Step};

/// Returns the derivative of the op's score.
fn derivative(op: &PatternAttentionBackward) -> Derivative {
    let program = &op.0.program;
    program.differentiate().unwrap_or_else(|| Derivative {
        program: (**program).clone(),
        score: None,
        loads: Vec::new(),
    })
}

/// A load of a captured tensor, whose gradient is wanted.
#[derive(Clone, Copy)]
struct Load {
    /// Number of the load in the generated program.
    number: usize,
    /// Index of the captured tensor.
    tensor: usize,
    /// Number of images that are summed up at once.
    chunk: usize,
    /// True if which element is read depends on the image.
    of_images: bool,
    /// True if it reads element `[head, query, key]`.
    is_bias: bool,
}

impl Load {
    fn all(op: &PatternAttentionBackward, derivative: &Derivative, extents: Extents) -> Vec<Self> {
        let steps = derivative.program.steps();
        let load = |(number, &(load, _)): (usize, &(usize, usize))| {
            let Instruction::Load { tensor, index } = &steps[load].instruction else {
                return None;
            };
            let of_images = steps[load].dependencies.intersects(Dependencies::BATCH);
            let all = [Index::Head, Index::Query, Index::Key];
            let is = |(&step, index): (&usize, _)| steps[step].instruction == Instruction::Index(index);
            Some(Self {
                number,
                tensor: *tensor,
                chunk: if of_images { 1 } else { extents.chunk(op.0.heads) },
                of_images,
                is_bias: index.len() == all.len() && index.iter().zip(all).all(is),
            })
        };
        derivative.loads.iter().enumerate().filter_map(load).collect()
    }

    fn chunks(&self, extents: Extents) -> usize {
        extents.images.div_ceil(self.chunk)
    }

    /// Number of images whose sums are kept apart.
    fn images(&self, extents: Extents) -> usize {
        if self.of_images { extents.images } else { 1 }
    }
}

/// Memory of a step outside the arena: offsets of its parts in bytes.
struct Scratch {
    /// f32 `[images, heads, queries, 2]`.
    rows: usize,
    /// f32 `[images, queries, heads, head_dim]`, if the images share their queries.
    d_q: usize,
    /// See [`AttentionPatternBackward::seen`], if there is a mask.
    seen: usize,
    /// f32 `[chunks, heads, queries, keys]` of each load.
    partial: Vec<usize>,
    /// i64 for each element of the largest captured tensor.
    sums: usize,
    /// u32.
    largest: usize,
    bytes: usize,
}

impl Scratch {
    fn new(op: &PatternAttentionBackward, loads: &[Load], extents: Extents, elements: usize) -> Self {
        let mut bytes = 0;
        let mut add = |part: usize| {
            let offset = bytes;
            bytes += part.next_multiple_of(ALIGNMENT);
            offset
        };
        let (heads, float) = (op.0.heads, size_of::<f32>());
        let rows = extents.images * extents.queries * heads;
        let scores = heads * extents.queries * extents.keys;
        let [seen_images, seen_heads] = seen_extents(op, extents.images);
        let words = AttentionPatternBackward::words([extents.queries, extents.keys]);
        Self {
            rows: add(2 * rows * float),
            d_q: add(if extents.shares_queries {
                rows * op.0.head_dim * float
            } else {
                0
            }),
            seen: add(seen_images * seen_heads * words * WORD_BYTES),
            partial: loads
                .iter()
                .map(|load| add(load.chunks(extents) * scores * float))
                .collect(),
            sums: add(elements * size_of::<u64>()),
            largest: add(size_of::<u32>()),
            bytes,
        }
    }
}

/// Returns the images and heads whose masks differ; 0 without a mask.
fn seen_extents(op: &PatternAttentionBackward, images: usize) -> [usize; 2] {
    let program = &op.0.program;
    let mask = program.mask();
    mask.map_or([0, 0], |mask| differing(program, &[mask], [images, op.0.heads]))
}

impl Lower for PatternAttentionBackward {
    fn unit(&self) -> Option<Unit> {
        Some(self.generate().ok()?.unit)
    }

    fn scratch_bytes(&self, plan: &Plan, step: &Step) -> usize {
        let shape = |index: usize| step.inputs.get(index).map(|&operand| shape_of(plan, operand));
        let (Some(q), Some(k)) = (shape(0), shape(self.0.operands.keys())) else {
            return 0;
        };
        let extents = Extents::new(q, k);
        let captured = (self.0.operands.count()..self.forward_operands()).filter_map(shape);
        let elements = captured.map(|shape| shape.iter().product()).max().unwrap_or(0);
        let loads = Load::all(self, &derivative(self), extents);
        Scratch::new(self, &loads, extents, elements).bytes
    }

    fn lower(&self, step: &Lowering<'_>) -> Result<Vec<Call>, KernelError> {
        self.lower_with(step, &self.generate()?)
    }
}

/// The unit of the derivative of attention with a pattern, and the derivative of its score.
#[derive(Clone, Debug)]
pub(crate) struct Generated {
    unit: Unit,
    derivative: Derivative,
}

impl AsRef<Unit> for Generated {
    fn as_ref(&self) -> &Unit {
        &self.unit
    }
}

impl LowerGenerated for PatternAttentionBackward {
    type Generated = Generated;

    fn generate(&self) -> Result<Generated, KernelError> {
        let head_dim = self.0.head_dim;
        let head_dim = padded(head_dim).ok_or_else(|| no_fused_kernel(head_dim as u32))?;
        let derivative = derivative(self);
        let source = backward_source(&derivative, head_dim);
        let unit = Unit::generated("attention_pattern_backward", source);
        Ok(Generated { unit, derivative })
    }

    fn lower_with(&self, step: &Lowering<'_>, generated: &Generated) -> Result<Vec<Call>, KernelError> {
        let spec = &self.0;
        let extents = Extents::new(step.shape_of(0)?, step.shape_of(spec.operands.keys())?);
        let loads = Load::all(self, &generated.derivative, extents);
        let captured = spec.operands.count()..self.forward_operands();
        let elements = captured
            .map(|index| Ok(step.shape_of(index)?.iter().product()))
            .collect::<Result<Vec<usize>, KernelError>>()?;
        let scratch = Scratch::new(self, &loads, extents, elements.iter().copied().max().unwrap_or(0));
        let backward = Backward {
            op: self,
            step,
            unit: &generated.unit,
            extents,
            scratch,
            elements,
        };
        let pattern = backward.pattern()?;
        let operands = backward.operands()?;
        let mut calls = Vec::new();
        if !pattern.seen.is_null() {
            calls.push(backward.call(AttentionPatternSeenArgs { pattern }));
        }
        calls.push(backward.rows()?.into());
        calls.extend(backward.of_queries(operands, pattern)?);
        let [_, dk, dv] = step.gradients(&spec.plain())?;
        calls.push(backward.call(AttentionPatternKvArgs {
            attention: AttentionBackwardKvArgs { operands, dk, dv },
            pattern,
        }));
        for tensor in 0..spec.program.tensors().len() {
            calls.extend(backward.of_captured(tensor, &loads, operands, pattern)?);
        }
        Ok(calls)
    }
}

/// A step that is being lowered.
struct Backward<'a> {
    op: &'a PatternAttentionBackward,
    step: &'a Lowering<'a>,
    unit: &'a Unit,
    extents: Extents,
    scratch: Scratch,
    /// Elements of each captured tensor.
    elements: Vec<usize>,
}

impl Backward<'_> {
    fn at(&self, offset: usize) -> DeviceAddress {
        self.step.addresses.scratch.offset(offset)
    }

    fn call(&self, kernel: impl Into<GeneratedKernel>) -> Call {
        GeneratedCall::new(self.unit, kernel).into()
    }

    fn pattern(&self) -> Result<AttentionPatternBackward, KernelError> {
        let Extents {
            images,
            queries,
            keys,
            ..
        } = self.extents;
        let [seen_images, seen_heads] = seen_extents(self.op, images);
        Ok(AttentionPatternBackward {
            pattern: self.step.pattern(
                (&self.op.0.program, &self.op.0.scalars),
                self.op.0.operands.count(),
                [images, self.op.0.heads, queries, keys],
            )?,
            seen: if seen_images == 0 {
                DeviceAddress::NULL
            } else {
                self.at(self.scratch.seen)
            },
            seen_images: extent(seen_images)?,
            seen_heads: extent(seen_heads)?,
        })
    }

    /// Returns the address of operand `index` after those of the forward pass: its results, and the gradient of the first one.
    fn after_forward(&self, index: usize) -> Result<DeviceAddress, KernelError> {
        self.step.address(self.op.forward_operands() + index)
    }

    fn operands(&self) -> Result<AttentionBackwardOperands, KernelError> {
        let addresses = [self.after_forward(2)?, self.at(self.scratch.rows)];
        self.step
            .backward_operands(&self.op.0.plain(), self.extents.images, addresses)
    }

    fn rows(&self) -> Result<AttentionBackwardRowsArgs, KernelError> {
        let spec = &self.op.0;
        let sums = self.step.saved_statistics(self.op.forward_operands() + 1)?;
        let addresses = [
            self.after_forward(0)?,
            self.after_forward(2)?,
            sums,
            self.at(self.scratch.rows),
        ];
        let extents = [
            self.extents.images,
            self.extents.queries,
            spec.heads,
            spec.head_dim,
        ];
        AttentionBackwardRowsArgs::new(addresses, extents, 1)
    }

    fn of_queries(
        &self,
        operands: AttentionBackwardOperands,
        pattern: AttentionPatternBackward,
    ) -> Result<Vec<Call>, KernelError> {
        let [dq, ..] = self.step.gradients(&self.op.0.plain())?;
        let shares = self.extents.shares_queries;
        let partial = if shares {
            self.at(self.scratch.d_q)
        } else {
            DeviceAddress::NULL
        };
        let attention = AttentionBackwardQArgs {
            operands,
            dq,
            partial,
        };
        let mut calls = vec![self.call(AttentionPatternQArgs { attention, pattern })];
        if shares {
            let elements = self.extents.queries * self.op.0.heads * self.op.0.head_dim;
            let sum = AttentionBackwardSumArgs::new([partial, dq], [self.extents.images, elements])?;
            calls.push(sum.into());
        }
        Ok(calls)
    }

    /// Returns the calls that compute the gradient of a captured tensor. There are none for integers, or if the result is null.
    fn of_captured(
        &self,
        tensor: usize,
        loads: &[Load],
        operands: AttentionBackwardOperands,
        pattern: AttentionPatternBackward,
    ) -> Result<Vec<Call>, KernelError> {
        let operand = self.op.0.operands.count() + tensor;
        let Some(result) = self.op.result_of(operand) else {
            return Ok(Vec::new());
        };
        let out = self.step.result(result)?;
        if out.is_null() {
            return Ok(Vec::new());
        }
        let loads: Vec<&Load> = loads.iter().filter(|load| load.tensor == tensor).collect();
        let mut calls = Vec::new();
        for load in &loads {
            calls.push(self.call(AttentionPatternLoadArgs {
                attention: AttentionBackwardBiasArgs {
                    operands,
                    dbias: DeviceAddress::NULL,
                    partial: self.at(self.scratch.partial[load.number]),
                    chunk: extent(load.chunk)?,
                    reserved: 0,
                },
                pattern,
                load: extent(load.number)?,
                reserved: 0,
            }));
        }
        let Extents { queries, keys, .. } = self.extents;
        let of_bias = [self.op.0.heads, queries, keys];
        if let [load] = loads[..]
            && load.is_bias
            && self.step.shape_of(operand)? == of_bias
        {
            let addresses = [self.at(self.scratch.partial[load.number]), out];
            let summands = [load.chunks(self.extents), of_bias.iter().product()];
            calls.push(AttentionBackwardSumArgs::new(addresses, summands)?.into());
            return Ok(calls);
        }
        let mut gradient = AttentionPatternGradientArgs {
            pattern: pattern.pattern,
            partial: DeviceAddress::NULL,
            sums: self.at(self.scratch.sums),
            largest: self.at(self.scratch.largest),
            out,
            chunks: 0,
            images: 0,
            elements: extent(self.elements[tensor])?,
            load: 0,
            stage: GRADIENT_CLEAR,
            summands: 0,
        };
        let images = loads.iter().map(|load| load.images(self.extents)).sum();
        gradient.summands = gradient.scores(extent(images)?)?;
        calls.push(self.call(gradient));
        for stage in [GRADIENT_LARGEST, GRADIENT_ADD] {
            for load in &loads {
                calls.push(self.call(AttentionPatternGradientArgs {
                    partial: self.at(self.scratch.partial[load.number]),
                    chunks: extent(load.chunks(self.extents))?,
                    images: extent(load.images(self.extents))?,
                    load: extent(load.number)?,
                    stage,
                    ..gradient
                }));
            }
        }
        calls.push(self.call(AttentionPatternGradientArgs {
            stage: GRADIENT_STORE,
            ..gradient
        }));
        Ok(calls)
    }
}
