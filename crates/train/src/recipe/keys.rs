//! The keys of a recipe, with their defaults.

use std::fmt;
use std::str::FromStr;

use hipvit::ops::DistillationKind;
use hipvit_data::augment::TimmRandAugment;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::quantization::Quantization;
use super::ranks::RankKeys;
use crate::memory::MemoryLimit;
use crate::optimizer::Moments;
use crate::schedule::Decay;

/// A training recipe. Keys that a file leaves out have the values of [`Recipe::default`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// Number of passes over the training images.
    pub epochs: u64,
    /// Number of images per step.
    pub batch: usize,
    /// Number of micro-batches per step, whose gradients are added up. 0: chosen for the limit of the memory.
    pub accumulate: usize,
    /// Seed of the initial weights, the order of the images, and the augmentation.
    pub seed: u64,
    /// Maximum norm of all gradients together. Larger gradients are scaled down. 0 disables clipping.
    pub clip_norm: f64,
    /// Factor between the learning rates of consecutive layers, from the head to the embedding.
    pub layer_decay: f64,
    /// Probability of skipping the last block (stochastic depth). It grows linearly from 0 at the first block.
    pub drop_path: f64,
    /// Elements that become 0 at random.
    pub dropout: Dropout,
    /// Decay of the moving averages of the weights, per step. 0 disables them.
    pub ema_decay: f64,
    /// Layers that keep their weights.
    pub freeze: Freeze,
    /// True if a step whose loss or gradients are NaN or infinite is left out. Otherwise it ends the run.
    pub skip_nonfinite: bool,
    /// Limit of the device memory of training. The backward pass recomputes activations as far as it requires.
    pub memory: MemoryLimit,
    /// Division of states among the ranks of a run.
    pub ranks: RankKeys,
    /// Loss function.
    pub loss: Loss,
    /// Files with depths.
    pub depth: Depth,
    /// Teacher whose logits the model learns from.
    pub distillation: Distillation,
    /// Updates of low rank.
    pub lora: Lora,
    /// Rounding of linear layers.
    pub quantization: Quantization,
    /// Optimiser.
    pub optimizer: Optimizer,
    /// Learning rate schedule.
    pub schedule: ScheduleKeys,
    /// Random changes of the training images.
    pub augmentation: Augmentation,
    /// Evaluation on the validation images.
    pub evaluation: EvaluationKeys,
    /// Checkpoints to write and to keep.
    pub checkpoints: Checkpoints,
}

/// Layers that keep their weights. Its text is a number of layers, `backbone`, `image` or `text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Freeze {
    /// Number of layers, from the embedding on. The embedding is the first layer, and each block is one.
    Layers(usize),
    /// All layers except for the head: the classifier, and a norm of the pooled tokens.
    Backbone,
    /// The tower of images, in training on pairs, or the encoder of a model that makes texts.
    Image,
    /// The tower of texts, in training on pairs, or the decoder of a model that makes texts.
    Text,
}

impl Default for Freeze {
    fn default() -> Self {
        Self::Layers(0)
    }
}

impl FromStr for Freeze {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("backbone", _) => Ok(Self::Backbone),
            ("image", _) => Ok(Self::Image),
            ("text", _) => Ok(Self::Text),
            (_, Ok(layers)) => Ok(Self::Layers(layers)),
            _ => Err(format!(
                "`{text}` is neither a number of layers nor `backbone`, `image` or `text`"
            )),
        }
    }
}

impl Serialize for Freeze {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Layers(layers) => layers.serialize(serializer),
            Self::Backbone => serializer.serialize_str("backbone"),
            Self::Image => serializer.serialize_str("image"),
            Self::Text => serializer.serialize_str("text"),
        }
    }
}

impl<'de> Deserialize<'de> for Freeze {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Freeze;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of layers, \"backbone\", \"image\" or \"text\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Freeze, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, layers: i64) -> Result<Freeze, E> {
                let number = usize::try_from(layers);
                let negative = |_| E::invalid_value(de::Unexpected::Signed(layers), &self);
                number.map(Freeze::Layers).map_err(negative)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// Probabilities with which elements become 0, by timm's names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Dropout {
    /// Probability in the input of the classifier.
    pub drop_rate: f64,
    /// Probability in the results of both layers of the feed-forward networks, and of the layers after attention.
    pub proj_drop_rate: f64,
    /// Probability in the weights of attention. Must be 0: attention is computed without storing them.
    pub attn_drop_rate: f64,
    /// Probability in the tokens before the first block, with their positions.
    pub pos_drop_rate: f64,
}

