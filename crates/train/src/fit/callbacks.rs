//! Functions that a run calls.

use std::path::Path;

use hipvit_data::Broken;

use super::events::{EpochEvent, StepEvent};
use crate::float8::LayerEvent;

/// Functions that a run calls. Each does nothing by default.
pub trait Callbacks {
    /// Is called after each step.
    fn on_step(&mut self, _event: &StepEvent) {}

    /// Is called after each epoch.
    fn on_epoch(&mut self, _event: &EpochEvent) {}

    /// Is called after a checkpoint was written to `path`.
    fn on_checkpoint(&mut self, _path: &Path) {}

    /// Is called after a step that has not updated the weights. `cause` has the value that is NaN or infinite.
    fn on_skipped_step(&mut self, _step: u64, _cause: &str) {}

    /// Is called after a step that ran out of the device's memory, and was then divided into micro-batches of at most `images` images.
    fn on_smaller_micro_batches(&mut self, _step: u64, _images: usize) {}

    /// Is called for each layer that is no longer computed in FP8.
    fn on_layer(&mut self, _event: &LayerEvent) {}

    /// Is called for each broken image that was skipped.
    fn on_broken(&mut self, _broken: &Broken) {}

    /// Returns true if the run must write a checkpoint and end.
    fn must_stop(&self) -> bool {
        false
    }
}
