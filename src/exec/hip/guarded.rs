//! Runs in memory of their own with known contents before, returned whole, for [`crate::validate`].

use std::time::Duration;

use super::HipExecutor;
use super::context::Regions;
use super::lower::scratch_bytes;
use crate::error::Result;
use crate::graph::plan::Plan;
use crate::hip::Blas;
use crate::tensor::Input;

impl HipExecutor {
    /// Runs `plan` for as long as `again` says, which gets the device's time of the last step of each run. The arena, with
    /// `margin` bytes (a multiple of [`ALIGNMENT`](crate::graph::plan::ALIGNMENT)) before and after it, was all `fill` before;
    /// returns what it is afterwards.
    ///
    /// # Errors
    ///
    /// As for [`HipExecutor::run`].
    pub(crate) fn run_guarded(
        &self,
        plan: &Plan,
        input: Input<'_>,
        (margin, fill): (usize, u8),
        mut again: impl FnMut(Duration) -> bool,
    ) -> Result<Vec<u8>> {
        plan.graph().check_input(input, plan.batch())?;
        let stream = self.device.stream()?;
        let mut blas = Blas::new(&stream)?;
        let input = match input {
            Input::Pixels(pixels) => stream.upload(pixels)?,
            Input::Values(values) => stream.upload(bytemuck::cast_slice(values))?,
        };
        let mut scratch = stream.allocate::<u8>(scratch_bytes(plan).max(1))?;
        let mut memory = stream.allocate::<u8>(plan.arena_bytes() + 2 * margin)?;
        memory.fill(fill)?;
        loop {
            let regions = Regions([
                memory.writing().part(margin..margin + plan.arena_bytes())?,
                self.constants.reading(),
                input.reading(),
                scratch.writing(),
            ]);
            let mut last = Duration::ZERO;
            for step in plan.steps() {
                let before = stream.record()?;
                self.submit_step(plan, step, &regions, &stream, &mut blas)?;
                last = stream.record()?.since(&before)?;
            }
            if !again(last) {
                return Ok(memory.read()?);
            }
        }
    }
}
