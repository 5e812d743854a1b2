//! Detectors that training on objects starts from.

use hipvit::error::{Error, Result};
use hipvit::model::{Checkpoint, DETECTOR_COPIES};

use super::{InitialModel, Start, contents};

impl InitialModel {
    /// Reads a detector, without copies of its heads.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] for a model without weights, and the errors of [`new`](Self::new).
    pub(crate) fn of_boxes(start: Start<'_>) -> Result<Self> {
        let Start::Checkpoint(path) = start else {
            let reason = "has no weights. Write random ones with transformers: `RTDetrForObjectDetection(config).save_pretrained(…)`";
            return Err(Error::argument("model", reason));
        };
        let checkpoint = Checkpoint::open(Some(path))?;
        Ok(Self {
            config: checkpoint.config().clone(),
            preprocessor: checkpoint.preprocessor().cloned(),
            tensors: contents(&checkpoint, |name| {
                !DETECTOR_COPIES.iter().any(|copy| name.starts_with(copy))
            }),
            new: Vec::new(),
            names: checkpoint.file_names(),
            files: Vec::new(),
        })
    }
}
