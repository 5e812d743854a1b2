//! The [`Trainer`]: steps of training on one device.

mod diagnosis;
mod evaluated;
mod micro_batch;
mod step;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hipvit::error::{Error, Result};
use hipvit::exec::{Executor, ExecutorInfo, ExecutorOptions, Inputs, Placement, RunOutputs, TimedCall};
use hipvit::image::Preprocess;
use hipvit::model::{Checkpoint, InputKind, LoadOptions, TensorValues};
use hipvit::ops::LossKind;
use hipvit::session::Place;
use hipvit::tensor::Input;
use hipvit::{DType, Device, hip};
use hipvit_data::random::{Draw, Purpose, Stream};

use self::micro_batch::{MicroBatch, Tally, micro_batches, rows_of};
pub(crate) use self::step::{Prepared, Step, passes};
use crate::float8::{CHECK_INTERVAL, Float8Layers, LayerEvent};
use crate::lora::{Lora, LoraOptions};
use crate::loss_scale::LossScale;
use crate::memory::{self, MemoryBudget, MemoryReport};
use crate::optimizer::OptimizerOptions;
use crate::quantization::{self, FLOAT8_LAYERS, PrecisionOptions};
use crate::saved::{self, Counters};
use crate::scatter::{Frozen, Scatter};
use crate::step_graph::{TensorInfo, TensorRule, average_of, inputs};

/// Options of a [`Trainer`].
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Device that computes the steps.
    pub device: Device,
    /// Dtype of activations and gradients on a GPU. The CPU computes them in f32. The trained weights and the states of the optimiser are in f32.
    pub dtype: DType,
    /// Number of threads on the CPU. By default one per physical core.
    pub threads: Option<usize>,
    /// Form of the images.
    pub input: InputKind,
    /// Height and width of the images, if they differ from the model's.
    pub image_size: Option<[usize; 2]>,
    /// Loss function.
    pub loss: LossKind,
    /// Optimiser.
    pub optimizer: OptimizerOptions,
    /// Decay of the moving averages of the weights (EMA): a step that updates the weights makes each average `decay · average + (1 − decay) ·
    /// weight`. Models are then written with the averages. `None` if there are no averages.
    pub ema_decay: Option<f32>,
    /// Rounding of linear layers, and scale of the loss.
    pub precision: PrecisionOptions,
    /// Largest number of micro-batches of a step. Their gradients are added up in f32, and then update the weights once. More micro-batches
    /// need less memory for activations.
    pub accumulate: usize,
    /// Maximum norm of all gradients together. Larger gradients are scaled down.
    pub clip_norm: Option<f32>,
    /// Probability that an image skips a residual branch of the last block. It grows linearly from 0 at the first block.
    pub drop_path: f32,
    /// Updates of low rank beside the linear layers of the blocks. The weights of these layers then stay as they are.
    pub lora: Option<LoraOptions>,
    /// Limit of the memory, and the number of images per step for which it holds. `None` keeps all activations. The backward pass recomputes
    /// what does not fit, which changes no bit of the results.
    pub memory: Option<MemoryBudget>,
    /// Seed of the skipped branches, and of the first updates of low rank.
    pub seed: u64,
}

impl Default for TrainOptions {
    fn default() -> Self {
        Self {
            device: Device::Auto,
            dtype: DType::F32,
            threads: None,
            input: InputKind::Pixels,
            image_size: None,
            loss: LossKind::CrossEntropy,
            optimizer: OptimizerOptions::default(),
            ema_decay: None,
            precision: PrecisionOptions::default(),
            accumulate: 1,
            clip_norm: None,
            drop_path: 0.0,
            lora: None,
            memory: None,
            seed: 0,
        }
    }
}

