//! The inputs of a run: their copies to the device, or the resizing that produces the first one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use super::clock::Clock;
use super::context::{ExecutionContext, Memory};
use super::elements::append;
use super::executor::HipExecutor;
use super::staging::{Uploaded, fill};
use crate::error::{Error, Result};
use crate::exec::input::{InputData, PlanInputs};
use crate::exec::staging::{Given, HostPool};
use crate::graph::plan::{ALIGNMENT, Plan, PlanInput};
use crate::hip::PinnedBuffer;
use crate::tensor::{DType, Input};

/// The copies of a run's inputs to the device.
#[derive(Default)]
pub(super) struct Uploads {
    /// Copies of the first input.
    pub(super) copies: VecDeque<Uploaded>,
    /// Pool of the input's memory. Set if the input was staged.
    pub(super) staged: Option<Option<Arc<HostPool>>>,
    /// Copies of the other inputs.
    pub(super) others: VecDeque<Uploaded>,
}

impl From<VecDeque<Uploaded>> for Uploads {
    fn from(copies: VecDeque<Uploaded>) -> Self {
        Self {
            copies,
            ..Self::default()
        }
    }
}

impl HipExecutor {
    /// Submits the copies of the inputs, or the resizing that produces the first one. If the GPU shares the host's memory, passes it inputs
    /// on the host without copies.
    pub(super) fn feed(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        inputs: PlanInputs<'_>,
        clock: &mut Option<Clock>,
    ) -> Result<Uploads> {
        if self.accepts_in_place(plan, &inputs) {
            return self.feed_in_place(context, plan, inputs);
        }
        context.fit_input(plan.input_bytes())?;
        let PlanInputs { first, rest } = inputs;
        // Images are resized in the memory of the run itself.
        let others = plan
            .inputs()
            .get(1)
            .map_or(plan.input_bytes(), |input| input.offset);
        let from = if matches!(first, InputData::Images(_)) {
            others
        } else {
            0
        };
        let joins_first = !rest.is_empty() && matches!(first, InputData::Host(_) | InputData::Bytes(_));
        let (mut uploads, given, skipped) = if joins_first {
            let given = std::iter::once(first).chain(rest).collect();
            (Uploads::default(), given, 0)
        } else {
            (self.feed_first(context, plan, first, clock)?, rest, 1)
        };
        let mut tick = || match clock {
            Some(clock) if joins_first => clock.tick_input(&self.memory.copier),
            _ => Ok(()),
        };
        tick()?;
        let mut joined = Joined::default();
        for (input, data) in plan.inputs().iter().skip(skipped).zip(&given) {
            if let InputData::Device(source) = data {
                expect_bytes(plan, input, source.bytes())?;
                let mut copies = context.memory.input_target().uploads_on(source.stream())?;
                copies.push_foreign(input.offset, source)?;
                uploads.others.push_back(copies.finish()?);
                continue;
            }
            let bytes = bytes_of(plan, input, data)?;
            if !joined.extends_to(input.offset) {
                self.upload_joined(context, std::mem::take(&mut joined), &mut uploads.others)?;
            }
            joined.push(input.offset, bytes);
        }
        self.upload_joined(context, joined, &mut uploads.others)?;
        tick()?;
        let Memory { input, ahead, .. } = &mut context.memory;
        if let Some(ahead) = ahead {
            input.copy_part_from_peer(from, ahead.reading().part(from..plan.input_bytes())?)?;
        }
        Ok(uploads)
    }

