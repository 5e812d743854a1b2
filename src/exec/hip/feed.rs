//! The inputs of a run: their copies to the device, or the resizing that produces the first one.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use super::clock::Clock;
use super::context::{ExecutionContext, Memory};
use super::elements::append;
use super::executor::HipExecutor;
use super::staging::Uploaded;
use crate::error::{Error, Result};
use crate::exec::input::{InputData, PlanInputs};
use crate::exec::staging::{Given, HostPool};
use crate::graph::plan::{Plan, PlanInput};
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
    /// Submits the copies of the inputs, or the resizing that produces the first one.
    pub(super) fn feed(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        inputs: PlanInputs<'_>,
        clock: &mut Option<Clock>,
    ) -> Result<Uploads> {
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
        let mut uploads = self.feed_first(context, plan, first, clock)?;
        for (input, data) in plan.inputs().iter().skip(1).zip(rest) {
            self.feed_other(context, plan, input, data, &mut uploads.others)?;
        }
        let Memory { input, ahead, .. } = &mut context.memory;
        if let Some(ahead) = ahead {
            input.copy_part_from_peer(from, ahead.reading().part(from..plan.input_bytes())?)?;
        }
        Ok(uploads)
    }

    /// Submits the copy of an input beside the first one.
    fn feed_other(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        input: &PlanInput,
        data: InputData<'_>,
        submitted: &mut VecDeque<Uploaded>,
    ) -> Result<()> {
        let name = plan.graph().input_name(input.input);
        let expect = |bytes: usize| {
            if bytes == input.bytes {
                return Ok(());
            }
            let reason = format!("`{name}` has {bytes} bytes, expected {}", input.bytes);
            Err(Error::argument("inputs", reason))
        };
        let target = context.memory.input_target();
        let bytes: Cow<'_, [u8]> = match &data {
            InputData::Host(values) => {
                plan.graph()
                    .check_one_of_inputs(input.input, *values, plan.batch())?;
                elements(input.dtype, *values)
            }
            InputData::Bytes(bytes) => (*bytes).into(),
            InputData::Staged(staging) => (&**staging).into(),
            InputData::Device(source) => {
                expect(source.bytes())?;
                let mut uploads = target.uploads_on(source.stream())?;
                uploads.push_foreign(input.offset, source)?;
                submitted.push_back(uploads.finish()?);
                return Ok(());
            }
            InputData::Images(_) | InputData::Peer(_) => {
                let reason = format!("`{name}` must be elements. Only the first input can be images");
                return Err(Error::argument("inputs", reason));
            }
        };
        expect(bytes.len())?;
        let uploads = target.uploads_on(&self.memory.copier)?;
        let (pieces, threads) = (&self.memory.pieces, self.info.host.pool());
        pieces.upload(uploads, input.offset, &[&bytes], &self.device, threads, submitted)
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
