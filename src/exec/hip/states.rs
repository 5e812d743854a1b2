//! Parameters and states on a GPU, which persist across runs.
//!
//! They are one allocation, which belongs to one stream. All runs of their graph are submitted to this stream, so that they execute in the
//! order of submission. A run reads the values that the run before it wrote. A thread needs the [`Turn`] to submit work to the stream, so
//! that the steps of two runs do not interleave, and nothing is submitted during a capture.
//!
//! Steps write new values to the arena. [`HipExecutor::write_states`] copies them to the states behind all steps of a run. So the steps can
//! be repeated: a captured graph is compared with the steps before its values are copied.

use std::collections::HashMap;

use parking_lot::{Mutex, MutexGuard};

use super::constants::{append, unpack};
use super::context::ExecutionContext;
use super::executor::HipExecutor;
use crate::error::{Error, Result};
use crate::exec::states::{check_shape, state_named};
use crate::graph::plan::{ALIGNMENT, Plan, state_dtype};
use crate::graph::{Graph, ValueId};
use crate::hip::{Device, DeviceAddress, DeviceBuffer, Operand, PinnedBuffer, Stream};
use crate::tensor::{DType, Tensor};

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

/// The right to submit work to the stream of a graph's parameters and states. Without them, runs have their own streams and need no turns.
#[derive(Debug)]
pub(super) struct Turn<'a>(Option<MutexGuard<'a, DeviceBuffer<u8>>>);

impl Turn<'_> {
    /// Returns the memory of the parameters and states, if the graph has any.
    pub(super) fn reading(&self) -> Option<Operand<'_>> {
        self.0.as_ref().map(|memory| memory.reading())
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

    fn place(&self, id: ValueId) -> Result<Place> {
        let place = self.places.get(&id).copied();
        place.ok_or_else(|| Error::internal("states", "the plan is of another graph than the executor"))
    }
}

impl HipExecutor {
    /// Waits for the right to submit work. It must be held while anything is submitted to a context's stream.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn(self.states.as_ref().map(|states| states.memory.lock()))
    }

    /// Returns the stream of all runs, if the graph has parameters or states.
    pub(super) fn stream_of_states(&self) -> Option<&Stream> {
        self.states.as_ref().map(|states| &states.stream)
    }

    /// Returns the address of each parameter and state.
    pub(super) fn addresses_of_states(&self) -> &HashMap<ValueId, DeviceAddress> {
        match &self.states {
            Some(states) => &states.addresses,
            None => &self.no_states,
        }
    }

    /// Returns the size in bytes of a parameter or state on the device. `None` for another value.
    pub(super) fn bytes_of_state(&self, id: ValueId) -> Option<usize> {
        Some(self.states.as_ref()?.places.get(&id)?.bytes)
    }

    /// Copies the new values of a run to the parameters and states, behind the steps of the run.
    pub(super) fn write_states(
        &self,
        context: &ExecutionContext,
        plan: &Plan,
        turn: &mut Turn<'_>,
    ) -> Result<()> {
        let (Some(states), Some(memory)) = (&self.states, &mut turn.0) else {
            return Ok(());
        };
        let arena = context.memory.arena.reading();
        for &(to, id) in plan.updates() {
            let (place, buffer) = (states.place(to)?, plan.buffer(id));
            let source = arena.part(buffer.offset..buffer.offset + buffer.bytes)?;
            let target = memory.writing().part(place.offset..place.offset + place.bytes)?;
            let row = place.bytes.max(1);
            states
                .stream
                .copy_rows((target, row), (source, row), place.bytes, 1)?;
        }
        Ok(())
    }

    /// Returns the elements of the parameter or state `name`, as of the runs that were submitted before. Waits for these runs.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameter or state of this name. Fails if a run failed.
    pub fn state(&self, name: &str) -> Result<Tensor> {
        let (states, id) = self.state_named(name)?;
        let place = states.place(id)?;
        let target = self.device.pinned(place.bytes)?;
        let copy = states.memory.lock().download(place.offset, target)?;
        let values = unpack(&copy.wait()?, place.dtype);
        let tensor = Tensor::from_f32(self.info.graph.value(id).shape.as_slice(), values);
        tensor.ok_or_else(|| Error::internal("states", format!("`{name}` has no elements of its shape")))
    }

    /// Sets the elements of the parameter or state `name`, rounded to its dtype, for runs that are submitted later.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the graph has no parameter or state of this name, or if its shape differs. Fails if a run failed.
    pub fn set_state(&self, name: &str, tensor: &Tensor) -> Result<()> {
        let (states, id) = self.state_named(name)?;
        check_shape(&self.info.graph, id, tensor)?;
        let place = states.place(id)?;
        let mut bytes = Vec::with_capacity(place.bytes);
        append(&mut bytes, &tensor.to_f32(), place.dtype);
        let mut source: PinnedBuffer<u8> = self.device.pinned(place.bytes)?;
        source.copy_from_slice(&bytes);
        let copy = states.memory.lock().upload(place.offset, source)?;
        copy.wait()?;
        Ok(())
    }

    fn state_named(&self, name: &str) -> Result<(&States, ValueId)> {
        let id = state_named(&self.info.graph, name)?;
        let missing = || Error::internal("states", format!("`{name}` is not on the device"));
        Ok((self.states.as_ref().ok_or_else(missing)?, id))
    }
}
