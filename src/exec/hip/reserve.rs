//! Reservation of a run's device memory: an idle execution context, grown if needed, or a new one.

use std::sync::Arc;
use std::time::Duration;

use super::clock::Stage;
use super::context::{ExecutionContext, Memory, Reserved};
use super::executor::HipExecutor;
use super::lower::SparseForm;
use super::run::HipRun;
use super::states::States;
use crate::error::{Error, Result};
use crate::exec::executor::{Executor, ExecutorInfo, PendingRun, Reservation, Statistics, Submission};
use crate::exec::input::{InputData, Inputs};
use crate::exec::slabs::Slabs;
use crate::exec::staging::Staging;
use crate::graph::ValueId;
use crate::graph::inspection::{DeviceMemory, Region};
use crate::graph::plan::{Plan, Step};
use crate::hip::{self, DeviceAddress, Operand, PinnedBuffer};
use crate::kernels::sparse_bytes;
use crate::tensor::Input;
use crate::timeline::{self, Activity};

/// Memory for a run on one GPU.
pub(super) struct HipReservation {
    pub(super) executor: Arc<HipExecutor>,
    pub(super) reserved: Reserved,
}

impl Executor for HipExecutor {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn plan(&self, batch: usize) -> Result<Arc<Plan>> {
        self.plans.get(batch)
    }

    fn stage(&self, bytes: usize, capacity: usize) -> Result<Staging> {
        let inputs = &self.memory.inputs;
        let mut memory = inputs.take(capacity.max(bytes))?;
        memory.set_len(bytes)?;
        Ok(Staging::pinned(memory, Some(inputs.clone()), &self.info.host))
    }

    fn slabs(&self) -> Option<Arc<Slabs>> {
        self.info.resizes.then(|| self.memory.slabs.clone())
    }

    fn reserve(self: Arc<Self>, plan: &Arc<Plan>, near: Option<&Staging>) -> Result<Box<dyn Reservation>> {
        let is_near =
            |memory: &&PinnedBuffer<u8>| self.shares_host_memory() && memory.device() == &self.device;
        let staged = near.and_then(Staging::memory).filter(is_near);
        let input = staged.map(PinnedBuffer::device_address).transpose()?;
        let context = self.reserve_context(plan, input)?;
        let reserved = Reserved {
            plan: plan.clone(),
            context,
        };
        Ok(Box::new(HipReservation {
            executor: self,
            reserved,
        }))
    }

    fn statistics(&self) -> Statistics {
        Statistics {
            replays: Some(self.replays()),
            images: Vec::new(),
        }
    }
}

impl Reservation for HipReservation {
    fn submit(self: Box<Self>, inputs: Inputs<'_>, submission: Submission) -> Result<Box<dyn PendingRun>> {
        let Self { executor, reserved } = *self;
        let inputs = inputs.in_order(&reserved.plan)?;
        let run = executor.submit(reserved, inputs, submission);
        let run = run.map_err(|error| executor.with_rank(error))?;
        Ok(Box::new(HipRun { executor, run }))
    }
}

