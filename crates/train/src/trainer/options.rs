//! Options of a [`Trainer`](super::Trainer).

use hipvit::error::{Error, Result};
use hipvit::exec::{HipExecutor, Placement};
use hipvit::graph::Float8;
use hipvit::model::{InputKind, LoadOptions};
use hipvit::session::Place;
use hipvit::{DType, Device};

use crate::dropout::DropOptions;
use crate::lora::LoraOptions;
use crate::memory::MemoryBudget;
use crate::objective::Objective;
use crate::optimizer::OptimizerOptions;
use crate::quantization::{self, PrecisionOptions, Quantization};

/// Options of a [`Trainer`](crate::Trainer).
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
    /// What the steps minimise.
    pub loss: Objective,
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
    /// Parts of the model that steps leave out at random.
    pub drop: DropOptions,
    /// Updates of low rank beside the linear layers of the blocks. The weights of these layers then stay as they are.
    pub lora: Option<LoraOptions>,
    /// Limit of the memory, and the number of images per step for which it holds. `None` keeps all activations. The backward pass recomputes
    /// what does not fit, which changes no bit of the results.
    pub memory: Option<MemoryBudget>,
    /// Seed of what steps leave out, and of the first updates of low rank.
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
            loss: Objective::default(),
            optimizer: OptimizerOptions::default(),
            ema_decay: None,
            precision: PrecisionOptions::default(),
            accumulate: 1,
            clip_norm: None,
            drop: DropOptions::default(),
            lora: None,
            memory: None,
            seed: 0,
        }
    }
}

/// Checks the ranges of the options.
pub(super) fn check(options: &TrainOptions) -> Result<()> {
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
    quantization::check(quantization, options.lora.is_some(), options.dtype)?;
    options.drop.check()?;
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
    options.loss.check(options.accumulate)?;
    if options.loss.has_texts() && quantization != Quantization::None {
        let reason = "rounds the layers of one tower, so it is not for training on pairs. Leave it out";
        return Err(Error::argument("quantization", reason));
    }
    let unsupported = [
        (options.loss.has_labels(), "texts"),
        (options.loss.has_boxes(), "objects"),
    ];
    if let Some((_, data)) = unsupported.into_iter().find(|(is_of, _)| *is_of) {
        let refusals = [
            ("quantization", quantization != Quantization::None),
            ("lora", options.lora.is_some()),
            ("dropout", options.drop != DropOptions::default()),
        ];
        if let Some((name, _)) = refusals.into_iter().find(|(_, is_set)| *is_set) {
            let reason = format!("is not for training on {data}. Leave it out");
            return Err(Error::argument(name, reason));
        }
    }
    if options.loss.has_boxes() && options.dtype == DType::F16 {
        let reason = "is f16, in which most gradients of the classes of queries are 0. Use bf16 or f32";
        return Err(Error::argument("dtype", reason));
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

/// Returns how layers in FP8 are computed in `dtype`.
pub(super) fn float8(placement: &Placement, dtype: DType) -> Float8 {
    let stores = |gpu| HipExecutor::float8(gpu, dtype) == Float8::Stored;
    let stores = match placement {
        Placement::Host => false,
        Placement::Gpus { gpus, .. } => gpus.iter().all(stores),
        Placement::Rank { gpu, .. } => stores(gpu),
    };
    if stores { Float8::Stored } else { Float8::Rounded }
}

pub(super) fn load_options(options: &TrainOptions) -> LoadOptions {
    LoadOptions {
        image_size: options.image_size,
        input: options.input,
        // The decoder reads them.
        tokens: options.loss.has_labels(),
        trained_detector: options.loss.has_boxes(),
        ..LoadOptions::default()
    }
}