/// Loss function of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Loss {
    /// Function of logits and targets.
    pub kind: LossKind,
    /// Share of the target that is spread over all classes.
    pub label_smoothing: f64,
}

/// Files with depths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Depth {
    /// Number per metre: 1000 for millimetres, 256 for KITTI.
    pub scale: f64,
}

impl Default for Depth {
    fn default() -> Self {
        Self { scale: 1000.0 }
    }
}

/// Function of logits and targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LossKind {
    /// Cross-entropy of the softmax.
    #[default]
    CrossEntropy,
    /// Binary cross-entropy of the sigmoid, averaged over classes.
    Bce,
    /// Mean squared error of the logits.
    Mse,
    /// Loss of pairs of images and captions, of the model's family: InfoNCE for CLIP, the sigmoid loss for SigLIP.
    Contrastive,
}

/// Teacher whose logits the model learns from, as DeiT does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Distillation {
    /// Model with the same classes: a directory, or a name on the hub. Empty without a teacher.
    pub teacher: String,
    /// Comparison with the teacher.
    pub kind: DistillationKind,
    /// Share of the comparison in the loss.
    pub alpha: f64,
    /// Divisor of both logits in a soft comparison.
    pub temperature: f64,
}

/// Updates of low rank beside the linear layers of the blocks, with peft's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lora {
    /// Rank of the updates. 0 disables them.
    pub rank: usize,
    /// The updates are multiplied by `alpha / rank`.
    pub alpha: f64,
    /// Last part of the names of the layers with updates. If there is none, all have updates.
    pub targets: Vec<String>,
}

/// Optimiser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Optimizer {
    /// Algorithm.
    pub kind: OptimizerKind,
    /// Highest learning rate.
    pub lr: f64,
    /// Decay rates of the two moments of AdamW and LAMB. For Lion, the share of the momentum in an update and the momentum's decay.
    pub betas: [f64; 2],
    /// Number added to the denominator of AdamW and LAMB.
    pub eps: f64,
    /// Decay of SGD's momentum.
    pub momentum: f64,
    /// True for Nesterov's momentum in SGD.
    pub nesterov: bool,
    /// Weight decay: decoupled for AdamW and Lion, added to the gradient for SGD and to the update for LAMB.
    pub weight_decay: f64,
    /// True if biases, norms, positions and tokens decay too.
    pub decay_all: bool,
    /// Form of AdamW's moments.
    pub states: Moments,
}

/// Algorithm of the optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OptimizerKind {
    /// AdamW, as PyTorch computes it.
    #[default]
    #[serde(rename = "adamw")]
    AdamW,
    /// SGD with momentum, as PyTorch computes it.
    Sgd,
    /// LAMB, as timm computes it without clipping.
    Lamb,
    /// Lion, as timm computes it.
    Lion,
}

/// Learning rate schedule of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScheduleKeys {
    /// Shape after the warm-up.
    pub kind: Decay,
    /// Number of epochs of the warm-up.
    pub warmup_epochs: f64,
    /// Learning rate of the first step of the warm-up.
    pub warmup_lr: f64,
    /// Learning rate after the last step.
    pub min_lr: f64,
}

/// Random changes of the training images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augmentation {
    /// Where the images are changed.
    pub on: AugmentOn,
    /// Part of the image that is used.
    pub crop: Crop,
    /// Smallest and largest area of a random crop, as shares of the image.
    pub scale: [f64; 2],
    /// Smallest and largest aspect ratio of a random crop.
    pub ratio: [f64; 2],
    /// Number of black pixels on each side before a padded crop.
    pub padding: usize,
    /// Probability of a horizontal flip.
    pub flip: f64,
    /// Probability of a vertical flip.
    pub vertical_flip: f64,
    /// Policy of photometric and geometric operations.
    pub policy: Policy,
    /// Number of operations of `rand_augment` per image.
    pub operations: usize,
    /// Strength of the operations of `rand_augment`, from 0 to 30.
    pub magnitude: usize,
    /// Largest change of brightness, contrast, saturation and hue.
    pub color_jitter: [f64; 4],
    /// Probability of erasing a rectangle.
    pub erasing: f64,
    /// Parameter of mixup's beta distribution. 0 disables mixup.
    pub mixup: f64,
    /// Parameter of CutMix's beta distribution. 0 disables CutMix.
    pub cutmix: f64,
}

/// Where training images are resized and changed. Their bytes are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AugmentOn {
    /// On the GPU that computes the steps if it can, else on the host.
    #[default]
    Auto,
    /// On the host's threads.
    Host,
    /// On the GPU that computes the steps.
    Device,
}

