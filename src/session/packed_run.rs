//! A run of packed images, whose results are selected by image.

use ndarray::Axis;

use crate::exec::{RunOutput, RunOutputs, Staging};

/// What a run of packed images returns besides its results.
pub(super) struct PackedRun {
    /// Row of the results of each image.
    pub(super) rows: Vec<usize>,
    /// Memory that the images were staged in.
    pub(super) staging: Option<Staging>,
}

impl PackedRun {
    /// Returns the results in the order of the images.
    pub(super) fn select(&self, outputs: RunOutputs) -> RunOutputs {
        let select = |RunOutput { kind, values }: RunOutput| RunOutput {
            kind,
            values: values.select(Axis(0), &self.rows),
        };
        outputs.into_iter().map(select).collect()
    }
}
