//! The steps of a run: submission, log, and steps that update nothing.

use hipvit::error::Error;
use hipvit::model::InputKind;
use hipvit::tensor::Input;
use hipvit_data::Batch;

use super::captions::CaptionBatch;
use super::lines::LineBatch;
use super::pending_step::PendingStep;
use super::{Callbacks, Event, Fit, FitError, MemoryEvent, Speed, StepEvent};
use crate::schedule::Schedule;
use crate::trainer::{Prompts, Sequences, StepImages, StepReport, Targets, Texts};

/// Number of consecutive steps without an update that end a run.
const MAX_SKIPPED_STEPS: u64 = 100;

impl Fit {
    /// Submits a step on a batch.
    pub(super) fn submit(
        &mut self,
        batch: Batch,
        schedule: &Schedule,
        callbacks: &mut dyn Callbacks,
    ) -> Result<(), FitError> {
        let step = self.progress.step + self.pending.len() as u64;
        let lr = schedule.rate(step);
        self.submit_batch(&batch, lr)?;
        if self.trainer.options().accumulate > self.recipe.accumulate {
            self.keep_micro_batches(step + 1, callbacks)?;
        }
        self.pending.push_back(PendingStep { batch, lr });
        Ok(())
    }

    /// Returns the number of steps that may be submitted before the step before them has finished. The GPU then starts the next step at once. A
    /// step that is left out changes what the next one computes, so that it is waited for.
    pub(super) fn steps_ahead(&self) -> usize {
        usize::from(self.trainer.runs_ahead() && !self.recipe.skip_nonfinite)
    }

    /// Returns the number of steps of this epoch that are submitted.
    pub(super) fn submitted_in_epoch(&self) -> u64 {
        self.progress.step_in_epoch + self.pending.len() as u64
    }

    /// Finishes steps until at most `ahead` are in flight.
    pub(super) fn finish_steps(
        &mut self,
        ahead: usize,
        speed: &mut Speed,
        callbacks: &mut dyn Callbacks,
    ) -> Result<(), FitError> {
        while self.pending.len() > ahead
            && let Some(step) = self.pending.pop_front()
        {
            self.finish_step(&step, speed, callbacks)?;
        }
        Ok(())
    }

    /// Waits for the oldest submitted step, and logs it.
    fn finish_step(
        &mut self,
        PendingStep { batch, lr }: &PendingStep,
        speed: &mut Speed,
        callbacks: &mut dyn Callbacks,
    ) -> Result<(), FitError> {
        let report = self.trainer.finish()?;
        let report = report.ok_or_else(|| Error::internal("training", "the step is not in flight"))?;
        if let Some((what, value)) = non_finite(&report) {
            return self.skip_step(batch, what, value, callbacks);
        }
        let images = (batch.len() * self.share().map_or(1, |share| share.count)) as u64;
        let counted = report.counted as u64;
        let seconds = self.lap();
        let progress = &mut self.progress;
        progress.seconds += seconds;
        progress.step += 1;
        progress.step_in_epoch += 1;
        progress.skipped_in_a_row = 0;
        progress.images += counted;
        progress.correct += report.correct as u64;
        progress.loss_sum += f64::from(report.loss) * counted as f64;
        let event = StepEvent {
            epoch: progress.epoch + 1,
            step: progress.step,
            loss: report.loss,
            lr: *lr,
            grad_norm: report.grad_norm,
            images_per_second: speed.add(images),
        };
        callbacks.on_step(&event);
        for event in self.trainer.take_layer_events() {
            callbacks.on_layer(&event);
            self.log.write(&Event::Layer(event))?;
        }
        if event.step.is_multiple_of(self.options.log_every.max(1)) {
            self.log.write(&Event::Step(event))?;
            *speed = Speed::new();
        }
        Ok(())
    }

    /// Keeps the number of micro-batches of a step that ran out of memory, for the steps after it and for resumed runs.
    fn keep_micro_batches(&mut self, step: u64, callbacks: &mut dyn Callbacks) -> Result<(), FitError> {
        let accumulate = self.trainer.options().accumulate;
        self.recipe.accumulate = accumulate;
        self.progress.accumulate = Some(accumulate);
        if let Some(memory) = self.trainer.memory() {
            self.log
                .write(&Event::Memory(MemoryEvent::of(self.progress.step, memory)))?;
        }
        callbacks.on_smaller_micro_batches(step, self.recipe.micro_batch());
        Ok(())
    }