    /// Returns true if the GPU can read all inputs in host memory.
    fn accepts_in_place(&self, plan: &Plan, inputs: &PlanInputs<'_>) -> bool {
        let accepts = |input: &InputData<'_>| match input {
            InputData::Host(_) | InputData::Bytes(_) => true,
            // Kernels take all inputs from one allocation.
            InputData::Staged(staging) => {
                let is_near = |memory: &PinnedBuffer<u8>| memory.device() == &self.device;
                plan.inputs().len() == 1 && staging.memory().is_some_and(is_near)
            }
            InputData::Images(_) | InputData::Device(_) | InputData::Peer(_) => false,
        };
        self.shares_host_memory() && accepts(&inputs.first) && inputs.rest.iter().all(accepts)
    }

    /// Passes inputs to kernels in host memory: in that which they are staged in, or in a copy on the host.
    fn feed_in_place(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        inputs: PlanInputs<'_>,
    ) -> Result<Uploads> {
        let mut uploads = Uploads::default();
        let PlanInputs { first, rest } = inputs;
        let memory = match first {
            InputData::Staged(staging) => {
                let Given::Pinned(memory, pool) = staging.give() else {
                    return Err(Error::internal("input", "is not in pinned memory"));
                };
                let [only] = plan.inputs() else {
                    return Err(Error::internal("inputs", "are not in one allocation"));
                };
                expect_bytes(plan, only, memory.len())?;
                uploads.staged = Some(pool);
                memory
            }
            first => {
                let mut memory = self.memory.inputs.take(plan.input_bytes())?;
                let threads = self.info.host.pool();
                for (input, data) in plan.inputs().iter().zip(std::iter::once(&first).chain(&rest)) {
                    let bytes = bytes_of(plan, input, data)?;
                    fill(&mut memory[input.offset..][..input.bytes], &bytes, threads);
                }
                memory
            }
        };
        context.memory.host_input = Some(context.stream.lend(memory)?);
        Ok(uploads)
    }

    /// Submits the copy of inputs beside each other.
    fn upload_joined(
        &self,
        context: &mut ExecutionContext,
        joined: Joined<'_>,
        submitted: &mut VecDeque<Uploaded>,
    ) -> Result<()> {
        if joined.parts.is_empty() {
            return Ok(());
        }
        let parts: Vec<&[u8]> = joined.parts.iter().map(|part| &**part).collect();
        let uploads = context.memory.input_target().uploads_on(&self.memory.copier)?;
        let (pieces, threads) = (&self.memory.pieces, self.info.host.pool());
        pieces.upload(uploads, joined.start, &parts, &self.device, threads, submitted)
    }

    /// Submits the copy of the first input, or the resizing that produces it.
    fn feed_first(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        input: InputData<'_>,
        clock: &mut Option<Clock>,
    ) -> Result<Uploads> {
        let threads = self.info.host.pool();
        let Some(of_plan) = plan.inputs().first() else {
            return Err(Error::internal("inputs", "the plan has none"));
        };
        let expect = |bytes: usize| {
            if bytes == of_plan.bytes {
                Ok(())
            } else {
                let reason = format!("has {bytes} bytes, expected {}", of_plan.bytes);
                Err(Error::argument("input", reason))
            }
        };
        let target = context.memory.input_target();
        let stream = match &input {
            InputData::Host(_) | InputData::Bytes(_) | InputData::Staged(_) => self.memory.copier.clone(),
            InputData::Images(_) => context.stream.clone(),
            InputData::Peer(_) => target.stream().clone(),
            InputData::Device(source) => source.stream().clone(),
        };
        let mut tick = || clock.as_mut().map_or(Ok(()), |clock| clock.tick_input(&stream));
        let mut upload = |bytes: &[u8], tick: &mut dyn FnMut() -> Result<()>| -> Result<VecDeque<Uploaded>> {
            expect(bytes.len())?;
            tick()?;
            let mut submitted = VecDeque::new();
            let pieces = &self.memory.pieces;
            pieces.upload(
                target.uploads_on(&stream)?,
                0,
                &[bytes],
                &self.device,
                threads,
                &mut submitted,
            )?;
            Ok(submitted)
        };
        let uploads: Uploads = match input {
            InputData::Host(input) => {
                plan.graph().check_input(input, plan.batch())?;
                upload(&elements(of_plan.dtype, input), &mut tick)?.into()
            }
            InputData::Bytes(bytes) => upload(bytes, &mut tick)?.into(),
            InputData::Staged(staging) => match staging.give() {
                Given::Pinned(input, pool) => {
                    expect(input.len())?;
                    tick()?;
                    let mut uploads = target.uploads_on(&stream)?;
                    uploads.push(0, input)?;
                    Uploads {
                        copies: VecDeque::from([uploads.finish()?]),
                        staged: Some(pool),
                        others: VecDeque::new(),
                    }
                }
                Given::Host(bytes) => upload(&bytes, &mut tick)?.into(),
            },
            InputData::Device(source) => {
                expect(source.bytes())?;
                tick()?;
                let mut uploads = target.uploads_on(&stream)?;
                uploads.push_foreign(0, &source)?;
                VecDeque::from([uploads.finish()?]).into()
            }
            InputData::Peer(source) => {
                expect(source.bytes())?;
                tick()?;
                target.copy_part_from_peer(0, source)?;
                Uploads::default()
            }
            InputData::Images(images) => {
                let Some(resize) = &self.resize else {
                    let reason = "the executor has no rule to resize them by";
                    return Err(Error::argument("images", reason));
                };
                resize.check(plan, images.images.len())?;
                tick()?;
                let uploads = context.resize(resize, images, &self.memory.pieces, threads)?;
                tick()?;
                return Ok(uploads.into());
            }
        };
        tick()?;
        Ok(uploads)
    }
}