/// Weights of a model that a [`Trainer`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The weights after the last step.
    Last,
    /// Their moving averages.
    Average,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// Number of the step, counted from 1 over all runs that were resumed.
    pub step: u64,
    /// Mean loss of the batch, before the update.
    pub loss: f32,
    /// Norm of all gradients together, before clipping.
    pub grad_norm: f32,
    /// False if the norm is NaN or infinite. The weights and the states of the optimiser are then unchanged.
    pub updated: bool,
    /// Number of images whose largest logit is that of their largest target.
    pub correct: usize,
}

/// Trains a model, step by step.
#[derive(Debug)]
pub struct Trainer {
    checkpoint: Checkpoint,
    options: TrainOptions,
    preprocess: Preprocess,
    classes: usize,
    executor: Arc<dyn Executor>,
    scatter: Scatter,
    lora: Option<Lora>,
    /// Name of the state with the elements of each trained constant.
    weights: Vec<String>,
    /// Block of each residual branch that images may skip.
    branches: Vec<usize>,
    /// Tensors of the checkpoint that are rounded to int8.
    int8: BTreeSet<String>,
    float8: Option<Float8Layers>,
    memory: Option<MemoryReport>,
    counters: Counters,
}

impl Trainer {
    /// Creates a trainer for the model of a checkpoint. `rule` is asked for each tensor.
    ///
    /// # Errors
    ///
    /// - [`Error::Argument`] for an option that is out of range, or a model without a classifier
    /// - [`Error::Graph`] or [`Error::Op`] if an op of the model has no derivative
    /// - the errors of [`hipvit::model::load`], and of making an executor
    pub fn new(
        checkpoint: Checkpoint,
        options: TrainOptions,
        rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
    ) -> Result<Self> {
        let placement = placement(&options)?;
        let dtype = computed_dtype(&placement, &options);
        let Step {
            mut graph,
            scatter,
            lora,
            weights,
            branches,
            int8,
            float8,
            preprocess,
            classes,
        } = Step::new(&checkpoint, &options, rule, dtype)?;
        let mut memory = None;
        if let Some(budget) = options.memory {
            let limit = budget.limit.bytes(&placement)?;
            let (smaller, report) = memory::fit(&graph, budget.images, dtype, limit)?;
            (graph, memory) = (smaller, Some(report));
        }
        let executor_options = ExecutorOptions {
            threads: options.threads,
            ..ExecutorOptions::new(dtype)
        };
        Ok(Self {
            executor: placement.executor(&graph, &executor_options)?,
            preprocess,
            classes,
            checkpoint,
            scatter,
            lora,
            weights,
            branches,
            int8,
            float8,
            memory,
            counters: Counters {
                steps: 0,
                updates: 0,
                scale: if options.dtype == DType::F16 {
                    LossScale::dynamic(options.precision.loss_scale)
                } else {
                    LossScale::none()
                },
                bf16_layers: BTreeSet::new(),
            },
            options,
        })
    }

    /// Returns the checkpoint that training started from.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns the options.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// Returns the preprocessing of images.
    pub fn preprocess(&self) -> &Preprocess {
        &self.preprocess
    }

