//! Submitting the steps of a plan: one by one, or as the replay of a captured graph.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use super::clock::Clock;
use super::context::{ExecutionContext, Memory};
use super::graphs::{Captured, UNWRITTEN, is_due, is_unwritten};
use super::libraries::Libraries;
use super::lower::{Addresses, Call, lower};
use super::regions::Regions;
use super::run::{Waited, boundary, downloaded};
use super::{GraphMode, HipExecutor};
use crate::error::{Error, Result};
use crate::graph::OutputKind;
use crate::graph::plan::{Plan, Step};
use crate::hip::{self, Operand, Pending, PinnedBuffer, Replay, Stream, Work};
use crate::kernels::KernelCall;
use crate::ops::Op;
use crate::timeline::{self, Activity};

/// How the steps of a run were submitted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Submitted {
    /// One by one, or as the replay that a capture is checked by.
    Steps,
    /// As this replay of a captured graph, counted from 1.
    Replay(u64),
}

impl HipExecutor {
    /// Submits all steps, one by one or as a replay.
    pub(super) fn compute(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        clock: &mut Option<Clock>,
    ) -> Result<Submitted> {
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
            let submitted = match self.replay(context, plan)? {
                Some(run) => Submitted::Replay(run),
                None => {
                    self.capture(context, plan)?;
                    Submitted::Steps
                }
            };
            if let Some(clock) = clock {
                clock.tick(&stream)?;
            }
            return Ok(submitted);
        }
        self.eager_runs.fetch_add(1, Ordering::Relaxed);
        let mut steps = Steps::new(self, plan, context);
        steps.clock = clock.as_mut();
        steps.enqueue(&stream)?;
        Ok(Submitted::Steps)
    }

    /// Submits a replay, if the steps were captured: its number.
    fn replay(&self, context: &mut ExecutionContext, plan: &Plan) -> Result<Option<u64>> {
        if context.captured(plan).is_none() {
            return Ok(None);
        }
        for &(kind, _, id) in plan.outputs() {
            if is_overwritten(kind) {
                let buffer = plan.buffer(id);
                let range = buffer.offset..buffer.offset + buffer.bytes;
                context.memory.arena.fill_part(range, UNWRITTEN)?;
            }
        }
        let run = context.captured(plan).map(Captured::run).transpose()?;
        self.replayed_runs.fetch_add(1, Ordering::Relaxed);
        Ok(run)
    }

    /// Replaces what a finished replay left by what the steps leave, if it is `suspect` or due to be checked, if it left a result
    /// unwritten, or if another was wrong meanwhile. The input is where it was. Whether it was wrong.
    pub(super) fn check<P: Deref<Target = Plan>>(
        &self,
        waited: &mut Waited<P>,
        suspect: bool,
    ) -> Result<bool> {
        let Submitted::Replay(run) = waited.submitted else {
            return Ok(false);
        };
        let Waited {
            plan,
            context,
            results,
            on_device,
            ..
        } = waited;
        let plan: &Plan = plan;
        let others_wrong = self.fallback.get().is_some();
        let unwritten = || {
            let mut results = downloaded(plan, *on_device).zip(results.iter());
            results.any(|((kind, ..), bytes)| is_overwritten(kind) && is_unwritten(bytes, self.dtype))
        };
        // All ranks submit the steps, or none does.
        if self.agree(!(suspect || others_wrong || is_due(run) || unwritten())) {
            return Ok(false);
        }
        let _span = timeline::span(Activity::CheckReplay);
        if std::mem::take(on_device) {
            // What stays on the device is compared too.
            results.drain(..).for_each(|bytes| context.results.keep(bytes));
            *results = self.read_results(context, plan)?;
        }
        let keep = |bytes: PinnedBuffer<u8>| {
            let copy = bytes.to_vec();
            context.results.keep(bytes);
            copy
        };
        let replayed: Vec<Vec<u8>> = results.drain(..).map(keep).collect();
        let handed_on = self.handed_on(context, plan)?;
        *results = self.run_steps(context, plan)?;
        let same = replayed.iter().zip(results.iter()).all(|(a, b)| a[..] == b[..]);
        let right = self.agree(same && handed_on == self.handed_on(context, plan)?);
        let Some(captured) = context.captured(plan) else {
            return Ok(!right);
        };
        if !others_wrong {
            self.checked_runs.fetch_add(1, Ordering::Relaxed);
        }
        if right {
            captured.passed(run);
            return Ok(false);
        }
        self.recomputed_runs.fetch_add(1, Ordering::Relaxed);
        self.fallback.get_or_init(|| {
            let before = match captured.unchecked_before(run) {
                0 => String::new(),
                n => {
                    format!("; the {n} before it, since the last that was compared, may have been wrong too")
                }
            };
            format!(
                "{}: replay {run} of a captured graph differs from its steps, and was computed again{before}",
                self.device.name()
            )
        });
        Ok(true)
    }

    /// Computes a finished run step by step on another input: what the stage before hands on, now that it is right.
    pub(super) fn repeat<P: Deref<Target = Plan>>(
        &self,
        waited: &mut Waited<P>,
        input: Operand<'_>,
    ) -> Result<()> {
        let context = &mut waited.context;
        context.memory.input.copy_part_from_peer(0, input)?;
        for bytes in waited.results.drain(..) {
            context.results.keep(bytes);
        }
        waited.results = self.run_steps(context, &waited.plan)?;
        waited.on_device = false;
        Ok(())
    }

    /// Runs the steps, and waits for their results.
    fn run_steps(&self, context: &mut ExecutionContext, plan: &Plan) -> Result<Vec<PinnedBuffer<u8>>> {
        let stream = context.stream.clone();
        Steps::new(self, plan, context).enqueue(&stream)?;
        self.read_results(context, plan)
    }

    /// All results of the steps that were submitted.
    fn read_results(&self, context: &mut ExecutionContext, plan: &Plan) -> Result<Vec<PinnedBuffer<u8>>> {
        let downloads = self.download(context, plan, false)?.into_iter();
        Ok(downloads.map(Pending::wait).collect::<hip::Result<_>>()?)
    }

    /// What a run left for the next stage of the model, if there is one.
    fn handed_on(&self, context: &mut ExecutionContext, plan: &Plan) -> Result<Option<Vec<u8>>> {
        let Some(id) = boundary(plan) else {
            return Ok(None);
        };
        let buffer = plan.buffer(id);
        let target = context.results.take(buffer.bytes, &self.device)?;
        let bytes = context.memory.arena.download(buffer.offset, target)?.wait()?;
        let copy = bytes.to_vec();
        context.results.keep(bytes);
        Ok(Some(copy))
    }

    /// Runs the steps, and keeps a replay of them if capture succeeds.
    fn capture(&self, context: &mut ExecutionContext, plan: &Plan) -> Result<()> {
        let _span = timeline::span(Activity::Capture);
        let stream = context.stream.clone();
        let replay = Replay::agreed(&stream, &mut Steps::new(self, plan, context), &mut |done| {
            self.agree(done)
        })?;
        match replay {
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

    fn regions<'a>(&'a self, memory: &'a mut Memory) -> Regions<'a> {
        Regions([
            memory.arena.writing(),
            self.constants.reading(),
            memory.input.reading(),
            memory.scratch.writing(),
        ])
    }

    /// The calls that compute a step.
    fn calls(&self, plan: &Plan, step: &Step, regions: &Regions<'_>) -> Result<Vec<Call>> {
        let [arena, _, input, scratch] = regions.0.map(|region| region.address());
        let addresses = Addresses {
            input,
            constants: self.constants.addresses(),
            steps: self.constants.steps(),
            float8: self.device.properties().float8(),
            sparse: self.constants.sparse(),
            arena,
            scratch,
        };
        lower(plan, step, addresses).map_err(|reason| {
            let node = &plan.node(step).name;
            Error::graph(node, format!("{}: {reason}", self.device.name()))
        })
    }

    /// Submits a sum and the norm that is the next step as one launch, where that is possible; whether it was.
    fn submit_sum_and_norm(
        &self,
        plan: &Plan,
        [sum, norm]: [&Step; 2],
        regions: &Regions<'_>,
        libraries: &mut Libraries,
    ) -> Result<bool> {
        if !matches!(plan.node(sum).op, Op::AllReduce(_)) {
            return Ok(false);
        }
        let [sum_calls, norm_calls] = [self.calls(plan, sum, regions)?, self.calls(plan, norm, regions)?];
        let ([Call::AllReduce(call)], [Call::Kernel(KernelCall::LayerNorm(arguments))]) =
            (&sum_calls[..], &norm_calls[..])
        else {
            return Ok(false);
        };
        if let Some(clock) = &mut libraries.calls {
            clock.at(sum.node);
        }
        libraries
            .submit_sum_and_norm(call, arguments, &self.selection, regions)
            .map_err(|error| self.at(&plan.node(sum).name, error))
    }

    pub(super) fn submit_step(
        &self,
        plan: &Plan,
        step: &Step,
        regions: &Regions<'_>,
        libraries: &mut Libraries,
    ) -> Result<()> {
        let node = &plan.node(step).name;
        let calls = self.calls(plan, step, regions)?;
        if let Some(clock) = &mut libraries.calls {
            clock.at(step.node);
        }
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
            // Of which rank it is counts, and not of which sum.
            Error::Hip(hip::Error::Communicator { .. }) => error,
            Error::Hip(
                hip::Error::Device { .. } | hip::Error::OutOfMemory { .. } | hip::Error::NoCode { .. },
            ) => Error::graph(node, error),
            _ => Error::graph(node, format!("{}: {error}", self.device.name())),
        }
    }
}