/// Inputs in host memory that are beside each other in the device's, with the padding between them. One copy takes less time than one for each.
#[derive(Default)]
struct Joined<'a> {
    /// Offset of the first input.
    start: usize,
    /// End of the last input.
    end: usize,
    parts: Vec<Cow<'a, [u8]>>,
}

impl<'a> Joined<'a> {
    /// Returns true if nothing but padding is between the last input and `offset`.
    fn extends_to(&self, offset: usize) -> bool {
        self.parts.is_empty() || offset - self.end < ALIGNMENT
    }

    fn push(&mut self, offset: usize, bytes: Cow<'a, [u8]>) {
        const PADDING: [u8; ALIGNMENT] = [0; ALIGNMENT];
        if self.parts.is_empty() {
            self.start = offset;
        } else {
            self.parts.push(Cow::Borrowed(&PADDING[..offset - self.end]));
        }
        self.end = offset + bytes.len();
        self.parts.push(bytes);
    }
}

/// Returns the bytes of an input on the host, in the device's format.
fn bytes_of<'a>(plan: &Plan, input: &PlanInput, data: &'a InputData<'_>) -> Result<Cow<'a, [u8]>> {
    let bytes = match data {
        InputData::Host(values) => {
            plan.graph()
                .check_one_of_inputs(input.input, *values, plan.batch())?;
            elements(input.dtype, *values)
        }
        InputData::Bytes(bytes) => (*bytes).into(),
        InputData::Staged(staging) => (&**staging).into(),
        InputData::Images(_) | InputData::Device(_) | InputData::Peer(_) => {
            let name = plan.graph().input_name(input.input);
            let reason = format!("`{name}` must be elements. Only the first input can be images");
            return Err(Error::argument("inputs", reason));
        }
    };
    expect_bytes(plan, input, bytes.len())?;
    Ok(bytes)
}

/// Checks the size of an input.
fn expect_bytes(plan: &Plan, input: &PlanInput, bytes: usize) -> Result<()> {
    if bytes == input.bytes {
        return Ok(());
    }
    let expected = input.bytes;
    if plan.inputs().len() == 1 {
        let reason = format!("has {bytes} bytes, expected {expected}");
        return Err(Error::argument("input", reason));
    }
    let name = plan.graph().input_name(input.input);
    let reason = format!("`{name}` has {bytes} bytes, expected {expected}");
    Err(Error::argument("inputs", reason))
}

/// Returns the input's bytes in the device's format. Values are rounded to `dtype`.
fn elements(dtype: DType, input: Input<'_>) -> Cow<'_, [u8]> {
    let values = match input {
        Input::Pixels(pixels) => return pixels.into(),
        Input::Integers(values) => return bytemuck::cast_slice(values).into(),
        Input::Values(values) => values,
    };
    if dtype == DType::F32 {
        return bytemuck::cast_slice(values).into();
    }
    let mut bytes = Vec::with_capacity(values.len() * dtype.size());
    append(&mut bytes, values, dtype);
    bytes.into()
}
