//! Synchronous runs of any executor, and measurements.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::executor::{Download, Executor, FinishOptions, Submission};
use super::hip::{HipExecutor, TimedCall};
use super::host::HostExecutor;
use super::input::Inputs;
use super::output::RunOutputs;
use crate::error::{Error, Result};
use crate::graph::plan::{Plan, Step};
use crate::hip::{Device, Operand};
use crate::tensor::{Input, Tensor};
use crate::timing::Timing;

impl dyn Executor {
    /// Runs `plan` on one input and waits for the results. Adds the time of each phase to `timing`.
    ///
    /// # Errors
    ///
    /// The device has no memory for a run, the input does not fit the plan, or the device fails.
    pub fn run(
        self: &Arc<Self>,
        plan: &Arc<Plan>,
        input: Input<'_>,
        timing: Option<&mut Timing>,
    ) -> Result<RunOutputs> {
        let submission = Submission {
            timed: timing.is_some(),
            ..Submission::default()
        };
        let reservation = self.clone().reserve(plan, None)?;
        let run = reservation.submit(Inputs::of_plan(plan, input.into()), submission)?;
        let finished = run.finish(FinishOptions { timing, keep: None })?;
        Ok(finished.outputs)
    }

    /// Runs `plan` on named inputs and waits for the results.
    ///
    /// # Errors
    ///
    /// The device has no memory for a run, an input is missing, unknown or does not fit the plan, or the device fails.
    pub fn run_inputs(self: &Arc<Self>, plan: &Arc<Plan>, inputs: Inputs<'_>) -> Result<RunOutputs> {
        let reservation = self.clone().reserve(plan, None)?;
        let run = reservation.submit(inputs, Submission::default())?;
        Ok(run.finish(FinishOptions::default())?.outputs)
    }

    /// Returns the elements of the parameter or state `name`, as of the runs that were submitted before. Waits for these runs.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no parameter or state of this name, or is on several devices. Fails if a run failed.
    pub fn state(&self, name: &str) -> Result<Tensor> {
        if let Some(host) = self.host() {
            return host.state(name);
        }
        self.hip().ok_or_else(|| divided("state"))?.state(name)
    }

    /// Sets the elements of the parameter or state `name` for runs that are submitted later.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no parameter or state of this name and shape, or is on several devices. Fails if a run failed.
    pub fn set_state(&self, name: &str, tensor: &Tensor) -> Result<()> {
        if let Some(host) = self.host() {
            return host.set_state(name, tensor);
        }
        self.hip()
            .ok_or_else(|| divided("state"))?
            .set_state(name, tensor)
    }

    /// Sets elements of the parameter or state `name`, from element `first` on, for runs that are submitted later.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the model has no such parameter or state, if it has fewer elements, or is on several devices. Fails if a run
    /// failed.
    pub fn write_state(&self, name: &str, first: usize, values: &[f32]) -> Result<()> {
        if let Some(host) = self.host() {
            return host.write_state(name, first, values);
        }
        self.hip()
            .ok_or_else(|| divided("state"))?
            .write_state(name, first, values)
    }

    /// Runs `plan`, and copies its outputs to states of `target` on the same GPU: output `i` to the state `names[i]`. `ranges` are element ranges of each
    /// output with the first element in the state.
    ///
    /// # Errors
    ///
    /// The errors of a run and of [`HipExecutor::copy_to_state`], and [`Error::Argument`] if an executor is not of one GPU.
    pub fn run_to_states(
        self: &Arc<Self>,
        plan: &Arc<Plan>,
        inputs: Inputs<'_>,
        (target, names): (&Self, &[String]),
        ranges: &[(std::ops::Range<usize>, usize)],
    ) -> Result<()> {
        let target = target.hip().ok_or_else(|| divided("state"))?;
        let reservation = self.clone().reserve(plan, None)?;
        let submission = Submission {
            download: Download::Checked,
            ..Submission::default()
        };
        let run = reservation.submit(inputs, submission)?;
        let mut keep = |index: usize, output: Operand<'_>| {
            let element = plan.buffer(plan.outputs()[index].2).dtype.size();
            for (range, first) in ranges {
                let part = output.part(range.start * element..range.end * element)?;
                target.copy_to_state(&names[index], *first, part)?;
            }
            Ok(())
        };
        run.finish(FinishOptions {
            timing: None,
            keep: Some(&mut keep),
        })?;
        Ok(())
    }

    /// Runs `plan` step by step, and calls `observe` with each step and its time.
    ///
    /// # Errors
    ///
    /// The errors of a run, and [`Error::Argument`] for a model that is divided among several GPUs.
    pub fn run_steps(
        self: &Arc<Self>,
        plan: &Arc<Plan>,
        input: Input<'_>,
        observe: &mut (dyn FnMut(&Step, Duration) + Send),
    ) -> Result<()> {
        if let Some(host) = self.host() {
            return host.run_steps(plan, input, observe);
        }
        let gpu = self.hip().ok_or_else(|| divided("steps"))?;
        gpu.run_steps(plan, input, observe)
    }

    /// Returns the time of each kernel and library call of `plan` on a GPU, with the given inputs or with noise. Empty on the CPU, whose steps
    /// are single calls.
    ///
    /// # Errors
    ///
    /// The errors of a run, and [`Error::Argument`] for a model that is divided among several GPUs.
    pub fn time_calls(&self, plan: &Arc<Plan>, inputs: Option<Inputs<'_>>) -> Result<Vec<TimedCall>> {
        if self.host().is_some() {
            return Ok(Vec::new());
        }
        self.hip()
            .ok_or_else(|| divided("calls"))?
            .time_calls(plan, inputs)
    }

    /// Returns the device time of a run of `plan`; see [`HipExecutor::time_runs`].
    ///
    /// # Errors
    ///
    /// The errors of a run, and [`Error::Argument`] if the model is not on one GPU.
    pub fn time_runs(&self, plan: &Arc<Plan>, time: Duration) -> Result<Duration> {
        let reason = "are of one GPU that has the whole model";
        let gpu = self
            .hip()
            .ok_or_else(|| Error::argument("times of runs", reason))?;
        gpu.time_runs(plan, time)
    }

    /// Returns the executor's GPU, the first of several. `None` on the CPU.
    pub fn gpu(&self) -> Option<&Device> {
        self.info().devices.first()
    }

    /// Returns the executor of one GPU, for measurements that runs do not offer. `None` if it is another kind of executor.
    pub fn hip(&self) -> Option<&HipExecutor> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }

    /// Returns the executor of the CPU. `None` if it is another kind of executor.
    pub fn host(&self) -> Option<&HostExecutor> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}

fn divided(what: &'static str) -> Error {
    let reason = "is available from one device only. This model uses several GPUs";
    Error::argument(what, reason)
}