    /// Returns the number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.counters.steps
    }

    /// Returns true if the last step without an update is no cause for concern: in f16, the factor of the loss is found by trial.
    pub(crate) fn is_searching_scale(&self) -> bool {
        self.counters.scale.is_searching()
    }

    /// Returns the number of trained elements.
    pub fn parameters(&self) -> u64 {
        self.scatter.elements() + self.lora.as_ref().map_or(0, Lora::elements)
    }

    /// Returns the memory of a step, if [`TrainOptions::memory`] is set.
    pub fn memory(&self) -> Option<&MemoryReport> {
        self.memory.as_ref()
    }

    /// Returns the floating-point operations of a step: forward pass, backward pass and optimiser, without recomputation.
    ///
    /// # Errors
    ///
    /// The errors of planning a run.
    pub fn flops(&self, images: usize) -> Result<u64> {
        let mut flops = 0;
        for part in micro_batches(images, self.options.accumulate) {
            flops += self.executor.plan(part.len())?.flops();
        }
        let additional = self.memory.as_ref().map_or(0.0, MemoryReport::additional_flops);
        Ok((flops as f64 / (1.0 + additional)).round() as u64)
    }

    /// Runs a step on whatever the device's buffers contain, and returns the time of each of its kernels and library calls. Empty on the CPU.
    /// The weights are of no use afterwards.
    ///
    /// # Errors
    ///
    /// The errors of a step.
    pub fn time_calls(&mut self, images: usize) -> Result<Vec<TimedCall>> {
        self.executor.time_calls(&self.executor.plan(images)?)
    }

    /// Returns the device's time of a step, without the copies of inputs and weights: steps that are repeated for `time`, on one GPU. The
    /// weights are of no use afterwards.
    ///
    /// # Errors
    ///
    /// The errors of a step. [`Error::Argument`] on the CPU.
    pub fn time_runs(&mut self, images: usize, time: Duration) -> Result<Duration> {
        self.executor.time_runs(&self.executor.plan(images)?, time)
    }

    /// Returns the tensors that are not trained.
    pub fn frozen(&self) -> &[Frozen] {
        &self.scatter.frozen
    }

    /// Computes the loss of a batch and its gradients, and updates the weights. `images` has the form of [`TrainOptions::input`].
    /// `targets` is `[images, classes]`: probabilities of the classes, or values for [`LossKind::MeanSquaredError`].
    ///
    /// With [`TrainOptions::accumulate`], the batch is divided into micro-batches of equal size. The last one is smaller if the size of the
    /// batch is no multiple.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the images and targets do not fit the model or each other. The errors of the device.
    pub fn step(&mut self, images: Input<'_>, targets: &[f32], learning_rate: f32) -> Result<StepReport> {
        let classes = self.classes.max(1);
        let batch = targets.len() / classes;
        if batch == 0 || !targets.len().is_multiple_of(classes) {
            let reason = format!(
                "{} were given, which are not rows of {classes} classes",
                targets.len()
            );
            return Err(Error::argument("targets", reason));
        }
        let step = self.counters.steps + 1;
        let factors = self.branch_factors(step, batch);
        let mut tally = Tally::default();
        for part in micro_batches(batch, self.options.accumulate) {
            let run = MicroBatch {
                images: rows_of(images, batch, &part),
                targets: &targets[part.start * classes..part.end * classes],
                factors: &factors[part.start * self.branches.len()..part.end * self.branches.len()],
                weight: self.counters.scale.factor / batch as f32,
                is_first: part.start == 0,
                is_last: part.end == batch,
            };
            let outputs = self.run(&run, learning_rate)?;
            tally.add(&outputs, run.targets, classes)?;
        }
        let report = tally.report(step);
        self.counters.steps = step;
        self.counters.updates += u64::from(report.updated);
        self.counters.scale.after(report.updated);
        if let Some(float8) = &mut self.float8
            && report.updated
            && step % CHECK_INTERVAL == 1
        {
            float8.check(step, &*self.executor, &mut self.counters.bf16_layers)?;
        }
        Ok(report)
    }

    /// Computes the gradients of a micro-batch. The last one of a step updates the weights.
    fn run(&self, micro_batch: &MicroBatch<'_>, learning_rate: f32) -> Result<RunOutputs> {
        let MicroBatch {
            images,
            targets,
            factors,
            ..
        } = *micro_batch;
        let batch = targets.len() / self.classes.max(1);
        let plan = self.executor.plan(batch)?;
        let Counters { updates, scale, .. } = &self.counters;
        let rates = self.options.optimizer.rates(learning_rate, updates + 1);
        let weights = vec![micro_batch.weight; batch];
        let unscale = [if micro_batch.is_last {
            1.0 / scale.factor
        } else {
            // Nothing is updated.
            f32::NAN
        }];
        let keep = [if micro_batch.is_first { 0.0 } else { 1.0 }];
        let mut named = vec![
            (plan.graph().first_input_name(), images.into()),
            (inputs::TARGETS, Input::Values(targets).into()),
            (inputs::IMAGE_WEIGHTS, Input::Values(&weights).into()),
            (inputs::RATES, Input::Values(&rates).into()),
            (inputs::GRADIENT_SCALE, Input::Values(&unscale).into()),
        ];
        if self.options.accumulate > 1 {
            named.push((inputs::KEEP_SUMS, Input::Values(&keep).into()));
        }
        if !factors.is_empty() {
            named.push((inputs::BRANCH_FACTORS, Input::Values(factors).into()));
        }
        let switches = self
            .float8
            .as_ref()
            .map(|layers| layers.switches(&self.counters.bf16_layers));
        if let Some(switches) = &switches {
            named.push((FLOAT8_LAYERS, Input::Values(switches).into()));
        }
        let outputs = self.executor.run_inputs(&plan, Inputs::new(named));
        outputs.map_err(|error| self.with_least_memory(batch, error))
    }

    /// Adds to the error of a device without enough memory how much a step needs.
    fn with_least_memory(&self, images: usize, error: Error) -> Error {
        let Error::Hip(hip::Error::OutOfMemory { device, .. }) = &error else {
            return error;
        };
        let ExecutorInfo {
            graph, activations, ..
        } = self.executor.info();
        match memory::within(graph, images, *activations, 0) {
            Ok((_, least)) => Error::device(device, memory::shortage(&least)),
            Err(_) => error,
        }
    }

    /// Returns the factor of each residual branch of each image: 0, or the reciprocal of the probability of 1.
    fn branch_factors(&self, step: u64, batch: usize) -> Vec<f32> {
        let last = self.branches.iter().max().copied().unwrap_or(0).max(1);
        let factor = |index: usize| {
            let block = self.branches[index % self.branches.len()];
            let skipped = self.options.drop_path * block as f32 / last as f32;
            let is_kept = uniform(self.options.seed, step, index as u64) >= skipped;
            if is_kept { 1.0 / (1.0 - skipped) } else { 0.0 }
        };
        (0..batch * self.branches.len()).map(factor).collect()
    }

    /// Returns the present elements of the checkpoint's trained tensors.
    pub(crate) fn values(&self, weights: Weights) -> Result<TensorValues> {
        let mut values = self.whole_values(weights)?;
        if let Some(lora) = &self.lora {
            lora.merge(&self.checkpoint, &mut values, &|name| self.weight(name, weights))?;
        }
        Ok(values)
    }

    /// Returns the present elements of the tensors that are trained as a whole.
    fn whole_values(&self, weights: Weights) -> Result<TensorValues> {
        self.scatter.tensors(&self.checkpoint, |index| {
            self.weight(&self.weights[index], weights)
        })
    }

    /// Returns the elements of the weight `name`, or of its average.
    fn weight(&self, name: &str, weights: Weights) -> Result<Vec<f32>> {
        let tensor = match weights {
            Weights::Last => self.executor.state(name),
            Weights::Average => self.executor.state(&average_of(name)),
        };
        Ok(tensor?.to_f32().into_owned())
    }

    /// Writes all weights and states of the optimiser to a file, which is replaced as a whole.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be written. The file that was there before stays.
    pub fn save(&self, file: &Path) -> Result<()> {
        saved::write(&self.executor, &self.counters, file)
    }

    /// Restores what [`save`](Self::save) has written.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::Weights`] if the file cannot be read. [`Error::Tensor`] if it is of another model or other options; the
    /// trainer is then unchanged.
    pub fn restore(&mut self, file: &Path) -> Result<()> {
        saved::read(&self.executor, &mut self.counters, file)
    }

    /// Writes the model with its [`evaluated_weights`](Self::evaluated_weights) to a directory, in the form of the checkpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] for the file that cannot be written.
    pub fn write_model(&self, directory: &Path) -> Result<()> {
        let values = self.values(self.evaluated_weights())?;
        self.checkpoint.write_values(directory, &values)
    }

    /// Writes the updates of low rank to a directory, as an adapter of peft for the model `base`. Tensors that are trained as a whole, such as
    /// those of the classifier, are in the adapter too. Returns false if the trainer has no such updates.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] for the file that cannot be written.
    pub fn write_adapter(&self, directory: &Path, base: &str) -> Result<bool> {
        let Some(lora) = &self.lora else {
            return Ok(false);
        };
        let weights = self.evaluated_weights();
        let whole = self.whole_values(weights)?;
        lora.write(directory, base, (&self.checkpoint, &whole), &|name| {
            self.weight(name, weights)
        })?;
        Ok(true)
    }
}

