//! Training of Vision Transformers. A [`Trainer`] runs one graph with the forward pass of a model, its loss, the backward pass and the
//! optimiser, on an executor of hipvit.

mod augmentation;
mod dense_loss;
mod device_augmentation;
pub mod differentiable;
mod dropout;
pub mod fit;
mod float8;
pub mod groups;
mod inference;
pub mod initial;
mod inputs;
mod lora;
mod loss_scale;
mod memory;
mod memory_planner;
mod micro_batches;
mod objective;
mod optimizer;
pub mod probe;
mod quantization;
mod ranks;
pub mod recipe;
mod rounded_layers;
pub mod run_directory;
mod saved;
mod scatter;
pub mod schedule;
pub mod start;
mod step_graph;
#[cfg(test)]
mod tests;
mod trained;
mod trainer;

pub use augmentation::TrainingImages;
pub use dense_loss::DepthLoss;
pub use device_augmentation::DeviceAugmentation;
pub use dropout::DropOptions;
pub use float8::{Float8Options, LayerEvent};
pub use hipvit::ops::{ContrastiveKind, DistillationKind, DistillationLoss, LossKind};
pub use lora::LoraOptions;
pub use memory::{MemoryBudget, MemoryLimit, MemoryReport};
pub use memory_planner::MemoryPlanner;
pub use objective::{BoxOptions, ContrastiveOptions, Objective, PairOptions, TextOptions};
pub use optimizer::{AdamWOptions, LambOptions, LionOptions, Moments, OptimizerOptions, SgdOptions};
pub use quantization::{PrecisionOptions, Quantization};
pub use ranks::RankPlan;
pub use scatter::Frozen;
pub use trained::{TensorInfo, TensorRule};
pub use trainer::{
    Prompts, Sequences, StepImages, StepReport, Targets, Texts, TrainOptions, Trainer, Tuning, Weights,
    step_graph,
};