    /// Submits the images of a batch, in the form that the model takes.
    fn submit_batch(&mut self, batch: &Batch, lr: f64) -> Result<(), FitError> {
        let planes = self.planes(batch)?;
        let images = self.step_images(batch, planes.as_deref())?;
        if let Some(captions) = &self.supervision.captions {
            let CaptionBatch { tokens, places } = captions.batch(&batch.labels);
            let texts = Texts {
                tokens: &tokens,
                places: &places,
            };
            return Ok(self.trainer.submit(images, texts, lr as f32)?);
        }
        if let Some(lines) = &self.supervision.lines {
            let LineBatch {
                tokens,
                positions,
                labels,
            } = lines.batch(&batch.labels);
            let texts = Sequences {
                tokens: &tokens,
                positions: &positions,
                labels: &labels,
            };
            return Ok(self.trainer.submit(images, texts, lr as f32)?);
        }
        if let Some(dense) = &self.supervision.dense {
            let dense = dense.batch(&*self.splits.train, batch, self.trainer.preprocess())?;
            let images = match &dense.planes {
                Some(planes) => Input::Values(planes).into(),
                None => images,
            };
            let targets = Targets {
                values: &dense.values,
                prompts: Prompts {
                    positions: &dense.positions,
                    kinds: &dense.kinds,
                },
                ..Targets::default()
            };
            return Ok(self.trainer.submit(images, targets, lr as f32)?);
        }
        let targets = batch.targets(self.trainer.classes(), self.recipe.loss.label_smoothing);
        let teacher = match &self.supervision.teacher {
            Some(teacher) => teacher.logits(batch)?,
            None => Vec::new(),
        };
        let targets = Targets {
            values: &targets,
            teacher: &teacher,
            ..Targets::default()
        };
        Ok(self.trainer.submit(images, targets, lr as f32)?)
    }

    /// Returns the images of a batch on the GPU that makes them, or on the host.
    fn step_images<'a>(
        &mut self,
        batch: &'a Batch,
        planes: Option<&'a [f32]>,
    ) -> Result<StepImages<'a>, FitError> {
        Ok(match (&mut self.augment, planes) {
            (Some(augment), _) => augment.images(batch)?.into(),
            (None, Some(planes)) => Input::Values(planes).into(),
            (None, None) => Input::Pixels(&batch.pixels).into(),
        })
    }

    /// Returns the normalised images of a batch, if the model takes them and the host makes them.
    fn planes(&self, batch: &Batch) -> Result<Option<Vec<f32>>, FitError> {
        Ok(match self.trainer.options().input {
            InputKind::PixelValues if self.augment.is_none() => {
                Some(batch.planes(self.trainer.preprocess())?)
            }
            _ => None,
        })
    }

    /// Counts the step after the run's position, which has not updated the weights, or ends the run.
    fn skip_step(
        &mut self,
        batch: &Batch,
        what: &'static str,
        value: f32,
        callbacks: &mut dyn Callbacks,
    ) -> Result<(), FitError> {
        let is_expected = what != LOSS && self.trainer.is_searching_scale();
        let progress = &mut self.progress;
        progress.step += 1;
        progress.step_in_epoch += 1;
        progress.skipped_steps += 1;
        progress.skipped_in_a_row += 1;
        let (step, epoch) = (progress.step, progress.epoch + 1);
        let is_allowed = is_expected || self.recipe.skip_nonfinite;
        if is_allowed && progress.skipped_in_a_row <= MAX_SKIPPED_STEPS {
            callbacks.on_skipped_step(step, &format!("the {what} is {value}"));
            return Ok(());
        }
        let planes = self.planes(batch)?;
        let images = self.step_images(batch, planes.as_deref())?;
        let place = match self.trainer.first_non_finite(images, batch.len()) {
            Ok(Some(part)) => format!("first in the output of {part}"),
            Ok(None) => "and the outputs of all layers are finite".into(),
            Err(error) => format!("and the layers could not be checked: {error}"),
        };
        Err(FitError::NonFinite {
            step,
            epoch,
            what,
            value,
            place,
        })
    }
}

const LOSS: &str = "loss";

/// Returns the figure of a step that is NaN or infinite.
fn non_finite(report: &StepReport) -> Option<(&'static str, f32)> {
    let figures = [(LOSS, report.loss), ("norm of the gradients", report.grad_norm)];
    figures.into_iter().find(|(_, value)| !value.is_finite())
}