fn check(options: &TrainOptions) -> Result<()> {
    if !matches!(options.dtype, DType::F32 | DType::F16 | DType::BF16) {
        let reason = format!(
            "{} is no dtype of gradients. Train in f32, bf16 or f16",
            options.dtype
        );
        return Err(Error::argument("dtype", reason));
    }
    let PrecisionOptions {
        loss_scale,
        quantization,
    } = options.precision;
    if !loss_scale.is_normal() || loss_scale < 0.0 {
        return Err(Error::argument("loss scale", "is not a number above 0"));
    }
    quantization::check(quantization, options)?;
    if !(0.0..1.0).contains(&options.drop_path) {
        let reason = format!("{} is not a probability below 1", options.drop_path);
        return Err(Error::argument("drop path", reason));
    }
    if options
        .ema_decay
        .is_some_and(|decay| !(0.0..1.0).contains(&decay))
    {
        return Err(Error::argument("EMA decay", "is not a number from 0 to below 1"));
    }
    if options.accumulate == 0 {
        return Err(Error::argument(
            "accumulate",
            "is 0: a step has at least one micro-batch",
        ));
    }
    if options
        .clip_norm
        .is_some_and(|maximum| maximum.is_nan() || maximum <= 0.0)
    {
        return Err(Error::argument("clip norm", "is not greater than 0"));
    }
    Ok(())
}

