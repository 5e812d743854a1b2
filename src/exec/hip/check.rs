//! Checks of replays: the steps are submitted one by one on the same input, and the results are compared.

use super::context::ExecutionContext;
use super::executor::HipExecutor;
use super::graphs::{Submitted, is_due, is_unwritten};
use super::results::{boundary, downloaded, is_overwritten, kept};
use super::run::CompletedRun;
use super::states::Turn;
use super::steps::Steps;
use super::unified::{Buffers, ResultBytes, WrittenResults};
use crate::error::{Error, Result};
use crate::exec::executor::Download;
use crate::graph::plan::{BufferId, Plan};
use crate::hip::{DeviceBuffer, Event, Operand, Stream, Work};
use crate::kernels::{ChecksumArgs, KernelCall};
use crate::timeline::{self, Activity};

impl HipExecutor {
    /// Checks a finished replay, and replaces its results by those of the individual steps if they differ. Returns true if the replay was
    /// wrong.
    ///
    /// A replay is checked if it is `suspect` or due, if it left a result unwritten, or if another replay was wrong in the meantime. The
    /// input is still in the context's memory.
    pub(super) fn check(&self, completed: &mut CompletedRun, suspect: bool) -> Result<bool> {
        let Submitted::Replay(run) = completed.submitted else {
            return Ok(false);
        };
        let CompletedRun {
            plan,
            context: Some(context),
            results,
            download,
            end,
            ..
        } = completed
        else {
            return Ok(false);
        };
        let plan: &Plan = plan;
        let others_wrong = self.graphs.has_fallen_back();
        let written = context.written_results(end.as_ref());
        let is_wanted =
            suspect || others_wrong || is_due(run) || has_unwritten(plan, *download, results, written)?;
        // Either all ranks submit the steps, or none does.
        if self.agree(!is_wanted) {
            return Ok(false);
        }
        let _span = timeline::span(Activity::CheckReplay);
        if std::mem::take(download) != Download::All {
            // Results that stay on the device are compared too.
            self.keep_results(results.drain(..));
            *results = self.read_results(context, plan, end)?;
        }
        let replayed = copies(results, context.written_results(end.as_ref()))?;
        self.keep_results(results.drain(..));
        let handed_on = self.handed_on(context, plan)?;
        *results = self.recompute(context, plan, end)?;
        let same = replayed == copies(results, context.written_results(end.as_ref()))?;
        let right = self.agree(same && handed_on == self.handed_on(context, plan)?);
        let Some(captured) = context.captured(plan) else {
            return Ok(!right);
        };
        if !others_wrong {
            self.graphs.count_checked();
        }
        if right {
            captured.passed(run);
            return Ok(false);
        }
        self.graphs.count_recomputed();
        let before = captured.unchecked_before(run);
        self.graphs.fall_back(|| self.differs(run, before));
        Ok(true)
    }

    /// Returns a copy of the states, if the next run of `plan` is a replay that is due to be checked and steps write states in place.
    pub(super) fn backup_if_due(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        turn: &Turn<'_>,
    ) -> Result<Option<DeviceBuffer<u8>>> {
        match context.captured(plan) {
            Some(captured) if is_due(captured.runs() + 1) => self.backup(turn),
            _ => Ok(None),
        }
    }

    /// Checks a replay of a graph with parameters or states if a check is due: with the states before the replay, from
    /// [`backup_if_due`](Self::backup_if_due), and before new values in the arena are copied to them. Without the memory for the copy, there is no
    /// check. If the replay was wrong, the results of the steps replace its results.
    pub(super) fn check_before_writing(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        submitted: Submitted,
        turn: &mut Turn<'_>,
        backup: Option<DeviceBuffer<u8>>,
    ) -> Result<()> {
        let Submitted::Replay(run) = submitted else {
            return Ok(());
        };
        if !is_due(run) {
            return Ok(());
        }
        if !self.can_repeat(backup.as_ref()) {
            return Ok(());
        }
        let _span = timeline::span(Activity::CheckReplay);
        let stream = context.stream.clone();
        let mut steps = Steps::new(self, plan, context, turn);
        steps.backup = backup;
        let replayed = steps.results(&stream)?;
        steps.restore(&stream)?;
        steps.enqueue(&stream)?;
        let right = self.agree(replayed == steps.results(&stream)?);
        self.graphs.count_checked();
        let Some(captured) = context.captured(plan) else {
            return Ok(());
        };
        if right {
            captured.passed(run);
        } else {
            let before = captured.unchecked_before(run);
            self.graphs.count_recomputed();
            self.graphs.fall_back(|| self.differs(run, before));
        }
        Ok(())
    }

    /// Checks that a finished replay of a graph with parameters or states wrote its results. It cannot be repeated, since they have changed.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if it did not.
    pub(super) fn check_written(&self, completed: &CompletedRun) -> Result<()> {
        let Submitted::Replay(run) = completed.submitted else {
            return Ok(());
        };
        let CompletedRun {
            plan,
            download,
            results,
            ..
        } = completed;
        // All results are copied.
        if !has_unwritten(plan, *download, results, None)? {
            return Ok(());
        }
        let reason = format!(
            "replay {run} of a captured graph did not write all results. Set the parameters and states again, and repeat the run: later \
             runs do not replay graphs"
        );
        self.graphs.fall_back(|| reason.clone());
        Err(Error::device(self.device.name(), reason))
    }