impl HipExecutor {
    /// Runs `plan` step by step, and calls `observe` with each step and its time.
    pub(in crate::exec) fn run_steps(
        &self,
        plan: &Arc<Plan>,
        input: Input<'_>,
        observe: &mut (dyn FnMut(&Step, Duration) + Send),
    ) -> Result<()> {
        let submission = Submission {
            timed: true,
            ..Submission::default()
        };
        let context = self.reserve_context(plan, None)?;
        let reserved = Reserved {
            plan: plan.clone(),
            context,
        };
        let run = self.submit(reserved, InputData::Host(input).into(), submission)?;
        let mut steps = |stage: Stage<'_>, time| {
            if let Stage::Step(step) = stage {
                observe(step, time);
            }
        };
        self.finish(run, Some(&mut steps), None)?;
        Ok(())
    }

    /// Returns the addresses of the weights on the device and the memory of a run of `plan`.
    ///
    /// # Errors
    ///
    /// The device has no memory for a run.
    pub fn memory(&self, plan: &Plan) -> Result<DeviceMemory> {
        let context = self.reserve_context(plan, None)?;
        let region = |buffer: Operand<'_>| Region {
            address: buffer.address(),
            bytes: buffer.bytes(),
        };
        let Memory {
            input,
            arena,
            scratch,
            ..
        } = &context.memory;
        let parameter = |(&id, &address): (&ValueId, &DeviceAddress)| {
            let shape = &plan.graph().value(id).shape;
            let elements: usize = shape.iter().product();
            let dense = self.states.as_ref().and_then(|states| states.bytes_of(id));
            let dense = dense.unwrap_or(elements * self.dtype.size());
            let bytes = match (self.constants.sparse().get(&id), shape.as_slice()) {
                (Some(SparseForm::Packed), &[n, k]) => sparse_bytes(n, k),
                (Some(&SparseForm::Compressed { bytes }), _) => bytes,
                _ => dense,
            };
            (id, Region { address, bytes })
        };
        let memory = DeviceMemory {
            device: self.device.name().to_owned(),
            dtype: self.dtype,
            weights: region(self.constants.reading()),
            arena: region(arena.reading()),
            scratch: region(scratch.reading()),
            input: (!self.shares_host_memory()).then(|| region(input.reading())),
            parameters: self
                .constants
                .addresses()
                .iter()
                .chain(self.states.iter().flat_map(States::addresses))
                .map(parameter)
                .collect(),
        };
        self.contexts.keep(context);
        Ok(memory)
    }

    /// Returns a context with the device memory for a run of `plan`. `input` is the address of the inputs, if it is known.
    pub(super) fn reserve_context(
        &self,
        plan: &Plan,
        input: Option<DeviceAddress>,
    ) -> Result<ExecutionContext> {
        let _turn = self.turn();
        if plan.dtype() != self.dtype {
            let reason = format!(
                "the plan requires {}, the executor has {}",
                plan.dtype(),
                self.dtype
            );
            return Err(Error::argument("dtype", reason));
        }
        let mut context = self.context(plan, input);
        let again = match &self.rank {
            // All ranks or none, so that all keep the same contexts with the same captured graphs.
            Some(_) => !self.agree(context.is_ok()),
            None => context.as_ref().is_err_and(is_out_of_memory),
        };
        if again {
            drop(context);
            // Idle contexts may hold the missing memory.
            self.contexts.clear();
            context = self.context(plan, input);
            if self.rank.is_some() && !self.agree(context.is_ok()) {
                context = Err(context.err().unwrap_or(Error::Resource {
                    what: OTHER_RANK,
                    reason: "another GPU of the model has none for the run".into(),
                }));
            }
        }
        context
    }

    fn context(&self, plan: &Plan, at: Option<DeviceAddress>) -> Result<ExecutionContext> {
        let allocating = timeline::span(Activity::Allocate);
        let in_host = self.shares_host_memory();
        // Inputs that the device writes have device memory.
        let is_on_device = !in_host || self.resize.is_some() || plan.graph().takes_activations();
        let input = if is_on_device { plan.input_bytes() } else { 0 };
        let mut context = match self.contexts.take(plan, at) {
            Some(mut context) => {
                context.fit(plan, input)?;
                context
            }
            None => {
                let on = self.rank.as_ref().map(|rank| &rank.on);
                let states = self.states.as_ref().map(States::stream);
                ExecutionContext::new(&self.device, plan, (input, in_host), on, states)?
            }
        };
        drop(allocating);
        let _span = timeline::span(Activity::Select);
        context.libraries.open(plan, &self.selection)?;
        Ok(context)
    }
}

/// `what` in the error of a rank that has memory for a run while another rank has none.
const OTHER_RANK: &str = "memory";

/// Returns true if this rank or another one had no memory for a run.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    matches!(
        error,
        Error::Hip(hip::Error::OutOfMemory { .. }) | Error::Resource { what: OTHER_RANK, .. }
    )
}
