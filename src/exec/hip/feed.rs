//! The input of a run: what it comes from, the pinned memory for it, and its copies to the device.

use std::collections::VecDeque;
use std::sync::Arc;

use rayon::ThreadPool;

use super::clock::Clock;
use super::context::{ExecutionContext, Memory};
use super::{HipExecutor, staging};
use crate::error::{Error, Result};
use crate::exec::slabs::{Images, Slabs};
use crate::graph::plan::Plan;
use crate::hip::{ForeignMemory, Operand, Pending, PinnedBuffer};

/// What a run takes its input from.
pub(in crate::exec) enum Feed<'a> {
    /// The plan's input, in pinned memory.
    Pinned(PinnedBuffer<u8>),
    /// The plan's input, in any memory.
    Pageable(&'a [u8]),
    /// Decoded images, which the device resizes.
    Images(Images<'a>),
    /// What the stage before left, on its device.
    Activations(Operand<'a>),
    /// The plan's input, on this device, in memory of the caller's.
    Device(ForeignMemory),
}

/// Pinned memory in copies to the device.
pub(super) type Uploaded = Pending<Vec<PinnedBuffer<u8>>>;

impl HipExecutor {
    /// Pinned memory for an input of `bytes` bytes.
    pub(in crate::exec) fn stage(&self, bytes: usize) -> Result<PinnedBuffer<u8>> {
        // The lock is released before the driver is asked for memory.
        let unused = self.inputs.lock().reuse(bytes)?;
        match unused {
            Some(buffer) => Ok(buffer),
            None => self.pinned(bytes),
        }
    }

    /// Pinned memory for decoded images.
    pub(in crate::exec) fn slabs(&self) -> &Arc<Slabs> {
        &self.slabs
    }

    /// Pinned memory for an input of `bytes` bytes that the caller keeps; zero.
    pub(in crate::exec) fn pinned(&self, bytes: usize) -> Result<PinnedBuffer<u8>> {
        Ok(self.device.pinned(bytes)?)
    }

    /// Takes pinned memory back, for the inputs of later runs.
    pub(in crate::exec) fn keep(&self, memory: Vec<PinnedBuffer<u8>>) {
        let (pieces, inputs): (Vec<_>, Vec<_>) = memory.into_iter().partition(staging::is_piece);
        self.pieces.keep(pieces);
        let mut pool = self.inputs.lock();
        inputs.into_iter().for_each(|input| pool.keep(input));
    }

    /// Submits the copy of the input, or the resizing that produces it.
    pub(super) fn feed(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        feed: Feed<'_>,
        threads: &ThreadPool,
        clock: &mut Option<Clock>,
    ) -> Result<VecDeque<Uploaded>> {
        let expect = |bytes: usize| {
            if bytes == plan.input_bytes() {
                Ok(())
            } else {
                let reason = format!("has {bytes} bytes, expected {}", plan.input_bytes());
                Err(Error::argument("input", reason))
            }
        };
        // Where runs wait for each other on one stream, copies do not wait with them.
        let Memory { input, ahead, .. } = &mut context.memory;
        let target = ahead.as_mut().unwrap_or(&mut *input);
        let stream = match feed {
            Feed::Pinned(_) | Feed::Pageable(_) => self.copier.clone(),
            Feed::Images(_) => context.stream.clone(),
            Feed::Activations(_) => target.stream().clone(),
            Feed::Device(ref source) => source.stream().clone(),
        };
        let mut tick = || clock.as_mut().map_or(Ok(()), |clock| clock.tick_input(&stream));
        let uploads = match feed {
            Feed::Pinned(input) => {
                expect(input.len())?;
                tick()?;
                let mut uploads = target.uploads_on(&stream)?;
                uploads.push(0, input)?;
                VecDeque::from([uploads.finish()?])
            }
            Feed::Pageable(input) => {
                expect(input.len())?;
                tick()?;
                let uploads = target.uploads_on(&stream)?;
                let mut submitted = VecDeque::new();
                let with = (&self.device, threads);
                self.pieces.upload(uploads, &[input], with, &mut submitted)?;
                submitted
            }
            Feed::Device(source) => {
                expect(source.bytes())?;
                tick()?;
                let mut uploads = target.uploads_on(&stream)?;
                uploads.push_foreign(0, &source)?;
                VecDeque::from([uploads.finish()?])
            }
            Feed::Activations(source) => {
                expect(source.bytes())?;
                tick()?;
                target.copy_part_from_peer(0, source)?;
                VecDeque::new()
            }
            Feed::Images(images) => {
                let Some(resize) = &self.resize else {
                    let reason = "the executor has no rule to resize them by";
                    return Err(Error::argument("images", reason));
                };
                resize.check(plan, images.images.len())?;
                tick()?;
                let uploads = context.resize(resize, images, &self.pieces, threads)?;
                tick()?;
                return Ok(uploads);
            }
        };
        tick()?;
        if let Some(ahead) = ahead {
            input.copy_part_from_peer(0, ahead.reading().part(0..plan.input_bytes())?)?;
        }
        Ok(uploads)
    }
}
