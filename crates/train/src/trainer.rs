//! The [`Trainer`]: steps of training on one device.

mod compression;
mod diagnosis;
mod evaluated;
mod images;
mod in_flight;
mod learned_tensors;
mod micro_batch;
mod options;
mod pairs;
mod ranks;
mod report;
mod second_try;
mod states;
mod step;
mod step_queue;
mod targets;
mod tuning;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hipvit::DType;
use hipvit::error::{Error, Result};
use hipvit::exec::{Executor, ExecutorOptions, Inputs, PendingRun, Submission, TimedCall};
use hipvit::graph::Value;
use hipvit::hip::Device;
use hipvit::image::Preprocess;
use hipvit::model::{Checkpoint, TensorValues, mask_inputs, pair_inputs};
use hipvit::tensor::Input;
use hipvit_generate::text_inputs;

pub use self::images::StepImages;
use self::micro_batch::{MicroBatch, micro_batches};
pub use self::options::TrainOptions;
use self::options::{check, float8, load_options};
pub(crate) use self::options::{computed_dtype, placement};
pub use self::report::StepReport;
pub use self::step::step_graph;
pub(crate) use self::step::{Prepared, Step, StepTarget, passes};
use self::step_queue::{Compared, StepQueue, SubmittedRun};
pub use self::targets::{Prompts, Sequences, Targets, Texts};
pub use self::tuning::Tuning;
use crate::dropout::{self, branch_factors};
use crate::float8::{Float8Layers, LayerEvent};
use crate::inputs;
use crate::lora::Lora;
use crate::loss_scale::LossScale;
use crate::memory::{self, MemoryReport};
use crate::objective::{BIAS, LOG_SCALE};
use crate::optimizer::OptimizerOptions;
use crate::quantization::Quantization;
use crate::ranks::Ranks;
use crate::saved::{self, Counters, Saved};
use crate::scatter::{Frozen, Scatter};
use crate::step_graph::average_of;
use crate::trained::{TensorInfo, TensorRule};

/// Weights of a model that a [`Trainer`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// The weights after the last step.
    Last,
    /// Their moving averages.
    Average,
}

