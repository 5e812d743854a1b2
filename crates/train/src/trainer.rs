//! The [`Trainer`]: steps of training on one device.

use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::image::Preprocess;
use hipvit::model::{Checkpoint, InputKind, Model};
use hipvit::ops::LossKind;
use hipvit::tensor::Input;
use hipvit::{DType, Device};

use crate::step_graph::{AdamWOptions, TensorInfo, TensorRule};

/// Options of a [`Trainer`].
#[derive(Clone, Debug)]
pub struct TrainOptions {
    /// Device that computes the steps.
    pub device: Device,
    /// Dtype of activations and gradients. The trained weights and the states of the optimiser are in f32.
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
    /// Seed of everything random, with the number of the step.
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

/// A tensor of the checkpoint that is not trained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frozen {
    /// Name in the weight file.
    pub tensor: String,
    /// Reason.
    pub reason: &'static str,
}

/// Trains a model, step by step.
#[derive(Debug)]
pub struct Trainer {
    checkpoint: Checkpoint,
    preprocess: Preprocess,
    classes: usize,
    steps: u64,
    parameters: u64,
    frozen: Vec<Frozen>,
}

impl Trainer {
    /// Creates a trainer for the model of a checkpoint. `rule` is asked for each tensor.
    ///
    /// # Errors
    ///
    /// The errors of [`hipvit::model::load`], [`Error::Graph`] or [`Error::Op`] if an op of the model has no derivative, and the errors of
    /// making an executor.
    pub fn new(
        checkpoint: Checkpoint,
        options: TrainOptions,
        rule: &dyn Fn(&TensorInfo<'_>) -> TensorRule,
    ) -> Result<Self> {
        not_ready()
    }

    /// Returns the checkpoint that training started from.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
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
        self.parameters
    }

    /// Returns the tensors that are not trained.
    pub fn frozen(&self) -> &[Frozen] {
        &self.frozen
    }

    /// Computes the loss of a batch and its gradients, and updates the weights. `images` has the form of [`TrainOptions::input`].
    /// `targets` is `[images, classes]`: probabilities of the classes, or values for [`LossKind::MeanSquaredError`].
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the images and targets do not fit the model or each other. The errors of the device.
    pub fn step(&mut self, images: Input<'_>, targets: &[f32], learning_rate: f32) -> Result<StepReport> {
        not_ready()
    }

    /// Returns the model with its present weights, for a session that evaluates it.
    ///
    /// # Errors
    ///
    /// The errors of [`hipvit::model::load`].
    pub fn model(&self) -> Result<Model> {
        not_ready()
    }

    /// Writes all weights and states of the optimiser to a file, which is replaced as a whole.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be written. The file that was there before stays.
    pub fn save(&self, file: &Path) -> Result<()> {
        not_ready()
    }

    /// Restores what [`save`](Self::save) has written.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::Weights`] if the file cannot be read, [`Error::Tensor`] if it is of another model or other options.
    pub fn restore(&mut self, file: &Path) -> Result<()> {
        not_ready()
    }

    /// Writes the model with its present weights to a directory, in the form of the checkpoint.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] for the file that cannot be written.
    pub fn write_model(&self, directory: &Path) -> Result<()> {
        not_ready()
    }
}

fn not_ready<T>() -> Result<T> {
    Err(Error::argument("training", "this commit only has the interface"))
}
