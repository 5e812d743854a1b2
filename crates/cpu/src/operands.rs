//! Memory of a step on the CPU: its operands and its results.

use std::borrow::Cow;
use std::ops::Range;

use hipvit_graph::op::OpError;

use super::constants::{Constants, States};
use super::int8::Int8Weight;
use super::prepacked::PrepackedWeight;
use super::rows::Source;
use crate::collectives::Collectives;
use hipvit_graph::ValueId;
use hipvit_graph::plan::{Buffer, Operand, Plan, Step};
use hipvit_graph::tensor::{DType, Input};

/// Returns the arena's elements of `buffer`. `None` if it is not aligned to elements.
pub fn range(buffer: &Buffer) -> Option<Range<usize>> {
    let len: usize = buffer.shape.iter().product();
    let start = buffer.offset / size_of::<f32>();
    let fits = buffer.offset.is_multiple_of(size_of::<f32>()) && buffer.bytes == len * size_of::<f32>();
    fits.then(|| start..start + len)
}

/// The memory that a step reads and writes.
pub(crate) struct Memory<'a> {
    pub(crate) operands: Operands<'a>,
    /// The results, in the order of the op.
    pub(crate) results: Vec<&'a mut [f32]>,
}

impl<'a> Memory<'a> {
    /// Splits the arena into the step's results and the parts that it may read. A result that is written to a state is `written`, and its
    /// operand is there.
    ///
    /// # Errors
    ///
    /// [`OpError`] if results overlap or are outside the arena.
    pub(crate) fn split(
        plan: &'a Plan,
        step: &'a Step,
        inputs: &'a [Input<'a>],
        constants: &'a Constants,
        states: &'a States,
        written: Option<&'a mut [f32]>,
        arena: &'a mut [f32],
    ) -> Result<Self, OpError> {
        if let Some(written) = written {
            return Ok(Self {
                operands: Operands {
                    plan,
                    step,
                    inputs,
                    constants,
                    states,
                    between: vec![(0, arena)],
                },
                results: vec![written],
            });
        }
        let outside = || OpError::memory("its result is outside the arena");
        let mut ranges = Vec::with_capacity(step.outputs.len());
        for (index, &id) in step.outputs.iter().enumerate() {
            ranges.push((index, range(plan.buffer(id)).ok_or_else(outside)?));
        }
        ranges.sort_by_key(|(_, range)| range.start);
        let mut between = Vec::with_capacity(ranges.len() + 1);
        let mut results: Vec<(usize, &'a mut [f32])> = Vec::with_capacity(ranges.len());
        let (mut rest, mut end) = (arena, 0);
        for (index, range) in ranges {
            let before = range.start.checked_sub(end).ok_or_else(outside)?;
            let (piece, after) = rest.split_at_mut_checked(before).ok_or_else(outside)?;
            between.push((end, &*piece));
            let (result, after) = after.split_at_mut_checked(range.len()).ok_or_else(outside)?;
            results.push((index, result));
            (rest, end) = (after, range.end);
        }
        between.push((end, &*rest));
        results.sort_by_key(|(index, _)| *index);
        Ok(Self {
            operands: Operands {
                plan,
                step,
                inputs,
                constants,
                states,
                between,
            },
            results: results.into_iter().map(|(_, result)| result).collect(),
        })
    }
}

/// Operands of a step.
pub(crate) struct Operands<'a> {
    plan: &'a Plan,
    step: &'a Step,
    /// The inputs, in the order of the plan.
    inputs: &'a [Input<'a>],
    constants: &'a Constants,
    states: &'a States,
    /// The parts of the arena that are not results of this step, each with the index of its first element.
    between: Vec<(usize, &'a [f32])>,
}

impl<'a> Operands<'a> {
    /// Returns the number of operands.
    pub(crate) fn count(&self) -> usize {
        self.step.inputs.len()
    }

    /// Returns the precision of linear layers and attention.
    pub(crate) fn dtype(&self) -> DType {
        self.constants.dtype
    }