/// Whether outputs are overwritten before a replay: what a stage hands on too, as stale activations would give the results of an
/// earlier run, and overwritten ones give NaN. The others share their memory with what steps leave in between, and it
/// would take longer.
pub(super) fn is_overwritten(kind: OutputKind) -> bool {
    matches!(
        kind,
        OutputKind::Logits | OutputKind::Embedding | OutputKind::Boundary
    )
}

/// The steps of a plan on a context's memory.
pub(super) struct Steps<'a> {
    executor: &'a HipExecutor,
    plan: &'a Plan,
    memory: &'a mut Memory,
    libraries: &'a mut Libraries,
    clock: Option<&'a mut Clock>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(executor: &'a HipExecutor, plan: &'a Plan, context: &'a mut ExecutionContext) -> Self {
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
        let regions = executor.regions(self.memory);
        let mut tick = || self.clock.as_mut().map_or(Ok(()), |clock| clock.tick(stream));
        let mut steps = plan.steps().iter().peekable();
        while let Some(step) = steps.next() {
            let both = match steps.peek() {
                Some(next) => executor.submit_sum_and_norm(plan, [step, next], &regions, self.libraries)?,
                None => false,
            };
            if both {
                // The norm takes no time of its own.
                steps.next();
                tick()?;
            } else {
                executor.submit_step(plan, step, &regions, self.libraries)?;
            }
            tick()?;
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
