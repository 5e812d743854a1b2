//! Runs of a plan. [`HipExecutor::submit`] submits the input, the steps and the copies of the results without waiting.
//! [`HipExecutor::wait`] waits.

use std::sync::Arc;
use std::time::Duration;

use super::clock::{Anchor, Clock, Stage, StageObserver};
use super::context::{ExecutionContext, Reserved};
use super::downloads::Downloads;
use super::elements::unpack;
use super::executor::HipExecutor;
use super::feed::Uploads;
use super::graphs::Submitted;
use super::results::{boundary, downloaded, is_overwritten};
use super::unified::ResultBytes;
use crate::error::{Error, Result};
use crate::exec::executor::{Download, FinishOptions, Finished, KeepResult, PendingRun, Submission};
use crate::exec::input::{InputData, PlanInputs};
use crate::exec::output::RunOutput;
use crate::exec::staging::Staging;
use crate::graph::plan::Plan;
use crate::graph::{Role, matrix};
use crate::hip::{Event, Operand};
use crate::timeline::{self, Activity};
use crate::timing::{Phase, Timing};

/// A submitted run. Dropping it waits for its copies.
pub(super) struct Running {
    uploads: Uploads,
    downloads: Downloads,
    /// Stage that produced the input.
    entry: Stage<'static>,
    /// Completion event of the run, for a thread that blocks on it, or if the run has no results.
    end: Option<Event>,
    clock: Option<Clock>,
    anchor: Option<Anchor>,
    submitted: Submitted,
    download: Download,
    plan: Arc<Plan>,
    /// `None` if later runs may already use it.
    context: Option<ExecutionContext>,
}

impl Running {
    pub(super) fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Returns the event at which the device finishes the run.
    pub(super) fn end(&self) -> Option<Event> {
        self.end.as_ref().or(self.downloads.end()).cloned()
    }

    /// Returns the activations that the next stage reads, if there is one.
    pub(super) fn boundary(&self) -> Option<Operand<'_>> {
        let context = self.context.as_ref()?;
        match &context.memory.handed_on {
            Some(copy) => {
                let bytes = self.plan.buffer(boundary(&self.plan)?).bytes;
                // The context's copy is at least as large as the plan needs.
                copy.reading().part(0..bytes).ok()
            }
            None => handed_on(&self.plan, context),
        }
    }
}

/// A run that the device has completed, with its results as bytes.
pub(super) struct CompletedRun {
    uploads: Uploads,
    /// The results that [`downloaded`] lists.
    pub(super) results: Vec<ResultBytes>,
    /// Event after the last step. Set if results are in host memory.
    pub(super) end: Option<Event>,
    pub(super) download: Download,
    entry: Stage<'static>,
    clock: Option<Clock>,
    pub(super) submitted: Submitted,
    pub(super) plan: Arc<Plan>,
    /// `None` if later runs may already use it.
    pub(super) context: Option<ExecutionContext>,
}

impl CompletedRun {
    /// Returns the activations that the next stage read, if there is one.
    pub(super) fn boundary(&self) -> Option<Operand<'_>> {
        handed_on(&self.plan, self.context.as_ref()?)
    }

    /// Returns true if logits or embeddings contain a NaN.
    pub(super) fn have_nan(&self) -> Result<bool> {
        let written = self.context.as_ref();
        let written = written.and_then(|context| context.written_results(self.end.as_ref()));
        for ((kind, value, id), result) in downloaded(&self.plan, self.download).zip(&self.results) {
            if !is_overwritten(&self.plan, kind, value) {
                continue;
            }
            let values = unpack(&result.view(written)?, self.plan.buffer(id).dtype);
            if values.iter().any(|value| value.is_nan()) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn handed_on<'a>(plan: &Plan, context: &'a ExecutionContext) -> Option<Operand<'a>> {
    let buffer = plan.buffer(boundary(plan)?);
    let arena = context.memory.arena.reading();
    // The context's arena is at least as large as the plan needs.
    arena.part(buffer.offset..buffer.offset + buffer.bytes).ok()
}

