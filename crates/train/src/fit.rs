//! Runs the epochs of a training: steps, evaluation, log, checkpoints.

mod annotation;
mod average_precision;
mod boxes;
mod broken;
mod callbacks;
mod captions;
pub(crate) mod checkpoints;
mod decoded;
mod dense;
mod dense_batch;
mod depths;
pub(crate) mod error;
mod evaluation;
mod events;
mod figures;
mod from_recipe;
mod holdout;
mod kind;
mod lines;
mod log;
mod map_evaluation;
mod masks;
mod options;
mod pending_step;
mod ranks;
mod reading;
mod recall;
mod report;
mod retrieval;
mod speed;
mod steps;
mod teacher;
mod tensorboard;
mod text_evaluation;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hipvit::model::Checkpoint;
use hipvit::{Session, SessionBuilder};
use hipvit_data::{Broken, Dataset, Loader, OnBroken, Position, Sampler, Splits};

use tempfile::TempDir;

use self::broken::{broken_elsewhere, broken_texts};
pub use self::callbacks::Callbacks;
use self::captions::Captions;
pub(crate) use self::captions::{check as check_recipe, text_tower};
use self::checkpoints::Checkpoints;
pub use self::checkpoints::Progress;
use self::dense::Dense;
pub use self::error::FitError;
use self::evaluation::Tally;
pub use self::evaluation::{Confusion, Evaluation, ImageLoss};
pub use self::events::{EpochEvent, Event, MemoryEvent, StepEvent};
pub use self::figures::{BoxFigures, DepthFigures, Figures, MaskFigures};
use self::from_recipe::{images_per_run, loss_kind, new_trainer};
pub(crate) use self::holdout::{divide, divided};
pub use self::holdout::{hold_out, open_splits};
pub(crate) use self::kind::DataKind;
use self::lines::Lines;
use self::log::Log;
pub use self::options::FitOptions;
use self::pending_step::PendingStep;
pub use self::reading::Reading;
pub use self::recall::Recall;
use self::speed::Speed;
use self::teacher::Teacher;
use crate::Objective;
use crate::augmentation::TrainingImages;
use crate::device_augmentation::{DeviceAugmentation, training_rule};
pub use crate::float8::LayerEvent;
use crate::inference::run_dataset;
use crate::ranks::Ranks;
use crate::recipe::Recipe;
use crate::run_directory::RunDirectory;
use crate::trainer::{Trainer, Tuning, Weights};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// Position in the run.
    pub progress: Progress,
    /// Figures of the last epoch that this process completed.
    pub last: Option<EpochEvent>,
    /// True if all epochs are complete.
    pub is_complete: bool,
}

/// A training run that is ready to start or to continue.
#[derive(Debug)]
pub struct Fit {
    run: RunDirectory,
    recipe: Recipe,
    options: FitOptions,
    splits: Splits,
    trainer: Trainer,
    supervision: Supervision,
    /// Set if the GPU of the steps makes the training images.
    augment: Option<DeviceAugmentation>,
    sampler: Sampler,
    progress: Progress,
    checkpoints: Checkpoints,
    log: Log,
    /// Last evaluation.
    evaluation: Option<Evaluation>,
    /// Start of what is timed.
    start: Instant,
    ranks: Option<Ranks>,
    /// Steps that are submitted and not finished.
    pending: VecDeque<PendingStep>,
    /// The run directory of a rank that does not write the one of the run. Removed at the end.
    _temporary: Option<TempDir>,
}

/// What images are compared with, beside their classes.
#[derive(Debug)]
struct Supervision {
    teacher: Option<Teacher>,
    /// Set if the data are pairs of images and captions.
    captions: Option<Arc<Captions>>,
    /// Set if a decoder makes texts of the images.
    lines: Option<Arc<Lines>>,
    /// Set if the data are maps of the images.
    dense: Option<Arc<Dense>>,
}

