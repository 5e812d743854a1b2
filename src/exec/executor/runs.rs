//! What a run takes, and what it is until it is waited for.

use std::sync::Arc;

use ndarray::Array2;

use crate::exec::hip::{PipelineReserved, PipelineRun, Reserved, Running, TensorRun};
use crate::exec::slabs::Images;
use crate::exec::staging::Staging;
use crate::graph::OutputKind;
use crate::graph::plan::Plan;
use crate::hip::{Event, ForeignMemory};
use crate::tensor::Input;
use crate::timing::Timing;

/// What a run takes its input from.
pub enum RunFeed<'a> {
    /// What the caller has.
    Input(Input<'a>),
    /// Pixels in memory that this executor gave.
    Staged(Staging),
    /// Decoded images, which a GPU resizes.
    Images(Images<'a>),
    /// What lies on the GPU.
    Device(ForeignMemory),
}

/// The memory for a run.
pub enum Reservation {
    Cpu(Arc<Plan>),
    Hip(Box<Reserved<Arc<Plan>>>),
    Tensor(Arc<Plan>),
    /// With the whole model's plan.
    Pipeline(Arc<Plan>, Box<PipelineReserved>),
}

impl RunFeed<'_> {
    /// The memory that it was staged in.
    pub(crate) fn staging(&self) -> Option<&Staging> {
        match self {
            Self::Staged(staging) => Some(staging),
            _ => None,
        }
    }
}

/// A run that was submitted.
pub enum PendingRun {
    /// It has ended.
    Ready {
        outputs: Vec<(OutputKind, Array2<f32>)>,
        timing: Timing,
        memory: Option<Vec<u8>>,
    },
    Hip(Box<Running<Arc<Plan>>>),
    Tensor(TensorRun),
    Pipeline(Box<PipelineRun>),
}

impl PendingRun {
    /// Where a GPU has done with it.
    pub(crate) fn end(&self) -> Option<Event> {
        match self {
            Self::Ready { .. } => None,
            Self::Hip(running) => running.end(),
            Self::Pipeline(running) => running.end(),
            // Each rank knows its own.
            Self::Tensor(_) => None,
        }
    }
}
