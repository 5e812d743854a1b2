//! Models of maps that training starts from.

use hipvit::error::{Error, Result};
use hipvit::model::Checkpoint;

use super::{CONFIG, InitialModel, Start, contents, read_config};

impl InitialModel {
    /// Reads a model that predicts maps, or creates it with new weights for its configuration. `seed` determines the new weights.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new).
    pub(crate) fn of_maps(start: Start<'_>, seed: u64) -> Result<Self> {
        match start {
            Start::Checkpoint(path) => {
                let checkpoint = Checkpoint::open(Some(path))?;
                Ok(Self {
                    config: checkpoint.config().clone(),
                    preprocessor: checkpoint.preprocessor().cloned(),
                    tensors: contents(&checkpoint, |_| true),
                    new: Vec::new(),
                    names: checkpoint.file_names(),
                    files: Vec::new(),
                })
            }
            Start::Config(path) => {
                let (directory, config, preprocessor) = read_config(path, CONFIG)?;
                Self::from_scratch(&directory.to_string_lossy(), config, preprocessor, seed)
            }
            Start::Architecture { name, .. } => {
                let reason = format!(
                    "{name} is an architecture of timm, none of which predicts maps. Name a config.json of transformers, or a directory"
                );
                Err(Error::argument("model", reason))
            }
        }
    }
}