impl HipExecutor {
    /// Submits a run without waiting for it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the input does not fit the plan, or if images cannot be resized without a rule. [`Error::Op`] or
    /// [`Error::Step`], naming the node and the device, if a step cannot be submitted.
    pub(super) fn submit(
        &self,
        reserved: Reserved,
        inputs: PlanInputs<'_>,
        submission: Submission,
    ) -> Result<Running> {
        let Reserved { plan, mut context } = reserved;
        let mut turn = self.turn();
        // A context is dropped on an error.
        let anchor = self.anchor.get(&self.memory.copier)?.filter(|_| submission.timed);
        let mut clock = submission.timed.then(Clock::default);
        let _span = timeline::named_span(Activity::Submit, || "submit batch".into());
        let entry = match inputs.first {
            InputData::Images(_) => Stage::Resize,
            _ => Stage::Upload,
        };
        let uploads = self.feed(&mut context, &plan, inputs, &mut clock)?;
        let stream = context.stream.clone();
        let backup = self.backup_if_due(&mut context, &plan, &turn)?;
        let mut compute = || self.compute(&mut context, &plan, &mut turn, &mut clock, submission.download);
        let submitted = match &self.order {
            Some(order) => order.submit_next(&stream, compute)?,
            None => compute()?,
        };
        if let Some(states) = &self.states {
            self.check_before_writing(&mut context, &plan, submitted, &mut turn, backup)?;
            let arena = context.memory.arena.reading();
            states.write(arena, &plan, &self.in_place, &mut turn)?;
        }
        if let Some(copy) = &mut context.memory.handed_on
            && let Some(id) = boundary(&plan)
        {
            let buffer = plan.buffer(id);
            let arena = context.memory.arena.reading();
            copy.copy_part_from_peer(0, arena.part(buffer.offset..buffer.offset + buffer.bytes)?)?;
        }
        let downloads = self.download(&context, &plan, submission.download)?;
        if let Some(clock) = clock.as_mut().filter(|_| downloads.has_copies()) {
            clock.tick_results(&stream)?;
        }
        let end = if submission.sleeps || downloads.is_empty() {
            Some(stream.mark_blocking()?)
        } else if context.memory.host_results.is_some() {
            Some(stream.mark()?)
        } else {
            None
        };
        // Runs with states execute in the order of submission, so the next one may be submitted to the same memory.
        let is_kept = matches!(submission.download, Download::Checked | Download::KeptLogits);
        let is_reusable = self.states.is_some() && !submission.timed && !is_kept;
        let context = if is_reusable {
            self.contexts.keep(context);
            None
        } else {
            Some(context)
        };
        Ok(Running {
            uploads,
            downloads,
            entry,
            end,
            clock,
            anchor,
            submitted,
            download: submission.download,
            plan,
            context,
        })
    }

    /// Waits until the device has finished a run.
    pub(super) fn wait(&self, running: Running) -> Result<CompletedRun> {
        let Running {
            uploads,
            downloads,
            entry,
            end,
            clock,
            anchor,
            submitted,
            download,
            plan,
            context,
        } = running;
        let waiting = timeline::span(Activity::Wait);
        if let Some(end) = &end {
            end.synchronize()?;
        }
        let results = self.wait_for_results(downloads)?;
        drop(waiting);
        if let (Some(clock), Some(anchor), Some(context)) = (&clock, anchor, &context) {
            let streams = [self.memory.copier.id(), context.stream.id()];
            let replayed = matches!(submitted, Submitted::Replay(_));
            clock.record(&plan, (entry, replayed), &anchor, self.device.ordinal(), streams)?;
        }
        Ok(CompletedRun {
            uploads,
            results,
            end,
            download,
            entry,
            clock,
            submitted,
            plan,
            context,
        })
    }

    /// Converts the results of a completed run, and returns its context to the pool.
    pub(super) fn collect_results(
        &self,
        completed: CompletedRun,
        observer: Option<&mut StageObserver<'_>>,
    ) -> Result<Finished> {
        let CompletedRun {
            uploads,
            results,
            end,
            download,
            entry,
            clock,
            plan,
            mut context,
            ..
        } = completed;
        let unpacking = timeline::named_span(Activity::CopyOut, || "results to f32".into());
        let mut outputs = Vec::with_capacity(results.len());
        let written = context.as_ref();
        let written = written.and_then(|context| context.written_results(end.as_ref()));
        for ((kind, value, id), result) in downloaded(&plan, download).zip(results) {
            let name = &plan.graph().value(value).name;
            let buffer = plan.buffer(id);
            let values = unpack(&result.view(written)?, buffer.dtype);
            self.keep_results([result]);
            let values = matrix(&buffer.shape, values).map_err(|e| Error::graph(name, e))?;
            outputs.push(RunOutput { kind, values });
        }
        drop(unpacking);
        let staging = self.keep_uploaded(uploads, context.as_mut())?;
        if let (Some(clock), Some(observer)) = (clock, observer) {
            clock.tell(&plan, entry, observer)?;
        }
        if let Some(context) = context {
            self.contexts.keep(context);
        }
        Ok(Finished {
            outputs: outputs.into_iter().collect(),
            staging,
        })
    }

