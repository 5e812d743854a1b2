//! Steps that are submitted to the device and not finished.

use std::collections::VecDeque;
use std::fmt;

use hipvit::exec::PendingRun;

use super::report::StepReport;

/// A submitted run of a micro-batch.
pub(super) struct SubmittedRun {
    pub(super) run: Box<dyn PendingRun>,
    pub(super) compared: Compared,
}

/// What the logits of a run are compared with.
pub(super) enum Compared {
    /// Targets of the images.
    Classes(Vec<f32>),
    /// Each other.
    Pairs,
    /// This number of tokens.
    Tokens(usize),
    /// Nothing: the loss compares maps.
    Maps,
    /// This number of objects.
    Objects(usize),
}

/// A step that [`Trainer::finish`](super::Trainer::finish) has not returned.
pub(super) enum InFlight {
    /// The runs of its micro-batches.
    Running(Vec<SubmittedRun>),
    Finished(StepReport),
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(runs) => write!(f, "Running({} micro-batches)", runs.len()),
            Self::Finished(report) => f.debug_tuple("Finished").field(report).finish(),
        }
    }
}

/// The steps in flight, in the order of submission.
pub(super) type StepQueue = VecDeque<InFlight>;
