//! The [`Trainer`]: steps of training on one device.

use std::path::Path;
use std::sync::Arc;

use hipvit::error::{Error, Result};
use hipvit::exec::{Executor, ExecutorOptions, Inputs, Placement, RunOutputs};
use hipvit::graph::{Graph, Passes, optimize, prepare_training};
use hipvit::image::Preprocess;
use hipvit::model::{Checkpoint, InputKind, LoadOptions, Model, TensorValues};
use hipvit::ops::LossKind;
use hipvit::session::Place;
use hipvit::tensor::Input;
use hipvit::{DType, Device};
use hipvit_data::random::{Draw, Purpose, Stream};

use crate::saved;
use crate::scatter::{Frozen, Scatter};
use crate::step_graph::{
    AdamWOptions, StepGraph, StepOptions, TensorInfo, TensorRule, inputs, with_branch_factors,
};

/// Options of a [`Trainer`].
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Device that computes the steps.
    pub device: Device,
    /// Dtype of activations and gradients: f32 or bf16. The trained weights and the states of the optimiser are in f32.
    pub dtype: DType,
    /// Number of threads on the CPU. By default one per physical core.
    pub threads: Option<usize>,
    /// Form of the images.
    pub input: InputKind,
    /// Height and width of the images, if they differ from the model's.
    pub image_size: Option<[usize; 2]>,
    /// Loss function.
    pub loss: LossKind,
    /// Constants of the optimiser.
    pub optimizer: AdamWOptions,
    /// Maximum norm of all gradients together. Larger gradients are scaled down.
    pub clip_norm: Option<f32>,
    /// Probability that an image skips a residual branch of the last block. It grows linearly from 0 at the first block.
    pub drop_path: f32,
    /// Seed of the skipped branches.
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
            optimizer: AdamWOptions::default(),
            clip_norm: None,
            drop_path: 0.0,
            seed: 0,
        }
    }
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
    /// Name of the state with the elements of each trained constant.
    weights: Vec<String>,
    /// Block of each residual branch that images may skip.
    branches: Vec<usize>,
    steps: u64,
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
        check(&options)?;
        let load = load_options(&options);
        let model = checkpoint.model_with(&TensorValues::new(), &load)?;
        let (graph, branches) = prepare(&model.graph, options.drop_path)?;
        let copies = checkpoint.copies(&graph, &|values| {
            let model = checkpoint.model_with(values, &load)?;
            Ok(prepare(&model.graph, options.drop_path)?.0)
        })?;
        let mut scatter = Scatter::new(&checkpoint, &graph, &copies, rule)?;
        let placement = match options.device.open()? {
            Place::Cpu { .. } => Placement::Host,
            Place::Gpu(gpu) => Placement::gpu(&gpu),
        };
        let step_options = StepOptions {
            loss: options.loss,
            optimizer: options.optimizer,
            clip_norm: options.clip_norm,
            // The CPU keeps activations in f32.
            rounded: options.dtype.size() == 2 && !matches!(placement, Placement::Host),
        };
        let StepGraph { graph, weights } = StepGraph::new(graph, &scatter.trained, step_options)?;
        let weights = scatter.retain(weights);
        let passes = Passes {
            fold_normalize: false,
            // Gradients flow to all tokens.
            prune_tokens: false,
            ..Passes::default()
        };
        let (graph, _) = optimize(graph, &passes)?;
        let executor_options = ExecutorOptions {
            threads: options.threads,
            ..ExecutorOptions::new(options.dtype)
        };
        Ok(Self {
            executor: placement.executor(&graph, &executor_options)?,
            preprocess: model.preprocess,
            classes: model.info.classes,
            checkpoint,
            options,
            scatter,
            weights,
            branches,
            steps: 0,
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
        self.steps
    }

    /// Returns the number of trained elements.
    pub fn parameters(&self) -> u64 {
        self.scatter.elements()
    }

    /// Returns the floating-point operations of a step: forward pass, backward pass and optimiser.
    ///
    /// # Errors
    ///
    /// The errors of planning a run.
    pub fn flops(&self, images: usize) -> Result<u64> {
        Ok(self.executor.plan(images)?.flops())
    }

    /// Returns the tensors that are not trained.
    pub fn frozen(&self) -> &[Frozen] {
        &self.scatter.frozen
    }

    /// Computes the loss of a batch and its gradients, and updates the weights. `images` has the form of [`TrainOptions::input`].
    /// `targets` is `[images, classes]`: probabilities of the classes, or values for [`LossKind::MeanSquaredError`].
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
        let plan = self.executor.plan(batch)?;
        let step = self.steps + 1;
        let AdamWOptions { beta1, beta2, .. } = self.options.optimizer;
        let rates = [learning_rate, correction(beta1, step), correction(beta2, step)];
        let weights = vec![1.0 / batch as f32; batch];
        let factors = self.branch_factors(step, batch);
        let mut named = vec![
            (plan.graph().first_input_name(), images.into()),
            (inputs::TARGETS, Input::Values(targets).into()),
            (inputs::IMAGE_WEIGHTS, Input::Values(&weights).into()),
            (inputs::RATES, Input::Values(&rates).into()),
            (inputs::GRADIENT_SCALE, Input::Values(&[1.0]).into()),
        ];
        if !factors.is_empty() {
            named.push((inputs::BRANCH_FACTORS, Input::Values(&factors).into()));
        }
        let outputs = self.executor.run_inputs(&plan, Inputs::new(named))?;
        self.steps = step;
        report(step, &outputs, targets, classes)
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
    pub(crate) fn values(&self) -> Result<TensorValues> {
        let elements = |index: usize| Ok(self.executor.state(&self.weights[index])?.to_f32().into_owned());
        self.scatter.tensors(&self.checkpoint, elements)
    }

    /// Returns the model with its present weights, for a session that evaluates it.
    ///
    /// # Errors
    ///
    /// The errors of [`hipvit::model::load`] and of the device.
    pub fn model(&self) -> Result<Model> {
        let options = LoadOptions {
            image_size: self.options.image_size,
            ..LoadOptions::default()
        };
        self.checkpoint.model_with(&self.values()?, &options)
    }

    /// Writes all weights and states of the optimiser to a file, which is replaced as a whole.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be written. The file that was there before stays.
    pub fn save(&self, file: &Path) -> Result<()> {
        saved::write(&self.executor, self.steps, file)
    }

    /// Restores what [`save`](Self::save) has written.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::Weights`] if the file cannot be read. [`Error::Tensor`] if it is of another model or other options; the
    /// trainer is then unchanged.
    pub fn restore(&mut self, file: &Path) -> Result<()> {
        self.steps = saved::read(&self.executor, file)?;
        Ok(())
    }

    /// Writes the model with its present weights to a directory, in the form of the checkpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] for the file that cannot be written.
    pub fn write_model(&self, directory: &Path) -> Result<()> {
        self.checkpoint.write_values(directory, &self.values()?)
    }
}