impl Supervision {
    /// Opens the captions of pairs, the texts of a decoder, or maps.
    fn open(kind: DataKind, directory: &Path, splits: &Splits, recipe: &Recipe) -> Result<Self, FitError> {
        let captions = (kind == DataKind::Pairs).then(|| Captions::open(directory, splits));
        let lines = (kind == DataKind::Texts).then(|| Lines::open(directory, splits));
        Ok(Self {
            teacher: None,
            captions: captions.transpose()?.map(Arc::new),
            lines: lines.transpose()?.map(Arc::new),
            dense: Dense::open(kind, directory, splits, recipe)?.map(Arc::new),
        })
    }

    /// Returns the reason why the host must make the training images, if there is one.
    fn needs_host(&self) -> Option<&'static str> {
        if self.teacher.is_some() {
            Some("the teacher takes images on the host")
        } else if self.dense.is_some() {
            Some("maps and boxes change with the images on the host")
        } else {
            None
        }
    }

    /// Returns the loss of pairs, texts, maps or boxes, unless the data have classes.
    fn objective(&self) -> Option<Objective> {
        let pairs = self
            .captions
            .as_ref()
            .map(|captions| Objective::Pairs(captions.pairs));
        let texts = self.lines.as_ref().map(|lines| Objective::Texts(lines.options));
        pairs
            .or(texts)
            .or(self.dense.as_ref().map(|dense| dense.objective()))
    }
}

impl Fit {
    /// Prepares the run in a directory. With `resume`, the run continues after its newest checkpoint.
    ///
    /// # Errors
    ///
    /// Returns a [`FitError`] if the model cannot be trained, or if a checkpoint does not fit it.
    pub fn new(
        run: RunDirectory,
        mut recipe: Recipe,
        splits: Splits,
        options: FitOptions,
        resume: bool,
    ) -> Result<Self, FitError> {
        let ranks = options.collectives.clone();
        let ranks = ranks.map(|collectives| Ranks::new(collectives, &recipe.ranks));
        let ranks = ranks.transpose()?;
        let sampler = Sampler::new(splits.train.len(), recipe.batch, recipe.seed)?;
        let checkpoint = Checkpoint::open(Some(&run.initial()))?;
        let checkpoints = Checkpoints::open(run.checkpoints(), recipe.checkpoints.keep)?;
        let saved = if resume { checkpoints.newest()? } else { None };
        let mut progress = saved.as_ref().map(|saved| saved.progress).unwrap_or_default();
        recipe.accumulate = progress.accumulate.unwrap_or(recipe.accumulate);
        let kind = DataKind::of(&splits, &run.initial())?;
        check_recipe(&recipe, kind, ranks.is_some())?;
        let mut supervision = Supervision::open(kind, &run.initial(), &splits, &recipe)?;
        let mut trainer = new_trainer(
            checkpoint,
            &recipe,
            &options,
            ranks.clone(),
            supervision.objective(),
        )?;
        let accumulate = trainer.options().accumulate;
        if accumulate != recipe.accumulate {
            recipe.accumulate = accumulate;
            progress.accumulate = Some(accumulate);
        }
        supervision.teacher = Teacher::open(&recipe, &options, &trainer)?;
        let augment = DeviceAugmentation::open(recipe.augmentation.on, &trainer, supervision.needs_host())?;
        if let Some(saved) = &saved {
            trainer.restore(&saved.states)?;
        }
        let mut log = Log::open(&run.log(), progress.step)?;
        if let (Some(report), 0) = (trainer.memory(), progress.step) {
            log.write(&Event::Memory(MemoryEvent::of(0, report)))?;
        }
        let evaluation = Evaluation::read(&run.evaluation(), progress.step)?;
        Ok(Self {
            run,
            recipe,
            options,
            splits,
            trainer,
            supervision,
            augment,
            sampler,
            progress,
            checkpoints,
            log,
            evaluation,
            start: Instant::now(),
            ranks,
            pending: VecDeque::new(),
            _temporary: None,
        })
    }