    /// Returns the reason why graphs are no longer replayed after replay number `run` was wrong. The `unchecked` replays before it were not
    /// checked.
    fn differs(&self, run: u64, unchecked: u64) -> String {
        let before = match unchecked {
            0 => String::new(),
            n => format!("; the {n} before it, since the last that was compared, may have been wrong too"),
        };
        format!(
            "{}: replay {run} of a captured graph differs from its steps, and was computed again{before}",
            self.device.name()
        )
    }

    /// Computes a finished run again step by step, from the corrected activations of the previous stage.
    pub(super) fn repeat(&self, completed: &mut CompletedRun, input: Operand<'_>) -> Result<()> {
        let context = completed.context.as_mut();
        let context = context.ok_or_else(|| Error::internal("run", "has no memory any more"))?;
        context.memory.input.copy_part_from_peer(0, input)?;
        self.keep_results(completed.results.drain(..));
        completed.results = self.recompute(context, &completed.plan, &mut completed.end)?;
        completed.download = Download::All;
        Ok(())
    }

    /// Runs the steps and waits for their results. Sets `end` to an event after them.
    fn recompute(
        &self,
        context: &mut ExecutionContext,
        plan: &Plan,
        end: &mut Option<Event>,
    ) -> Result<Vec<ResultBytes>> {
        let stream = context.stream.clone();
        Steps::new(self, plan, context, &mut self.turn()).enqueue(&stream)?;
        self.read_results(context, plan, end)
    }

    /// Returns all results of the submitted steps. Sets `end` to an event after them.
    fn read_results(
        &self,
        context: &ExecutionContext,
        plan: &Plan,
        end: &mut Option<Event>,
    ) -> Result<Vec<ResultBytes>> {
        let downloads = self.download(context, plan, Download::All)?;
        *end = Some(context.stream.mark()?);
        self.wait_for_results(downloads)
    }

    /// Returns the activations for the next stage, if there is one.
    fn handed_on(&self, context: &mut ExecutionContext, plan: &Plan) -> Result<Option<Vec<u8>>> {
        boundary(plan)
            .map(|id| self.read_buffer(context, plan, id))
            .transpose()
    }

    /// Waits for the steps, and returns a checksum of each operand.
    pub(super) fn checksums(&self, stream: &Stream, operands: &[Operand<'_>]) -> Result<Vec<u64>> {
        let mut sums = stream.zeroed(operands.len())?;
        for (index, operand) in operands.iter().enumerate() {
            let arguments = ChecksumArgs {
                from: operand.address(),
                out: sums.address().offset(index * size_of::<u64>()),
                bytes: operand.bytes() as u64,
            };
            let call = KernelCall::from(arguments);
            call.launch(&self.kernels, stream, &[*operand, sums.writing()])?;
        }
        Ok(sums.read()?)
    }

    /// Returns the memory of each output, and of each new value of a parameter or state. A state of which only rows are written keeps the others,
    /// which a check must not overwrite. The outputs depend on these rows.
    pub(super) fn kept_parts<'a>(
        &self,
        plan: &Plan,
        buffers: Buffers<'a>,
        states: Option<Operand<'a>>,
    ) -> Vec<Operand<'a>> {
        let part = |id: BufferId| {
            let buffer = plan.buffer(id);
            let place = |state| self.states.as_ref()?.range(state);
            match self.in_place.state(buffer.value).and_then(place) {
                Some(range) => states?.part(range).ok(),
                None => buffers.part(plan, id).ok(),
            }
        };
        // The memory is at least as large as the plan needs.
        let is_whole = |id: &BufferId| !self.in_place.replaces_rows(plan.buffer(*id).value);
        kept(plan).filter(is_whole).filter_map(part).collect()
    }

    /// Waits for the steps, and returns the bytes of a buffer.
    fn read_buffer(&self, context: &mut ExecutionContext, plan: &Plan, id: BufferId) -> Result<Vec<u8>> {
        let buffer = plan.buffer(id);
        let target = self.memory.results.take(buffer.bytes)?;
        let bytes = context.memory.arena.download(buffer.offset, target)?.wait()?;
        let copy = bytes.to_vec();
        self.memory.results.keep(bytes);
        Ok(copy)
    }
}

/// Returns copies of results.
fn copies(results: &[ResultBytes], written: WrittenResults<'_>) -> Result<Vec<Vec<u8>>> {
    let copy = |result: &ResultBytes| Ok(result.view(written)?.to_vec());
    results.iter().map(copy).collect()
}

/// Returns true if an element of the results of a replay was not written.
fn has_unwritten(
    plan: &Plan,
    download: Download,
    results: &[ResultBytes],
    written: WrittenResults<'_>,
) -> Result<bool> {
    for ((kind, value, id), result) in downloaded(plan, download).zip(results) {
        if is_overwritten(plan, kind, value) && is_unwritten(&result.view(written)?, plan.buffer(id).dtype) {
            return Ok(true);
        }
    }
    Ok(false)
}