fn check(options: &TrainOptions) -> Result<()> {
    if !matches!(options.dtype, DType::F32 | DType::BF16) {
        let reason = format!(
            "gradients in {} need a scaled loss, which is not supported. Train in bf16 or f32",
            options.dtype
        );
        return Err(Error::argument("dtype", reason));
    }
    if !(0.0..1.0).contains(&options.drop_path) {
        let reason = format!("{} is not a probability below 1", options.drop_path);
        return Err(Error::argument("drop path", reason));
    }
    if options
        .clip_norm
        .is_some_and(|maximum| maximum.is_nan() || maximum <= 0.0)
    {
        return Err(Error::argument("clip norm", "is not greater than 0"));
    }
    Ok(())
}

fn load_options(options: &TrainOptions) -> LoadOptions {
    LoadOptions {
        image_size: options.image_size,
        input: options.input,
        ..LoadOptions::default()
    }
}

/// Returns the graph of a model as steps compute it, and the block of each residual branch that images may skip.
fn prepare(graph: &Graph, drop_path: f32) -> Result<(Graph, Vec<usize>)> {
    let graph = prepare_training(graph)?;
    if drop_path == 0.0 {
        return Ok((graph, Vec::new()));
    }
    with_branch_factors(&graph)
}

/// Returns `1 − beta^step`.
fn correction(beta: f32, step: u64) -> f32 {
    let power = i32::try_from(step).map_or(0.0, |step| f64::from(beta).powi(step));
    (1.0 - power) as f32
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

fn report(step: u64, outputs: &RunOutputs, targets: &[f32], classes: usize) -> Result<StepReport> {
    let output = |name| {
        let found = outputs.get(name);
        found.ok_or_else(|| Error::internal("training", format!("a step has no output `{name}`")))
    };
    let losses = &output("loss")?.values;
    let logits = output("logits")?.values.iter().copied().collect::<Vec<f32>>();
    let images = logits.chunks_exact(classes).zip(targets.chunks_exact(classes));
    Ok(StepReport {
        step,
        loss: (losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / losses.len().max(1) as f64) as f32,
        grad_norm: output("gradient_norm")?
            .values
            .iter()
            .copied()
            .next()
            .unwrap_or(f32::NAN),
        correct: images
            .filter(|(logits, targets)| largest(logits) == largest(targets))
            .count(),
    })
}

/// Returns the index of the largest value, the first of equal ones.
fn largest(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, &value) in values.iter().enumerate() {
        if value > values[best] {
            best = index;
        }
    }
    best
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
