//! Parameters and states on a GPU, which persist across runs.
//!
//! They are one allocation, which belongs to one stream. All runs of their graph are submitted to this stream, so that they execute in the
//! order of submission. A run reads the values that the run before it wrote. A thread needs the [`Turn`] to submit work to the stream, so
//! that the steps of two runs do not interleave, and nothing is submitted during a capture.
//!
//! Updates of weights write to the states themselves ([`InPlace`]). Other steps write new values to the arena, and [`States::write`] copies them
//! to the states behind all steps of a run. A captured graph is compared with its steps before these copies, and from a copy of the states.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::{Mutex, MutexGuard};

use super::elements::{append, unpack};
use super::lower::InPlace;
use crate::error::{Error, Result};
use crate::graph::plan::{ALIGNMENT, BufferId, Plan, state_dtype};
use crate::graph::{Graph, ValueId};
use crate::hip::{self, Device, DeviceAddress, DeviceBuffer, Operand, PinnedBuffer, Stream};
use crate::tensor::DType;

/// The parameters and states of a graph.
#[derive(Debug)]
pub(super) struct States {
    stream: Stream,
    memory: Mutex<DeviceBuffer<u8>>,
    places: HashMap<ValueId, Place>,
    addresses: HashMap<ValueId, DeviceAddress>,
    bytes: usize,
}

/// Place of a parameter or state in the memory.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: usize,
    bytes: usize,
    dtype: DType,
}

/// A copy from the arena to the memory of the states.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: usize,
    to: usize,
    bytes: usize,
}

/// The right to submit work to the stream of a graph's parameters and states. Without them, runs have their own streams and need no turns.
#[derive(Debug)]
pub(super) struct Turn<'a>(Option<MutexGuard<'a, DeviceBuffer<u8>>>);

impl Turn<'_> {
    /// The turn of a run without parameters and states.
    pub(super) const FREE: Self = Self(None);

    /// Returns the memory of the parameters and states, if the graph has any.
    pub(super) fn writing(&mut self) -> Option<Operand<'_>> {
        self.0.as_mut().map(|memory| memory.writing())
    }

    /// Returns a copy of the parameters and states. `None` without a turn, or if the device has no memory for it.
    pub(super) fn copied(&self) -> Result<Option<DeviceBuffer<u8>>> {
        let Some(memory) = &self.0 else {
            return Ok(None);
        };
        let mut copy = match memory.stream().allocate(memory.bytes()) {
            Err(hip::Error::OutOfMemory { .. }) => return Ok(None),
            copy => copy?,
        };
        copy.copy_from(memory.reading())?;
        Ok(Some(copy))
    }

    /// Sets the parameters and states to those of a [backup](super::executor::HipExecutor::backup).
    pub(super) fn restore(&mut self, backup: &DeviceBuffer<u8>) -> Result<()> {
        let Some(memory) = &mut self.0 else {
            return Err(Error::internal("states", "are restored without a turn"));
        };
        Ok(memory.copy_from(backup.reading())?)
    }
}

impl States {
    /// Uploads the initial elements. `None` if the graph has no parameters and states.
    ///
    /// # Errors
    ///
    /// [`Error::Graph`], naming the parameter or state, if it was released. Fails if the device has too little memory.
    pub(super) fn upload(graph: &Graph, dtype: DType, device: &Device) -> Result<Option<Self>> {
        let mut bytes = Vec::new();
        let mut places = HashMap::new();
        for id in graph.states() {
            let value = graph.value(id);
            let initial = value.initial.as_ref();
            let initial =
                initial.ok_or_else(|| Error::graph(&value.name, "has no elements: they were released"))?;
            let dtype = state_dtype(graph, id, dtype);
            let offset = bytes.len();
            append(&mut bytes, &initial.to_f32(), dtype);
            let place = Place {
                offset,
                bytes: bytes.len() - offset,
                dtype,
            };
            places.insert(id, place);
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        }
        if places.is_empty() {
            return Ok(None);
        }
        let stream = device.stream()?;
        let memory = stream.upload(&bytes)?;
        let at = |(&id, place): (&ValueId, &Place)| (id, memory.address().offset(place.offset));
        Ok(Some(Self {
            addresses: places.iter().map(at).collect(),
            bytes: memory.bytes(),
            memory: Mutex::new(memory),
            places,
            stream,
        }))
    }

    /// Returns the bytes of all parameters and states.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the stream of all runs.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the address of each parameter and state.
    pub(super) fn addresses(&self) -> &HashMap<ValueId, DeviceAddress> {
        &self.addresses
    }