    /// Keeps the run directory of this rank until the end.
    pub(crate) fn with_temporary(self, directory: TempDir) -> Self {
        Self {
            _temporary: Some(directory),
            ..self
        }
    }

    /// Returns the trainer.
    #[must_use]
    pub fn trainer(&self) -> &Trainer {
        &self.trainer
    }

    /// [Measures](Trainer::tune) the kernels of a step. Returns the run with the fastest ones.
    ///
    /// # Errors
    ///
    /// The errors of [`Trainer::tune`] and of [`Fit::new`].
    pub fn tuned(self) -> Result<(Self, Tuning), FitError> {
        let tuning = self.trainer.tune(self.recipe.batch)?;
        // Its states take as much memory as those of the next one.
        drop(self.trainer);
        let checkpoint = Checkpoint::open(Some(&self.run.initial()))?;
        let (ranks, objective) = (self.ranks.clone(), self.supervision.objective());
        let mut trainer = new_trainer(checkpoint, &self.recipe, &self.options, ranks, objective)?;
        if self.progress.step > 0
            && let Some(saved) = self.checkpoints.newest()?
        {
            trainer.restore(&saved.states)?;
        }
        Ok((Self { trainer, ..self }, tuning))
    }

    /// Returns true if several ranks train together.
    #[must_use]
    pub fn has_ranks(&self) -> bool {
        self.ranks.is_some()
    }

    /// Returns true if the GPU of the steps makes the training images.
    #[must_use]
    pub fn augments_on_device(&self) -> bool {
        self.augment.is_some()
    }

    /// Returns the number of training captions that the model's context truncates, and the tokens of a text. `None` if the data are not pairs of
    /// images and captions.
    #[must_use]
    pub fn truncated_captions(&self) -> Option<[usize; 2]> {
        let captions = self.supervision.captions.as_ref()?;
        Some([captions.truncated(), captions.pairs.tokens])
    }

    /// Returns the number of tokens of the longest text, and the maximum number that the model's files allow to be generated. `None` if no decoder
    /// makes texts of the images.
    #[must_use]
    pub fn text_lengths(&self) -> Option<[usize; 2]> {
        self.supervision.lines.as_ref().map(|lines| lines.lengths())
    }

    /// Returns the recipe.
    #[must_use]
    pub fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    /// Returns the position of the run.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Returns the number of steps per epoch.
    #[must_use]
    pub fn steps_per_epoch(&self) -> u64 {
        self.sampler.batches() as u64
    }