    /// Waits until the input is not read any more. Returns the memory that it was staged in, and returns other pinned memory to its pool.
    pub(super) fn keep_uploaded(
        &self,
        uploads: Uploads,
        context: Option<&mut ExecutionContext>,
    ) -> Result<Option<Staging>> {
        let Uploads {
            copies,
            staged,
            others,
        } = uploads;
        if let Some(context) = context
            && let Some(input) = context.memory.host_input.take()
        {
            let memory = input.reclaim(&context.stream.mark()?)?.wait()?;
            let Some(pool) = staged else {
                self.memory.inputs.keep(memory);
                return Ok(None);
            };
            return Ok(Some(Staging::pinned(memory, pool, &self.info.host)));
        }
        for copy in others {
            self.memory.keep_pieces(copy.wait()?);
        }
        let mut buffers = Vec::new();
        for copy in copies {
            buffers.extend(copy.wait()?);
        }
        match staged {
            Some(pool) => Ok(buffers
                .pop()
                .map(|memory| Staging::pinned(memory, pool, &self.info.host))),
            None => {
                self.memory.keep_pieces(buffers);
                Ok(None)
            }
        }
    }

    /// Calls `keep` with each result on the device, before its memory is reused.
    fn give_results(&self, completed: &mut CompletedRun, keep: &mut KeepResult<'_>) -> Result<()> {
        let context = completed.context.as_ref();
        let context = context.ok_or_else(|| Error::internal("results", "are not on the device any more"))?;
        let buffers = context.memory.buffers();
        let _turn = self.turn();
        for (index, &(_, _, id)) in completed.plan.outputs().iter().enumerate() {
            keep(index, buffers.part(&completed.plan, id)?)?;
        }
        if completed.end.is_some() {
            // The host reads results behind what was submitted here.
            completed.end = Some(context.stream.mark()?);
        }
        Ok(())
    }

    /// Waits for a run, checks it if a check is due, and returns its results.
    pub(super) fn finish(
        &self,
        running: Running,
        observer: Option<&mut StageObserver<'_>>,
        keep: Option<&mut KeepResult<'_>>,
    ) -> Result<Finished> {
        let mut completed = self.wait(running)?;
        if self.states.is_some() {
            self.check_written(&completed)?;
        } else {
            self.check(&mut completed, false)?;
        }
        if let Some(keep) = keep {
            self.give_results(&mut completed, keep)?;
        }
        self.collect_results(completed, observer)
    }
}

/// A run on one GPU.
pub(super) struct HipRun {
    pub(super) executor: Arc<HipExecutor>,
    pub(super) run: Running,
}

impl PendingRun for HipRun {
    fn is_done(&self) -> Result<bool> {
        Ok(self.run.end().map_or(Ok(true), |end| end.is_done())?)
    }

    fn end(&self) -> Option<Event> {
        self.run.end()
    }

    fn finish(self: Box<Self>, options: FinishOptions<'_>) -> Result<Finished> {
        let Self { executor, run } = *self;
        let FinishOptions { timing, keep } = options;
        let finished = match timing {
            Some(timing) => {
                let plan = run.plan().clone();
                executor.finish(run, Some(&mut phase_observer(&plan, timing)), keep)
            }
            None => executor.finish(run, None, keep),
        };
        finished.map_err(|error| executor.with_rank(error))
    }
}

/// Returns an observer that adds the time of each stage of a run to `timing`.
pub(super) fn phase_observer<'a>(
    plan: &Plan,
    timing: &'a mut Timing,
) -> impl FnMut(Stage<'_>, Duration) + Send + 'a {
    let roles: Vec<Role> = plan.graph().nodes().iter().map(|node| node.role).collect();
    move |stage, time| {
        let phase = match stage {
            Stage::Upload => Phase::CopyIn,
            Stage::Resize => Phase::DeviceResize,
            Stage::Step(step) => Phase::Step(roles[step.node]),
            Stage::Replay => Phase::Replay,
            Stage::Download => Phase::CopyOut,
        };
        timing.add(phase, time);
    }
}