    /// Returns the connections to the other ranks.
    pub(crate) fn collectives(&self) -> Result<&'a dyn Collectives, OpError> {
        let collectives = self.constants.collectives.as_deref();
        collectives.ok_or_else(|| "is of several ranks, but the executor has no connections to others".into())
    }

    /// Returns the extents of result `index`.
    pub(crate) fn result_shape(&self, index: usize) -> &'a [usize] {
        &self.plan.buffer(self.step.outputs[index]).shape
    }

    /// Returns the operand's extents, at batch 1 for inputs and constants.
    pub(crate) fn shape(&self, index: usize) -> Result<&'a [usize], OpError> {
        let value = |id| self.plan.graph().value(id).shape.as_slice();
        match self.step.inputs.get(index) {
            Some(&(Operand::Input(id) | Operand::Constant(id) | Operand::State(id))) => Ok(value(id)),
            Some(&Operand::Buffer(id)) => Ok(&self.plan.buffer(id).shape),
            None => Err(missing(index)),
        }
    }

    /// Returns the operand's extents. Constants have their extents at batch 1.
    pub(crate) fn batched_shape(&self, index: usize) -> Result<&'a [usize], OpError> {
        match self.step.inputs.get(index) {
            Some(&Operand::Input(id)) => match self.plan.input(id) {
                Some(input) => Ok(&input.shape),
                None => Err(missing(index)),
            },
            _ => self.shape(index),
        }
    }

    /// Returns the input `id` of the run.
    fn input(&self, id: ValueId) -> Result<Input<'a>, OpError> {
        let mut pairs = self.plan.inputs().iter().zip(self.inputs);
        let found = pairs.find(|(of_plan, _)| of_plan.input.value == id);
        let (_, input) = found.ok_or("an input is missing")?;
        Ok(*input)
    }

    /// Returns the number of channels, which is the last extent.
    pub(crate) fn channels(&self, index: usize) -> Result<usize, OpError> {
        let channels = self.shape(index)?.last().copied();
        channels.ok_or_else(|| "an operand is a scalar".into())
    }

    /// Returns the operand's elements.
    pub(crate) fn values(&self, index: usize) -> Result<&'a [f32], OpError> {
        match self.step.inputs.get(index) {
            Some(&Operand::Input(id)) => match self.input(id)? {
                Input::Values(values) => Ok(values),
                Input::Pixels(_) | Input::Integers(_) => {
                    Err("takes f32 values, neither pixels nor integers".into())
                }
            },
            Some(Operand::Constant(id)) => self
                .constants
                .values
                .get(id)
                .map(Vec::as_slice)
                .ok_or_else(|| "the plan is of another graph than the executor".into()),
            Some(&Operand::State(id)) => self.state(id),
            Some(&Operand::Buffer(id)) => {
                if let Some(state) = self.plan.buffer(id).state {
                    return self.state(state);
                }
                let range = range(self.plan.buffer(id))
                    .ok_or_else(|| OpError::memory("an operand is outside the arena"))?;
                let piece = self.between.iter().rfind(|(start, _)| *start <= range.start);
                let part = piece.and_then(|(start, piece)| piece.get(range.start - start..range.end - start));
                part.ok_or_else(|| OpError::memory("an operand overlaps a result"))
            }
            None => Err(missing(index)),
        }
    }

    fn state(&self, id: ValueId) -> Result<&'a [f32], OpError> {
        let state = self.states.get(&id).map(Vec::as_slice);
        state.ok_or_else(|| "the plan is of another graph than the executor".into())
    }

    /// Returns the elements of an optional operand. `None` unless `present`.
    pub(crate) fn optional(&self, present: bool, index: usize) -> Result<Option<&'a [f32]>, OpError> {
        if present {
            self.values(index).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Returns the operand of an op that can run in place.
    pub(crate) fn source(&self, index: usize) -> Result<Source<'a>, OpError> {
        let is_written = index == 0 && self.plan.buffer(self.step.output()).state.is_some();
        if is_written || self.step.in_place == Some(index) {
            Ok(Source::InPlace)
        } else {
            self.values(index).map(Source::At)
        }
    }

    /// Returns the operand as a prepacked weight. A weight that is not constant is prepacked now, in `dtype`.
    pub(crate) fn weight(&self, index: usize, dtype: DType) -> Result<Cow<'a, PrepackedWeight>, OpError> {
        if let Some(Operand::Constant(id)) = self.step.inputs.get(index) {
            let packed = self.constants.weights.get(id);
            let packed = packed.ok_or("the plan is of another graph than the executor")?;
            return Ok(Cow::Borrowed(packed));
        }
        let [n, inner @ ..] = self.shape(index)? else {
            return Err("the weight is a scalar".into());
        };
        let packed = PrepackedWeight::new(self.values(index)?, *n, inner.iter().product(), dtype)?;
        Ok(Cow::Owned(packed))
    }

    /// Returns the operand as a packed int8 weight.
    pub(crate) fn int8_weight(&self, index: usize) -> Result<&'a Int8Weight, OpError> {
        let weight = match self.step.inputs.get(index) {
            Some(Operand::Constant(id)) => self.constants.int8.get(id),
            _ => None,
        };
        weight.ok_or_else(|| "its weight is no int8 constant of the executor's graph".into())
    }

    /// Returns the operand's elements, u8 or f32.
    pub(crate) fn pixels(&self, index: usize) -> Result<Input<'a>, OpError> {
        match self.step.inputs.get(index) {
            Some(&Operand::Input(id)) => self.input(id),
            _ => self.values(index).map(Input::Values),
        }
    }

    /// Returns u8 images with their height and width.
    pub(crate) fn images(&self, index: usize) -> Result<(&'a [u8], [usize; 2]), OpError> {
        match (self.pixels(index)?, self.shape(index)?) {
            (Input::Pixels(pixels), &[_, height, width, _]) => Ok((pixels, [height, width])),
            _ => Err("takes pixels, not f32 values".into()),
        }
    }
}

fn missing(index: usize) -> OpError {
    format!("its operand {index} is missing").into()
}
