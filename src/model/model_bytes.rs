//! A model whose files are in memory.

use std::fmt;
use std::sync::Arc;

use crate::tensor::Bytes;
use hipvit_files::json;

/// Contents of a model's files.
pub struct ModelBytes<'a> {
    /// Name of the model, used in messages in place of its directory.
    pub name: &'a str,
    /// Content of `config.json`, or of `open_clip_config.json`.
    pub config: &'a [u8],
    /// Content of `model.safetensors`.
    pub weights: Arc<dyn Bytes>,
    /// Content of `preprocessor_config.json` or `processor_config.json`. Required for models of transformers.
    pub preprocessor: Option<&'a [u8]>,
}

impl ModelBytes<'_> {
    /// Returns true if the configuration is open_clip's, which has a section of this name.
    pub(super) fn is_open_clip(&self) -> bool {
        json::parse(self.config).is_ok_and(|config| config.get("model_cfg").is_some())
    }
}

impl fmt::Debug for ModelBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelBytes")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
