//! Submitting the steps of a plan: one by one, or as the replay of a captured graph.

use std::sync::atomic::Ordering;

use super::clock::Clock;
use super::context::{ExecutionContext, Memory};
use super::libraries::Libraries;
use super::lower::{Addresses, lower};
use super::regions::Regions;
use super::{GraphMode, HipExecutor};
use crate::error::{Error, Result};
use crate::graph::OutputKind;
use crate::graph::plan::{Plan, Step};
use crate::hip::{self, Operand, Replay, Stream, Work};

impl HipExecutor {
    /// Submits all steps, one by one or as a replay.
    pub(super) fn compute(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        clock: &mut Option<Clock>,
    ) -> Result<()> {
        let stream = context.stream.clone();
        let wanted = match self.graphs {
            GraphMode::Auto => clock.is_none(),
            GraphMode::On => true,
            GraphMode::Off => false,
        };
        // A plan that runs once is not worth a capture.
        let again = context.has_seen(plan);
        if let Some(clock) = clock {
            clock.tick(&stream)?;
        }
        if wanted && again && self.fallback.get().is_none() {
            if let Some(replay) = context.replay(plan) {
                replay.run()?;
                self.replayed_runs.fetch_add(1, Ordering::Relaxed);
            } else {
                self.capture(context, plan)?;
            }
            return clock.as_mut().map_or(Ok(()), |clock| clock.tick(&stream));
        }
        self.eager_runs.fetch_add(1, Ordering::Relaxed);
        let mut steps = Steps::new(self, plan, context);
        steps.clock = clock.as_mut();
        steps.enqueue(&stream)
    }

    /// Runs the steps, and keeps a replay of them if capture succeeds.
    fn capture(&self, context: &mut ExecutionContext, plan: &Plan) -> Result<()> {
        let stream = context.stream.clone();
        match Replay::new(&stream, &mut Steps::new(self, plan, context))? {
            Ok(replay) => {
                context.keep_replay(plan, replay);
                self.replayed_runs.fetch_add(1, Ordering::Relaxed);
            }
            Err(reason) => {
                self.eager_runs.fetch_add(1, Ordering::Relaxed);
                // One wrong replay disables replay for the whole executor.
                self.fallback.get_or_init(|| reason);
            }
        }
        Ok(())
    }

    pub(super) fn submit_step(
        &self,
        plan: &Plan,
        step: &Step,
        regions: &Regions<'_>,
        libraries: &mut Libraries,
    ) -> Result<()> {
        let [arena, _, input, scratch] = regions.0.map(|region| region.address());
        let addresses = Addresses {
            input,
            constants: self.constants.addresses(),
            arena,
            scratch,
        };
        let node = &plan.node(step).name;
        let calls = lower(plan, step, addresses)
            .map_err(|reason| Error::graph(node, format!("{}: {reason}", self.device.name())))?;
        for call in calls {
            libraries
                .submit(call, plan.batch(), &self.selection, &self.kernels, regions)
                .map_err(|error| self.at(node, error))?;
        }
        Ok(())
    }

    /// An error of a node's call, with the device's name unless the error has it.
    fn at(&self, node: &str, error: Error) -> Error {
        match error {
            Error::Hip(
                hip::Error::Device { .. } | hip::Error::OutOfMemory { .. } | hip::Error::NoCode { .. },
            ) => Error::graph(node, error),
            _ => Error::graph(node, format!("{}: {error}", self.device.name())),
        }
    }
}

/// The steps of a plan on a context's memory.
struct Steps<'a> {
    executor: &'a HipExecutor,
    plan: &'a Plan,
    memory: &'a mut Memory,
    libraries: &'a mut Libraries,
    clock: Option<&'a mut Clock>,
}

impl<'a> Steps<'a> {
    fn new(executor: &'a HipExecutor, plan: &'a Plan, context: &'a mut ExecutionContext) -> Self {
        Self {
            executor,
            plan,
            memory: &mut context.memory,
            libraries: &mut context.libraries,
            clock: None,
        }
    }
}

/// A step reads the input, constants, and what a step before it wrote.
impl Work for Steps<'_> {
    type Error = Error;

    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let Self { executor, plan, .. } = *self;
        let regions = Regions([
            self.memory.arena.writing(),
            executor.constants.reading(),
            self.memory.input.reading(),
            self.memory.scratch.writing(),
        ]);
        for step in plan.steps() {
            executor.submit_step(plan, step, &regions, self.libraries)?;
            if let Some(clock) = &mut self.clock {
                clock.tick(stream)?;
            }
        }
        Ok(())
    }

    fn outputs(&mut self) -> Vec<Operand<'_>> {
        let arena = self.memory.arena.writing();
        let part = |&(_, _, id): &(OutputKind, _, _)| {
            let buffer = self.plan.buffer(id);
            arena.part(buffer.offset..buffer.offset + buffer.bytes).ok()
        };
        // The context's arena has at least the plan's size.
        self.plan.outputs().iter().filter_map(part).collect()
    }

    fn intermediates(&mut self) -> Vec<Operand<'_>> {
        vec![self.memory.arena.writing(), self.memory.scratch.writing()]
    }
}