    /// Returns the size in bytes of a parameter or state. `None` for another value.
    pub(super) fn bytes_of(&self, id: ValueId) -> Option<usize> {
        Some(self.places.get(&id)?.bytes)
    }

    /// Returns the place of a parameter or state in the memory, in bytes. `None` for another value.
    pub(super) fn range(&self, id: ValueId) -> Option<Range<usize>> {
        let place = self.places.get(&id)?;
        Some(place.offset..place.offset + place.bytes)
    }

    /// Waits for the right to submit work.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn(Some(self.memory.lock()))
    }

    /// Copies the new values of a run of `plan` from its arena, behind the steps of the run.
    pub(super) fn write(
        &self,
        arena: Operand<'_>,
        plan: &Plan,
        in_place: &InPlace,
        turn: &mut Turn<'_>,
    ) -> Result<()> {
        let Some(memory) = &mut turn.0 else {
            return Err(Error::internal("states", "are written without a turn"));
        };
        for Move { from, to, bytes } in self.moves(plan, in_place)? {
            let source = arena.part(from..from + bytes)?;
            let target = memory.writing().part(to..to + bytes)?;
            let row = bytes.max(1);
            self.stream.copy_rows((target, row), (source, row), bytes, 1)?;
        }
        Ok(())
    }

    /// Returns the copies of the new values of `plan`. Neighbours are copied at once.
    fn moves(&self, plan: &Plan, in_place: &InPlace) -> Result<Vec<Move>> {
        let one = |&(to, id): &(ValueId, BufferId)| {
            let (place, buffer) = (self.place(to)?, plan.buffer(id));
            Ok(Move {
                from: buffer.offset,
                to: place.offset,
                bytes: place.bytes,
            })
        };
        let is_copied = |&&(_, id): &&(ValueId, BufferId)| in_place.state(plan.buffer(id).value).is_none();
        let copied = plan.updates().iter().filter(is_copied);
        let mut all: Vec<Move> = copied.map(one).collect::<Result<_>>()?;
        all.sort_by_key(|copy| copy.to);
        let mut merged: Vec<Move> = Vec::new();
        for copy in all {
            if let Some(before) = merged.last_mut()
                && before.from + before.bytes.next_multiple_of(ALIGNMENT) == copy.from
                && before.to + before.bytes.next_multiple_of(ALIGNMENT) == copy.to
            {
                before.bytes = copy.to + copy.bytes - before.to;
            } else {
                merged.push(copy);
            }
        }
        Ok(merged)
    }

    /// Returns the elements of a parameter or state, as of the runs that were submitted before. Waits for these runs.
    pub(super) fn read(&self, id: ValueId) -> Result<Vec<f32>> {
        let place = self.place(id)?;
        let target = self.stream.device().pinned(place.bytes)?;
        let copy = self.memory.lock().download(place.offset, target)?;
        Ok(unpack(&copy.wait()?, place.dtype))
    }

    /// Sets elements of a parameter or state, from element `first` on, rounded to its dtype, for runs that are submitted later. The caller checks the length.
    pub(super) fn write_part(&self, id: ValueId, first: usize, values: &[f32]) -> Result<()> {
        let place = self.place(id)?;
        let mut bytes = Vec::with_capacity(values.len() * place.dtype.size());
        append(&mut bytes, values, place.dtype);
        let mut source: PinnedBuffer<u8> = self.stream.device().pinned(bytes.len())?;
        source.copy_from_slice(&bytes);
        let at = place.offset + first * place.dtype.size();
        let copy = self.memory.lock().upload(at, source)?;
        copy.wait()?;
        Ok(())
    }

    /// Sets elements of a parameter or state, from element `first` on, for runs that are submitted later. The caller checks the length.
    pub(super) fn copy_part(&self, id: ValueId, first: usize, source: Operand<'_>) -> Result<()> {
        let place = self.place(id)?;
        let at = place.offset + first * place.dtype.size();
        Ok(self.memory.lock().copy_part_from_peer(at, source)?)
    }

    pub(super) fn dtype_of(&self, id: ValueId) -> Result<DType> {
        Ok(self.place(id)?.dtype)
    }

    fn place(&self, id: ValueId) -> Result<Place> {
        let place = self.places.get(&id).copied();
        place.ok_or_else(|| Error::internal("states", "the plan is of another graph than the executor"))
    }
}