pub(crate) fn placement(options: &TrainOptions) -> Result<Placement> {
    Ok(match options.device.open()? {
        Place::Cpu { .. } => Placement::Host,
        Place::Gpu(gpu) => Placement::gpu(&gpu),
    })
}

/// Returns the dtype of activations.
pub(crate) fn computed_dtype(placement: &Placement, options: &TrainOptions) -> DType {
    match placement {
        Placement::Host => DType::F32,
        _ => options.dtype,
    }
}

fn load_options(options: &TrainOptions) -> LoadOptions {
    LoadOptions {
        image_size: options.image_size,
        input: options.input,
        ..LoadOptions::default()
    }
}

/// Returns a number from 0 to below 1 that depends on nothing but its arguments.
fn uniform(seed: u64, step: u64, index: u64) -> f32 {
    let draw = Draw {
        purpose: Purpose::DropPath,
        epoch: step as u32,
        index,
        repeat: 0,
    };
    (Stream::new(seed, draw).next_u32() >> 8) as f32 / (1 << 24) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_numbers_depend_on_all_arguments_and_cover_the_range() {
        let numbers: Vec<f32> = (0..4096).map(|index| uniform(1, 2, index)).collect();
        let mean = numbers.iter().sum::<f32>() / numbers.len() as f32;
        // Six deviations of the mean of 4096 numbers.
        assert!(
            (mean - 0.5).abs() < 6.0 * (1.0 / 12.0_f32).sqrt() / 64.0,
            "{mean}"
        );
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
        assert_eq!(uniform(1, 2, 3), uniform(1, 2, 3));
        for other in [
            uniform(2, 2, 3),
            uniform(1, 3, 3),
            uniform(1, 2, 4),
            uniform(3, 2, 1),
        ] {
            assert_ne!(uniform(1, 2, 3), other);
        }
    }
}
