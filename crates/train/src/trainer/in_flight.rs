//! Submits steps to the device, and finishes them.

use hipvit::error::{Error, Result};
use hipvit::exec::FinishOptions;

use super::micro_batch::Tally;
use super::step_queue::{InFlight, SubmittedRun};
use super::{StepImages, StepReport, Targets, Trainer};
use crate::float8::CHECK_INTERVAL;

impl Trainer {
    /// Submits a step without waiting for it; see [`step`](Self::step). A GPU starts it right after the steps that were submitted before. On the
    /// CPU, the step is complete when this returns.
    ///
    /// The learning rate of AdamW is corrected for the number of updates. A step assumes that all steps in flight update the weights.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the images and targets do not fit the model or each other. The errors of the device.
    pub fn submit<'a>(
        &mut self,
        images: impl Into<StepImages<'a>>,
        targets: impl Into<Targets<'a>>,
        learning_rate: f32,
    ) -> Result<()> {
        let (images, targets) = (images.into(), targets.into());
        let batch = targets.images(self.width, &self.options.loss)?;
        let first = self.try_submit((&images, targets), batch, learning_rate);
        let submitted = match first {
            Err(error) if self.can_take_smaller(&error, batch) => {
                self.finish_all()?;
                self.halve_micro_batches(batch)?;
                self.try_submit((&images, targets), batch, learning_rate)
            }
            other => other,
        };
        let runs = submitted.map_err(|error| self.with_least_memory(batch, error))?;
        self.in_flight.push_back(InFlight::Running(runs));
        Ok(())
    }

    /// Waits for the oldest step in flight, and returns its report. `None` if no step is in flight.
    ///
    /// # Errors
    ///
    /// The errors of the device.
    pub fn finish(&mut self) -> Result<Option<StepReport>> {
        match self.in_flight.pop_front() {
            Some(InFlight::Running(runs)) => self.finish_step(runs).map(Some),
            Some(InFlight::Finished(report)) => Ok(Some(report)),
            None => Ok(None),
        }
    }

    /// Returns the number of submitted steps that [`finish`](Self::finish) has not returned.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns true if it pays to submit a step before the step before it has finished. Otherwise, what a step computes depends on the report of
    /// the one before it, or the CPU computes it.
    pub(crate) fn runs_ahead(&self) -> bool {
        let is_checked = self.float8.is_some() || self.largest_scale().is_some();
        self.gpu().is_some() && !is_checked && !self.counters.scale.is_dynamic()
    }

    /// Returns the number of steps in flight whose report is unknown.
    pub(super) fn running(&self) -> usize {
        let is_running = |step: &&InFlight| matches!(step, InFlight::Running(_));
        self.in_flight.iter().filter(is_running).count()
    }

    /// Checks that no step is in flight, so that weights, states and counters belong to the same step.
    pub(super) fn check_idle(&self) -> Result<()> {
        if self.in_flight.is_empty() {
            return Ok(());
        }
        let reason = format!("has {} steps in flight. Finish them first", self.in_flight.len());
        Err(Error::argument("trainer", reason))
    }

    /// Waits for all steps. [`finish`](Self::finish) returns their reports.
    fn finish_all(&mut self) -> Result<()> {
        for step in std::mem::take(&mut self.in_flight) {
            let report = match step {
                InFlight::Running(runs) => self.finish_step(runs)?,
                InFlight::Finished(report) => report,
            };
            self.in_flight.push_back(InFlight::Finished(report));
        }
        Ok(())
    }

    fn finish_step(&mut self, runs: Vec<SubmittedRun>) -> Result<StepReport> {
        let mut tally = Tally::default();
        for SubmittedRun { run, compared } in runs {
            let finished = run.finish(FinishOptions::default())?;
            tally.add(&finished.outputs, &compared)?;
        }
        let report = self.tally_of_all_ranks(tally)?.report(self.counters.steps + 1);
        self.counters.steps = report.step;
        self.counters.updates += u64::from(report.updated);
        self.counters.scale.after(report.updated);
        self.limit_scale()?;
        let is_checked = report.updated && report.step % CHECK_INTERVAL == 1;
        if let Some(float8) = self.float8.as_mut().filter(|_| is_checked) {
            let executor = self.executor.as_deref();
            let executor = executor.ok_or_else(super::second_try::lost)?;
            if float8.check(report.step, executor, &mut self.counters.bf16_layers)? {
                self.finish_all()?;
                self.build_anew(self.options.clone())?;
            }
        }
        Ok(report)
    }
}
