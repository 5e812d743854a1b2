//! The events of a run, as its log has them.

use serde::{Deserialize, Serialize};

use super::figures::Figures;
use super::reading::Reading;
use super::recall::Recall;
use crate::{LayerEvent, MemoryReport};

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The start of the run, or smaller micro-batches after the device ran out of memory.
    Memory(MemoryEvent),
    /// A step.
    Step(StepEvent),
    /// The end of an epoch.
    Epoch(EpochEvent),
    /// A layer that is no longer computed in FP8.
    Layer(LayerEvent),
}

/// Planned memory of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryEvent {
    /// Number of steps before.
    #[serde(default)]
    pub step: u64,
    /// Bytes of device memory.
    pub bytes: usize,
    /// Share of additional floating-point operations by recomputation.
    pub additional_flops: f64,
    /// The parts of the memory, and what is recomputed.
    pub parts: MemoryReport,
}

impl MemoryEvent {
    /// Creates the event of a plan after `step` steps.
    pub(super) fn of(step: u64, report: &MemoryReport) -> Self {
        Self {
            step,
            bytes: report.bytes(),
            additional_flops: report.additional_flops(),
            parts: report.clone(),
        }
    }
}

/// Figures of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepEvent {
    /// Number of the epoch, counted from 1.
    pub epoch: u64,
    /// Number of the step, counted from 1.
    pub step: u64,
    /// Mean loss of the batch, before the update.
    pub loss: f32,
    /// Learning rate.
    pub lr: f64,
    /// Norm of all gradients together, before clipping.
    pub grad_norm: f32,
    /// Speed since the previous line, without evaluation.
    pub images_per_second: f64,
}

/// Figures of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EpochEvent {
    /// Number of the epoch, counted from 1.
    pub epoch: u64,
    /// Number of steps so far.
    pub step: u64,
    /// Mean loss of the training images.
    pub loss: f64,
    /// Share of the training images that were classified correctly, as augmented. For texts, the share of their tokens that were predicted from the
    /// tokens before them. `None` for maps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_accuracy: Option<f64>,
    /// Mean loss of the validation images, without label smoothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_loss: Option<f64>,
    /// Share of the validation images that were classified correctly, or whose text was read exactly. For maps, [`Figures::share`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_accuracy: Option<f64>,
    /// Mean loss of the validation images with the weights of the last step, if `val_loss` is that of their moving averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaveraged_val_loss: Option<f64>,
    /// Share that was classified correctly with the weights of the last step, if `val_accuracy` is that of their moving averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaveraged_val_accuracy: Option<f64>,
    /// Retrieval among the validation pairs. Only for pairs of images and captions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recall: Option<Recall>,
    /// Retrieval with the weights of the last step, if `recall` is that of their moving averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaveraged_recall: Option<Recall>,
    /// Texts of the validation images. Only for models that make texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<Reading>,
    /// Texts with the weights of the last step, if `reading` is that of their moving averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaveraged_reading: Option<Reading>,
    /// Figures of maps of the validation images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
    /// Figures with the weights of the last step, if `figures` are those of their moving averages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unaveraged_figures: Option<Figures>,
    /// Seconds of the epoch's steps, with loading and without evaluation and checkpoints.
    #[serde(default)]
    pub train_seconds: f64,
    /// Seconds of the evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_seconds: Option<f64>,
    /// Number of broken images that were skipped so far.
    pub skipped: u64,
    /// Number of steps so far that have not updated the weights, because a figure was NaN or infinite.
    #[serde(default)]
    pub skipped_steps: u64,
}

impl Event {
    /// Returns the figures of a step.
    pub(super) fn as_step(&self) -> Option<&StepEvent> {
        match self {
            Self::Step(event) => Some(event),
            _ => None,
        }
    }

    /// Returns the figures of an epoch.
    pub(super) fn as_epoch(&self) -> Option<&EpochEvent> {
        match self {
            Self::Epoch(event) => Some(event),
            _ => None,
        }
    }

    pub(super) fn step(&self) -> u64 {
        match self {
            Self::Memory(event) => event.step,
            Self::Step(event) => event.step,
            Self::Epoch(event) => event.step,
            Self::Layer(event) => event.step,
        }
    }
}
