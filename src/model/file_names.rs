//! Names of the files of a model and of an adapter.

pub(super) const CONFIG: &str = "config.json";
pub(super) const WEIGHTS: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";
pub(super) const OPEN_CLIP: &str = "open_clip_config.json";
pub(super) const OPEN_CLIP_WEIGHTS: &str = "open_clip_model.safetensors";
pub(super) const PREPROCESSOR: &str = "preprocessor_config.json";
/// File that `save_pretrained` of a processor writes, with the configuration of the image processor under
/// `image_processor`.
pub(super) const PROCESSOR: &str = "processor_config.json";
pub(super) const ADAPTER_CONFIG: &str = "adapter_config.json";
pub(super) const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// Names of the files of a model that convert texts to tokens.
pub const TOKENIZER_FILES: [&str; 7] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
    "vocab.json",
    "merges.txt",
];
