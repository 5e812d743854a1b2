//! Runs in memory with known contents, for [`crate::validate`].

use std::iter;
use std::time::Duration;

use super::executor::HipExecutor;
use super::libraries::Libraries;
use super::lower::{counter_bytes, scratch_bytes};
use super::regions::Regions;
use crate::error::{Error, Result};
use crate::graph::plan::{Plan, Step};
use crate::hip::DeviceBuffer;
use crate::tensor::Input;

impl HipExecutor {
    /// Runs `plan` in an arena filled with `fill`, with `margin` bytes before and after it. `margin` is a multiple of
    /// [`ALIGNMENT`](crate::graph::plan::ALIGNMENT). Returns the arena and its margins after the run.
    ///
    /// Then calls `measure` with the device time of the last step, and with a function that submits this step the given number of times and
    /// returns the total device time.
    ///
    /// # Errors
    ///
    /// A step cannot be submitted, or the device fails.
    pub fn run_guarded(
        &self,
        plan: &Plan,
        input: Input<'_>,
        (margin, fill): (usize, u8),
        measure: impl FnOnce(Duration, &mut dyn FnMut(usize) -> Result<Duration>) -> Result<()>,
    ) -> Result<Vec<u8>> {
        plan.graph().check_input(input, plan.batch())?;
        let mut turn = self.turn();
        let stream = match &self.states {
            Some(states) => states.stream().clone(),
            None => self.device.stream()?,
        };
        let mut libraries = Libraries::new(&stream, None);
        let input = match input {
            Input::Pixels(pixels) => stream.upload(pixels)?,
            Input::Values(values) => stream.upload(bytemuck::cast_slice(values))?,
            Input::Integers(values) => stream.upload(bytemuck::cast_slice(values))?,
        };
        let mut scratch = stream.allocate::<u8>(scratch_bytes(plan).max(1))?;
        let mut counters = stream.zeroed::<u8>(counter_bytes(plan).max(1))?;
        let mut memory = stream.allocate::<u8>(plan.arena_bytes() + 2 * margin)?;
        memory.fill(fill)?;
        let (steps, last) = match plan.steps() {
            [steps @ .., last] => (steps, last),
            [] => return Ok(memory.read()?),
        };
        let mut submit = |memory: &mut DeviceBuffer<u8>, steps: &mut dyn Iterator<Item = &Step>| {
            let regions = Regions {
                arena: memory.writing().part(margin..margin + plan.arena_bytes())?,
                results: None,
                constants: self.constants.reading(),
                states: turn.writing(),
                inputs: input.reading(),
                scratch: scratch.writing(),
                counters: counters.writing(),
            };
            for step in steps {
                let calls = self.calls(plan, step, &regions)?;
                libraries
                    .submit(calls, plan.batch(), &self.selection, &self.kernels, &regions)
                    .map_err(|error| self.at_node(plan.node(step), error))?;
            }
            Ok::<_, Error>(())
        };
        submit(&mut memory, &mut steps.iter())?;
        let mut timed = |memory: &mut DeviceBuffer<u8>, count: usize| -> Result<Duration> {
            let before = stream.record()?;
            submit(memory, &mut iter::repeat_n(last, count))?;
            Ok(stream.record()?.since(&before)?)
        };
        let first = timed(&mut memory, 1)?;
        let result = memory.read()?;
        measure(first, &mut |count| timed(&mut memory, count))?;
        Ok(result)
    }
}
