//! The input of a run: its copies to the device, or the resizing that produces it.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use half::{bf16, f16};

use super::clock::Clock;
use super::context::{ExecutionContext, Memory};
use super::executor::HipExecutor;
use super::staging::Uploaded;
use crate::error::{Error, Result};
use crate::exec::input::InputData;
use crate::exec::staging::{Given, InputPool};
use crate::graph::plan::Plan;
use crate::tensor::{DType, Input};

/// The copies of a run's input to the device.
#[derive(Default)]
pub(super) struct Uploads {
    pub(super) copies: VecDeque<Uploaded>,
    /// Pool of the input's memory. Set if the input was staged.
    pub(super) staged: Option<Option<Arc<InputPool>>>,
}

impl From<VecDeque<Uploaded>> for Uploads {
    fn from(copies: VecDeque<Uploaded>) -> Self {
        Self { copies, staged: None }
    }
}

impl HipExecutor {
    /// Submits the copies of the input, or the resizing that produces it.
    pub(super) fn feed(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        input: InputData<'_>,
        clock: &mut Option<Clock>,
    ) -> Result<Uploads> {
        let threads = self.info.host.pool();
        let expect = |bytes: usize| {
            if bytes == plan.input_bytes() {
                Ok(())
            } else {
                let reason = format!("has {bytes} bytes, expected {}", plan.input_bytes());
                Err(Error::argument("input", reason))
            }
        };
        // Runs that share the stream copy their input ahead, so that the copy does not wait for other runs.
        let Memory {
            input: memory, ahead, ..
        } = &mut context.memory;
        let target = ahead.as_mut().unwrap_or(&mut *memory);
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
                upload(&elements(plan, input), &mut tick)?.into()
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
        if let Some(ahead) = ahead {
            memory.copy_part_from_peer(0, ahead.reading().part(0..plan.input_bytes())?)?;
        }
        Ok(uploads)
    }
}

/// Returns the input's bytes in the device's format. Activations are rounded to the plan's dtype.
fn elements<'a>(plan: &Plan, input: Input<'a>) -> Cow<'a, [u8]> {
    let values = match input {
        Input::Pixels(pixels) => return pixels.into(),
        Input::Values(values) => values,
    };
    let narrow = |convert: fn(f32) -> u16| values.iter().flat_map(|&v| convert(v).to_le_bytes()).collect();
    match plan.dtype() {
        DType::F16 if plan.graph().takes_activations() => {
            Cow::Owned(narrow(|value| f16::from_f32(value).to_bits()))
        }
        DType::BF16 if plan.graph().takes_activations() => {
            Cow::Owned(narrow(|value| bf16::from_f32(value).to_bits()))
        }
        _ => bytemuck::cast_slice(values).into(),
    }
}