    /// Returns the number of steps of the whole run.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.recipe.epochs * self.steps_per_epoch()
    }

    /// Trains until all epochs are complete, or until [`Callbacks::must_stop`] returns true.
    ///
    /// # Errors
    ///
    /// Returns a [`FitError`] for a broken image that is not skipped, for a loss that is not finite, for a file that
    /// cannot be written, and for errors of the device.
    pub fn run(mut self, callbacks: &mut dyn Callbacks) -> Result<Summary, FitError> {
        let schedule = self.recipe.schedule(self.steps_per_epoch());
        let loader = self.training_images()?;
        let mut last = None;
        let mut speed = Speed::new();
        self.start = Instant::now();
        for batch in loader {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    self.finish_steps(0, &mut speed, callbacks)?;
                    return Err(error.into());
                }
            };
            let stops = self.begin_step(&batch, callbacks)?;
            self.submit(batch, &schedule, callbacks)?;
            let must_stop = stops.unwrap_or_else(|| callbacks.must_stop());
            let is_last = self.submitted_in_epoch() == self.steps_per_epoch();
            let ahead = if is_last || must_stop {
                0
            } else {
                self.steps_ahead()
            };
            self.finish_steps(ahead, &mut speed, callbacks)?;
            if is_last {
                let event = self.end_epoch(callbacks)?;
                last = Some(event);
                speed = Speed::new();
            }
            let is_complete = self.progress.epoch == self.recipe.epochs;
            let is_due =
                is_last && (is_complete || self.progress.epoch.is_multiple_of(self.recipe.checkpoints.every));
            if is_due || must_stop {
                self.write_checkpoint(callbacks)?;
                self.lap();
            }
            if must_stop {
                break;
            }
        }
        Ok(Summary {
            progress: self.progress,
            last,
            is_complete: self.progress.epoch == self.recipe.epochs,
        })
    }

    /// Writes a checkpoint, the model and the report, if this process writes them. If each rank has a part of the states, the others take part.
    fn write_checkpoint(&self, callbacks: &mut dyn Callbacks) -> Result<(), FitError> {
        let writes = self.trainer.writes();
        if !writes && !self.trainer.is_divided() {
            return Ok(());
        }
        let path = self.checkpoints.write(&self.trainer, &self.progress)?;
        self.run.write_model(&self.trainer)?;
        self.run.write_adapter(&self.trainer)?;
        if writes {
            self.write_report()?;
            callbacks.on_checkpoint(&path);
        }
        Ok(())
    }

    /// Starts to load the training images from the run's position on.
    fn training_images(&self) -> Result<Loader, FitError> {
        let keys = &self.recipe.augmentation;
        let mut prepare = TrainingImages::new(keys, &training_rule(self.trainer.preprocess())?)?;
        if let Some(resize) = self.supervision.dense.as_ref().and_then(|dense| dense.resize()) {
            prepare = prepare.with_resize(resize);
        }
        let mut options = TrainingImages::loader_options(keys);
        if self.options.skip_broken {
            options.on_broken = OnBroken::Replace;
        }
        options.draws = self.augment.is_some();
        options.end = Some(epoch_number(self.recipe.epochs));
        options.share = self.share();
        let start = Position {
            epoch: epoch_number(self.progress.epoch),
            batch: self.progress.step_in_epoch as usize,
        };
        let dataset = self.splits.train.clone();
        Ok(Loader::new(
            dataset,
            self.sampler.clone(),
            Arc::new(prepare),
            options,
            start,
        )?)
    }

    /// Evaluates if it is time to, logs the epoch, and moves to the next one.
    fn end_epoch(&mut self, callbacks: &mut dyn Callbacks) -> Result<EpochEvent, FitError> {
        let mut unaveraged = None;
        let epoch = self.progress.epoch + 1;
        let is_evaluated = epoch == self.recipe.epochs || epoch.is_multiple_of(self.recipe.evaluation.every);
        if let Some(validation) = self.splits.validation.clone().filter(|_| is_evaluated) {
            let weights = self.trainer.evaluated_weights();
            if weights != Weights::Last {
                // The evaluation of the averages reports broken images.
                unaveraged = Some(self.evaluate(&validation, Weights::Last, None)?);
            }
            let evaluation = self.evaluate(&validation, weights, Some(callbacks))?;
            evaluation.write(&self.run.evaluation())?;
            self.evaluation = Some(evaluation);
        }
        let val_seconds = self.lap();
        let evaluation = self.evaluation.as_ref().filter(|_| is_evaluated);
        let progress = &mut self.progress;
        // Tokens, for texts.
        let images = progress.images.max(1) as f64;
        let event = EpochEvent {
            epoch: progress.epoch + 1,
            step: progress.step,
            loss: progress.loss_sum / images,
            train_accuracy: (!self.trainer.options().loss.has_maps())
                .then(|| progress.correct as f64 / images),
            val_loss: evaluation.and_then(|evaluation| evaluation.loss),
            val_accuracy: evaluation.map(Evaluation::accuracy),
            unaveraged_val_loss: unaveraged.as_ref().and_then(|evaluation| evaluation.loss),
            unaveraged_val_accuracy: unaveraged.as_ref().map(Evaluation::accuracy),
            recall: evaluation.and_then(|evaluation| evaluation.recall),
            unaveraged_recall: unaveraged.as_ref().and_then(|evaluation| evaluation.recall),
            reading: evaluation.and_then(|evaluation| evaluation.reading),
            unaveraged_reading: unaveraged.as_ref().and_then(|evaluation| evaluation.reading),
            figures: evaluation.and_then(|evaluation| evaluation.figures),
            unaveraged_figures: unaveraged.as_ref().and_then(|evaluation| evaluation.figures),
            train_seconds: progress.seconds,
            val_seconds: evaluation.map(|_| val_seconds),
            skipped: progress.skipped,
            skipped_steps: progress.skipped_steps,
        };
        *progress = Progress {
            epoch: progress.epoch + 1,
            step: progress.step,
            skipped: progress.skipped,
            skipped_steps: progress.skipped_steps,
            skipped_in_a_row: progress.skipped_in_a_row,
            accumulate: progress.accumulate,
            ..Progress::default()
        };
        self.log.write(&Event::Epoch(event))?;
        callbacks.on_epoch(&event);
        Ok(event)
    }

    /// Evaluates the present weights on the validation images. Counts and reports broken images if there are `callbacks`.
    fn evaluate(
        &mut self,
        dataset: &Arc<dyn Dataset>,
        weights: Weights,
        mut callbacks: Option<&mut dyn Callbacks>,
    ) -> Result<Evaluation, FitError> {
        if let Some(captions) = self.supervision.captions.clone() {
            return self.evaluate_pairs(dataset, &captions, weights, callbacks);
        }
        if self.supervision.lines.is_some() {
            return self.evaluate_texts(dataset, weights, callbacks);
        }
        if let Some(dense) = self.supervision.dense.clone() {
            return self.evaluate_maps(dataset, &dense, weights, callbacks);
        }
        let session = self.session(weights)?;
        let skip_broken = self.options.skip_broken;
        let mut tally = Tally::new(loss_kind(&self.recipe));
        let mut results = Vec::new();
        let mut broken = Vec::new();
        run_dataset(
            &session,
            dataset.clone(),
            skip_broken,
            self.share(),
            |batch, outputs| {
                broken.extend(broken_texts(&batch.broken));
                if !batch.is_empty() {
                    results.extend(tally.results(batch, outputs)?);
                }
                Ok::<(), FitError>(())
            },
        )?;
        (results, broken) = self.of_all_ranks(results, broken)?;
        if let Some(callbacks) = &mut callbacks {
            let broken: Vec<Broken> = broken.into_iter().map(broken_elsewhere).collect();
            self.report_broken(&broken, &mut **callbacks);
        }
        for result in &results {
            tally.add(&**dataset, result);
        }
        Ok(tally.finish(self.progress.step))
    }

    /// Returns the seconds since the last call.
    fn lap(&mut self) -> f64 {
        let now = Instant::now();
        let seconds = (now - self.start).as_secs_f64();
        self.start = now;
        seconds
    }

    /// Returns a session with the present weights.
    fn session(&self, weights: Weights) -> Result<Session, FitError> {
        Ok(self.session_builder()?.of_model(self.trainer.model(weights)?)?)
    }

    /// Returns the builder of sessions that evaluate.
    fn session_builder(&self) -> Result<SessionBuilder, FitError> {
        let builder = Session::builder()
            .device(self.options.device)
            .dtype(self.options.dtype)
            .tokens(self.supervision.lines.is_some())
            .batch(images_per_run(&self.recipe, self.ranks.as_ref())?);
        Ok(match self.options.threads {
            Some(threads) => builder.threads(threads),
            None => builder,
        })
    }
}

/// Returns an epoch's number in the type of the sampler.
fn epoch_number(epoch: u64) -> u32 {
    u32::try_from(epoch).unwrap_or(u32::MAX)
}