impl FromStr for AugmentOn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "host" => Ok(Self::Host),
            "device" => Ok(Self::Device),
            _ => Err(format!("`{text}` is none of auto, host, device")),
        }
    }
}

/// Part of a training image that is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Crop {
    /// The part that evaluation uses.
    #[default]
    None,
    /// A random part of random size, resized to the model's input.
    RandomResized,
    /// A part of the size of the model's input, after padding.
    Padded,
}

/// Policy of photometric and geometric operations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Policy {
    /// No operations.
    #[default]
    None,
    /// Some operations of equal strength.
    RandAugment,
    /// Pairs of operations that were learned for ImageNet.
    AutoAugment,
    /// One operation of random strength.
    TrivialAugmentWide,
    /// timm's RandAugment in timm's form, such as `rand-m9-mstd0.5-inc1`.
    Timm(String),
}

impl TryFrom<String> for Policy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "none" => Ok(Self::None),
            "rand_augment" => Ok(Self::RandAugment),
            "auto_augment" => Ok(Self::AutoAugment),
            "trivial_augment_wide" => Ok(Self::TrivialAugmentWide),
            _ if text.starts_with("rand-") => match TimmRandAugment::parse(&text) {
                Ok(_) => Ok(Self::Timm(text)),
                Err(error) => Err(error.to_string()),
            },
            _ => Err(format!(
                "unknown policy `{text}`, expected none, rand_augment, auto_augment, trivial_augment_wide, or timm's form such as rand-m9-mstd0.5-inc1"
            )),
        }
    }
}

impl From<Policy> for String {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::None => "none".into(),
            Policy::RandAugment => "rand_augment".into(),
            Policy::AutoAugment => "auto_augment".into(),
            Policy::TrivialAugmentWide => "trivial_augment_wide".into(),
            Policy::Timm(text) => text,
        }
    }
}

/// Evaluation on the validation images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluationKeys {
    /// Number of epochs between evaluations. The last epoch is evaluated too.
    pub every: u64,
}

/// Checkpoints to write and to keep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoints {
    /// Number of epochs between checkpoints.
    pub every: u64,
    /// Number of checkpoints to keep.
    pub keep: usize,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            epochs: 100,
            batch: 64,
            accumulate: 1,
            seed: 0,
            clip_norm: 1.0,
            layer_decay: 1.0,
            drop_path: 0.0,
            dropout: Dropout::default(),
            ema_decay: 0.0,
            freeze: Freeze::default(),
            skip_nonfinite: false,
            memory: MemoryLimit::default(),
            ranks: RankKeys::default(),
            loss: Loss::default(),
            depth: Depth::default(),
            distillation: Distillation::default(),
            lora: Lora::default(),
            quantization: Quantization::default(),
            optimizer: Optimizer::default(),
            schedule: ScheduleKeys::default(),
            augmentation: Augmentation::default(),
            evaluation: EvaluationKeys::default(),
            checkpoints: Checkpoints::default(),
        }
    }
}

impl Default for Loss {
    fn default() -> Self {
        Self {
            kind: LossKind::CrossEntropy,
            label_smoothing: 0.1,
        }
    }
}

impl Default for Distillation {
    fn default() -> Self {
        Self {
            teacher: String::new(),
            kind: DistillationKind::Hard,
            alpha: 0.5,
            temperature: 1.0,
        }
    }
}

impl Default for Lora {
    fn default() -> Self {
        Self {
            rank: 0,
            alpha: 16.0,
            targets: Vec::new(),
        }
    }
}

impl Default for Optimizer {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::AdamW,
            lr: 5e-4,
            betas: [0.9, 0.999],
            eps: 1e-8,
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.05,
            decay_all: false,
            states: Moments::F32,
        }
    }
}

impl Default for ScheduleKeys {
    fn default() -> Self {
        Self {
            kind: Decay::Cosine,
            warmup_epochs: 5.0,
            warmup_lr: 1e-6,
            min_lr: 1e-6,
        }
    }
}

impl Default for Augmentation {
    fn default() -> Self {
        Self {
            on: AugmentOn::Auto,
            crop: Crop::None,
            scale: [0.08, 1.0],
            ratio: [0.75, 4.0 / 3.0],
            padding: 4,
            flip: 0.0,
            vertical_flip: 0.0,
            policy: Policy::None,
            operations: 2,
            magnitude: 9,
            color_jitter: [0.0; 4],
            erasing: 0.0,
            mixup: 0.0,
            cutmix: 0.0,
        }
    }
}

impl Default for EvaluationKeys {
    fn default() -> Self {
        Self { every: 1 }
    }
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self { every: 1, keep: 2 }
    }
}