/// Trains a model, step by step.
#[derive(Debug)]
pub struct Trainer {
    checkpoint: Arc<Checkpoint>,
    options: TrainOptions,
    preprocess: Preprocess,
    classes: usize,
    /// Number of targets of an image.
    width: usize,
    /// `None` if the device ran out of memory while this trainer was made anew.
    executor: Option<Arc<dyn Executor>>,
    scatter: Scatter,
    lora: Option<Lora>,
    /// Name of the state with the elements of each trained constant.
    weights: Vec<String>,
    /// Whole shape of each parameter or state of which this rank has a part, by its name.
    divided: BTreeMap<String, Vec<usize>>,
    ranks: Option<Ranks>,
    /// Block of each residual branch that images may skip.
    branches: Vec<usize>,
    /// Tensors of the checkpoint that are rounded to int8.
    int8: BTreeSet<String>,
    float8: Option<Float8Layers>,
    memory: Option<MemoryReport>,
    /// Rule of each tensor of the checkpoint.
    rules: HashMap<String, TensorRule>,
    counters: Counters,
    in_flight: StepQueue,
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
        Self::with_ranks(checkpoint, options, rule, None)
    }

    /// Creates the trainer of a rank. Its steps take this rank's share of the images.
    pub(crate) fn with_ranks(
        checkpoint: Checkpoint,
        options: TrainOptions,
        rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
        ranks: Option<Ranks>,
    ) -> Result<Self> {
        let rules = RefCell::default();
        let rule = |tensor: &TensorInfo<'_>| {
            let rule = rule(tensor);
            HashMap::insert(&mut rules.borrow_mut(), tensor.name.to_owned(), rule);
            rule
        };
        let trainer = Self::build(Arc::new(checkpoint), options, &rule, (ranks, BTreeSet::new()))?;
        Ok(Self {
            rules: rules.into_inner(),
            ..trainer
        })
    }

    /// Creates a trainer without [`rules`](Self::rules), with the layers that are no longer in FP8.
    fn build(
        checkpoint: Arc<Checkpoint>,
        options: TrainOptions,
        rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
        (ranks, bf16_layers): (Option<Ranks>, BTreeSet<String>),
    ) -> Result<Self> {
        let divides_states = ranks.as_ref().is_some_and(|ranks| ranks.plan.divides_states());
        if ranks.is_some() && matches!(options.precision.quantization, Quantization::Float8(_)) {
            let reason =
                "is not computed by several ranks, as they could return layers to bf16 in different steps";
            return Err(Error::argument("fp8", reason));
        }
        if divides_states && matches!(options.optimizer, OptimizerOptions::Lamb(_)) {
            let reason = "divides tensors, of which LAMB needs the norms. Take another optimiser, or `none`";
            return Err(Error::argument("ranks.shard", reason));
        }
        if divides_states && options.optimizer.has_compact_moments() {
            let reason = "divides tensors, but the moments of `optimizer.states` are rounded by the places of elements in whole ones. Take the \
                          states `f32`, or `none`";
            return Err(Error::argument("ranks.shard", reason));
        }
        let placement = placement(&options)?;
        self::compression::check_compression(ranks.as_ref(), &placement)?;
        let dtype = computed_dtype(&placement, &options);
        let Step {
            mut graph,
            scatter,
            lora,
            weights,
            divided,
            branches,
            int8,
            float8,
            preprocess,
            classes,
            width,
            ..
        } = Step::new(
            &checkpoint,
            &options,
            rule,
            StepTarget {
                dtype,
                float8: float8(&placement, dtype),
                bf16_layers: &bf16_layers,
                ranks: ranks.as_ref().map(|ranks| ranks.plan),
            },
        )?;
        let mut memory = None;
        if let Some(budget) = options.memory {
            let limit = budget.limit.bytes(&placement)?;
            let (smaller, report) = memory::fit(&graph, budget.images, dtype, limit)?;
            (graph, memory) = (smaller, Some(report));
        }
        let executor_options = ExecutorOptions {
            threads: options.threads,
            collectives: ranks.as_ref().map(|ranks| ranks.collectives.clone()),
            ..ExecutorOptions::new(dtype)
        };
        Ok(Self {
            executor: Some(placement.executor(&graph, &executor_options)?),
            preprocess,
            classes,
            width,
            checkpoint,
            scatter,
            lora,
            weights,
            divided,
            ranks,
            branches,
            int8,
            float8,
            memory,
            rules: HashMap::new(),
            counters: Counters {
                steps: 0,
                updates: 0,
                scale: if options.dtype == DType::F16 {
                    LossScale::dynamic(options.precision.loss_scale)
                } else {
                    LossScale::none()
                },
                bf16_layers,
            },
            in_flight: StepQueue::new(),
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

    /// Returns the number of targets of an image: the classes, the channels of a text's embedding, the tokens of a text, or the pixels of a map.
    pub fn target_width(&self) -> usize {
        self.width
    }

    /// Returns the number of finished steps.
    pub fn steps(&self) -> u64 {
        self.counters.steps
    }

    /// Returns true if the last step without an update is no cause for concern: in f16, the factor of the loss is found by trial.
    pub(crate) fn is_searching_scale(&self) -> bool {
        self.counters.scale.is_searching()
    }

    /// Returns the number of trained elements.
    pub fn parameters(&self) -> u64 {
        let of_loss = if self.options.loss.has_texts() {
            learned_tensors::learned(&self.checkpoint).count() as u64
        } else {
            0
        };
        self.scatter.elements() + self.lora.as_ref().map_or(0, Lora::elements) + of_loss
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
            flops += self.executor()?.plan(part.len())?.flops();
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
        let executor = self.executor()?;
        executor.time_calls(&executor.plan(images)?, None)
    }

    /// Returns the device's time of a step, without the copies of inputs and weights: steps that are repeated for `time`, on one GPU. The
    /// weights are of no use afterwards.
    ///
    /// # Errors
    ///
    /// The errors of a step. [`Error::Argument`] on the CPU.
    pub fn time_runs(&mut self, images: usize, time: Duration) -> Result<Duration> {
        let executor = self.executor()?;
        executor.time_runs(&executor.plan(images)?, time)
    }

    /// Returns the GPU that computes the steps. `None` on the CPU.
    pub(crate) fn gpu(&self) -> Option<&Device> {
        self.executor.as_ref()?.gpu()
    }

    /// Returns the tensors that are not trained.
    pub fn frozen(&self) -> &[Frozen] {
        &self.scatter.frozen
    }

    /// Returns the factor of the similarities and what is added to them, as steps have learned them. `None` without a contrastive loss.
    ///
    /// # Errors
    ///
    /// The errors of the device.
    pub fn contrastive_scale(&self) -> Result<Option<[f32; 2]>> {
        let Some(options) = self.options.loss.contrastive() else {
            return Ok(None);
        };
        let number = |name: &str| -> Result<f32> {
            let values = self.executor()?.state(name)?;
            Ok(values.to_f32().first().copied().unwrap_or(f32::NAN))
        };
        let bias = if options.kind.has_bias() {
            number(BIAS)?
        } else {
            0.0
        };
        Ok(Some([number(LOG_SCALE)?.exp(), bias]))
    }

    /// Computes the loss of a batch and its gradients, and updates the weights. `images` has the form of [`TrainOptions::input`].
    ///
    /// With [`TrainOptions::accumulate`], the batch is divided into micro-batches of equal size. The last one is smaller if the size of the
    /// batch is no multiple.
    ///
    /// If a GPU runs out of memory, the step is tried once more with twice as many micro-batches, and so are the steps after it. Then
    /// [`options`](Self::options) has their number, and the results have other rounding errors.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the images and targets do not fit the model or each other, or if steps are in flight. The errors of the device.
    pub fn step<'a>(
        &mut self,
        images: impl Into<StepImages<'a>>,
        targets: impl Into<Targets<'a>>,
        learning_rate: f32,
    ) -> Result<StepReport> {
        self.check_idle()?;
        self.submit(images, targets, learning_rate)?;
        let report = self.finish()?;
        report.ok_or_else(|| Error::internal("training", "the step is not in flight"))
    }

    /// Submits the micro-batches of a step.
    fn try_submit(
        &self,
        (images, targets): (&StepImages<'_>, Targets<'_>),
        batch: usize,
        learning_rate: f32,
    ) -> Result<Vec<SubmittedRun>> {
        let step = self.counters.steps + self.running() as u64 + 1;
        let [rank, ranks] = self
            .ranks
            .as_ref()
            .map_or([0, 1], |ranks| [ranks.plan.rank, ranks.plan.ranks]);
        let places = rank * batch..(rank + 1) * batch;
        let (drop, seed) = (&self.options.drop, self.options.seed);
        let factors = branch_factors(drop.path, &self.branches, seed, step, places.clone());
        let keys = if drop.has_dropout() {
            dropout::keys(seed, step, places)
        } else {
            Vec::new()
        };
        let counted = if self.options.loss.has_labels() {
            targets.sequences.counted()
        } else if self.options.loss.has_boxes() {
            targets.objects().max(1)
        } else {
            ranks * batch
        };
        let submit = |part: Range<usize>| {
            let run = MicroBatch {
                len: part.len(),
                images: images.rows(batch, &part)?,
                targets: targets.rows(self.width, &part),
                factors: &factors[part.start * self.branches.len()..part.end * self.branches.len()],
                keys: keys.get(2 * part.start..2 * part.end).unwrap_or(&[]),
                weight: self.counters.scale.factor / counted as f32,
                is_first: part.start == 0,
                is_last: part.end == batch,
            };
            let loss = &self.options.loss;
            Ok(SubmittedRun {
                run: self.run(&run, learning_rate)?,
                compared: if loss.has_labels() {
                    Compared::Tokens(run.targets.sequences.counted())
                } else if loss.has_boxes() {
                    Compared::Objects(run.targets.objects())
                } else if loss.has_classes() {
                    Compared::Classes(run.targets.values.to_vec())
                } else if loss.has_maps() {
                    Compared::Maps
                } else {
                    Compared::Pairs
                },
            })
        };
        micro_batches(batch, self.options.accumulate)
            .map(submit)
            .collect()
    }

    /// Submits the run that computes the gradients of a micro-batch. The last one of a step updates the weights.
    fn run(&self, micro_batch: &MicroBatch<'_>, learning_rate: f32) -> Result<Box<dyn PendingRun>> {
        let MicroBatch {
            ref images,
            targets,
            factors,
            keys,
            ..
        } = *micro_batch;
        let batch = micro_batch.len;
        let executor = self.executor()?;
        let plan = executor.plan(batch)?;
        let Counters { updates, scale, .. } = &self.counters;
        let update = updates + self.running() as u64 + 1;
        let rates = self.options.optimizer.rates(learning_rate, update);
        let weights = vec![micro_batch.weight; batch * self.options.loss.losses(self.width)];
        let unscale = [if micro_batch.is_last {
            1.0 / scale.factor
        } else {
            // Nothing is updated.
            f32::NAN
        }];
        let keep = [if micro_batch.is_first { 0.0 } else { 1.0 }];
        let mut named = vec![
            (plan.graph().first_input_name(), images.clone().into()),
            (inputs::IMAGE_WEIGHTS, Input::Values(&weights).into()),
            (inputs::RATES, Input::Values(&rates).into()),
            (inputs::GRADIENT_SCALE, Input::Values(&unscale).into()),
        ];
        if self.options.loss.has_texts() {
            let texts = targets.texts;
            named.push((pair_inputs::TOKENS, Input::Integers(texts.tokens).into()));
            if !texts.places.is_empty() {
                named.push((pair_inputs::PLACES, Input::Values(texts.places).into()));
            }
        } else if self.options.loss.has_labels() {
            let texts = targets.sequences;
            named.push((text_inputs::TOKENS, Input::Integers(texts.tokens).into()));
            named.push((text_inputs::POSITIONS, Input::Integers(texts.positions).into()));
            named.push((inputs::LABELS, Input::Integers(texts.labels).into()));
        } else {
            named.push((inputs::TARGETS, Input::Values(targets.values).into()));
        }
        if self.options.loss.has_prompts() {
            let prompts = targets.prompts;
            named.push((mask_inputs::POSITIONS, Input::Values(prompts.positions).into()));
            named.push((mask_inputs::KINDS, Input::Integers(prompts.kinds).into()));
        }
        if self.options.loss.has_teacher() {
            named.push((inputs::TEACHER, Input::Values(targets.teacher).into()));
        }
        if self.options.accumulate > 1 {
            named.push((inputs::KEEP_SUMS, Input::Values(&keep).into()));
        }
        if !factors.is_empty() {
            named.push((inputs::BRANCH_FACTORS, Input::Values(factors).into()));
        }
        if !keys.is_empty() {
            named.push((inputs::DROPOUT_KEYS, Input::Values(keys).into()));
        }
        let reservation = executor.clone().reserve(&plan, None)?;
        reservation.submit(Inputs::new(named), Submission::default())
    }

    /// Returns the present elements of the checkpoint's trained tensors.
    pub(crate) fn values(&self, weights: Weights) -> Result<TensorValues> {
        let mut values = self.whole_values(weights)?;
        if self.options.loss.has_texts() {
            self.add_scale(&mut values, weights)?;
        }
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
        let name = match weights {
            Weights::Last => name,
            Weights::Average => &average_of(name),
        };
        self.whole_state(name)
    }

    /// Writes all weights and states of the optimiser to a file, which is replaced as a whole. If there are several ranks, all must call this,
    /// and rank 0 writes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be written. The file that was there before stays. [`Error::Argument`] if steps are in flight.
    pub fn save(&self, file: &Path) -> Result<()> {
        self.check_idle()?;
        let states = Saved::new(&self.executor()?.info().graph, &|name| self.saved_state(name))?;
        if self.writes() {
            states.write(&self.counters, file)
        } else {
            Ok(())
        }
    }

    /// Restores what [`save`](Self::save) has written.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::Weights`] if the file cannot be read. [`Error::Tensor`] if it is of another model or other options; the
    /// trainer is then unchanged. [`Error::Argument`] if steps are in flight.
    pub fn restore(&mut self, file: &Path) -> Result<()> {
        self.check_idle()?;
        let saved = saved::read_counters(self.counters.clone(), file)?;
        if saved.bf16_layers != self.counters.bf16_layers && self.float8.is_some() {
            let states = self.states()?;
            let own = std::mem::replace(&mut self.counters.bf16_layers, saved.bf16_layers);
            let restored = self
                .build_anew(self.options.clone())
                .and_then(|()| self.restore_states(file));
            if restored.is_err() {
                self.counters.bf16_layers = own;
                self.build_anew(self.options.clone())?;
                for (name, tensor) in &states {
                    self.executor()?.set_state(name, tensor)?;
                }
            }
            return restored;
        }
        self.restore_states(file)
    }

    fn restore_states(&mut self, file: &Path) -> Result<()> {
        let graph = self.executor()?.info().graph.clone();
        let shape = |value: &Value| self.whole_shape(&value.name, &value.shape).to_vec();
        let (counters, states) = saved::read(&graph, &shape, self.counters.clone(), file)?;
        for (name, tensor) in &states {
            self.set_whole_state(name, tensor)?;
        }
        self.counters = counters;
        Ok(())
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
