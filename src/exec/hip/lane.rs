//! What one run at a time needs on a device: a stream, the libraries' handles on it, memory, and graphs that replay.

use std::sync::Arc;

use super::lower::scratch_bytes;
use super::preprocess::{DeviceResize, HipPreprocess};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::graph::plan::Plan;
use crate::hip::{Blas, Device, DeviceBuffer, Operand, PinnedBuffer, Replay, Stream};
use crate::image::RgbImage;

/// The most plans that a lane remembers; there is one for each batch size.
const MOST_PLANS: usize = 16;

/// Kept from run to run; its memory grows to the largest plan that it has served.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) stream: Stream,
    pub(super) blas: Blas,
    pub(super) memory: Memory,
    /// On the host: the results, in their order.
    pub(super) results: PinnedPool,
    /// Once it has resized images.
    resize: Option<HipPreprocess>,
    seen: Vec<Seen>,
}

/// A plan that has run on this lane's memory.
#[derive(Debug)]
struct Seen {
    /// With the batch it says which plan: the dtype is the executor's.
    graph: Arc<Graph>,
    batch: usize,
    replay: Option<Replay>,
}

/// The device memory of a lane.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) input: DeviceBuffer<u8>,
    pub(super) arena: DeviceBuffer<u8>,
    pub(super) scratch: DeviceBuffer<u8>,
}

impl Lane {
    /// A lane for `plan`, whose input has `input` bytes.
    pub(super) fn new(device: &Device, plan: &Plan, input: usize) -> Result<Self> {
        let stream = device.stream()?;
        Ok(Self {
            blas: Blas::new(&stream)?,
            memory: Memory {
                input: stream.allocate(input)?,
                arena: stream.allocate(plan.arena_bytes())?,
                scratch: stream.allocate(scratch_bytes(plan))?,
            },
            results: PinnedPool::default(),
            resize: None,
            seen: Vec::new(),
            stream,
        })
    }

    /// Sees that the memory suffices for `plan`.
    pub(super) fn fit(&mut self, plan: &Plan, input: usize) -> Result<()> {
        let Self {
            memory, seen, stream, ..
        } = self;
        for (buffer, bytes) in [
            (&mut memory.input, input),
            (&mut memory.arena, plan.arena_bytes()),
            (&mut memory.scratch, scratch_bytes(plan)),
        ] {
            if buffer.bytes() < bytes {
                // What was captured holds on to the memory that is too small.
                seen.clear();
                *buffer = stream.allocate(0)?;
                *buffer = stream.allocate(bytes)?;
            }
        }
        Ok(())
    }

    /// Submits what makes the input of `images`.
    pub(super) fn resize(&mut self, resize: &DeviceResize, images: &[&RgbImage]) -> Result<()> {
        let on_stream = match &mut self.resize {
            Some(on_stream) => on_stream,
            none => none.insert(HipPreprocess::on(&self.stream, resize)?),
        };
        for (index, image) in images.iter().enumerate() {
            on_stream.enqueue(image, &mut self.memory.input, index)?;
        }
        Ok(())
    }

    /// Whether `plan` has run here, which is remembered from now on.
    pub(super) fn has_seen(&mut self, plan: &Plan) -> bool {
        if self.find(plan).is_some() {
            return true;
        }
        if self.seen.len() == MOST_PLANS {
            self.seen.remove(0);
        }
        self.seen.push(Seen {
            graph: plan.graph().clone(),
            batch: plan.batch(),
            replay: None,
        });
        false
    }

    /// The replay of `plan`'s steps, if there is one.
    pub(super) fn replay(&mut self, plan: &Plan) -> Option<&mut Replay> {
        self.find(plan)?.replay.as_mut()
    }

    pub(super) fn keep_replay(&mut self, plan: &Plan, replay: Replay) {
        if let Some(seen) = self.find(plan) {
            seen.replay = Some(replay);
        }
    }

    fn find(&mut self, plan: &Plan) -> Option<&mut Seen> {
        let is = |seen: &&mut Seen| seen.batch == plan.batch() && Arc::ptr_eq(&seen.graph, plan.graph());
        self.seen.iter_mut().find(is)
    }
}

/// Pinned memory that is between two uses.
#[derive(Debug, Default)]
pub(super) struct PinnedPool(Vec<PinnedBuffer<u8>>);

impl PinnedPool {
    /// `bytes` bytes of arbitrary contents.
    pub(super) fn take(&mut self, bytes: usize, device: &Device) -> Result<PinnedBuffer<u8>> {
        let fits = (0..self.0.len()).filter(|&index| self.0[index].capacity() >= bytes);
        match fits.min_by_key(|&index| self.0[index].capacity()) {
            Some(index) => {
                let mut buffer = self.0.swap_remove(index);
                buffer.set_len(bytes)?;
                Ok(buffer)
            }
            None => {
                // The larger one takes the place of one that is too small.
                self.0.pop();
                Ok(device.pinned(bytes)?)
            }
        }
    }

    pub(super) fn keep(&mut self, buffer: PinnedBuffer<u8>) {
        self.0.push(buffer);
    }
}

/// The memory that steps may touch.
pub(super) struct Regions<'a>(pub(super) [Operand<'a>; 4]);

impl<'a> Regions<'a> {
    /// What of a region lies from `address` on.
    pub(super) fn from(&self, address: u64) -> Result<Operand<'a>> {
        for region in &self.0 {
            let offset = address.checked_sub(region.address()).map(|o| o as usize);
            if let Some(offset) = offset.filter(|&o| o < region.bytes()) {
                return Ok(region.part(offset..region.bytes())?);
            }
        }
        Err(Error::argument(
            "address",
            format!("{address:#x} is not in the memory of the run"),
        ))
    }
}
