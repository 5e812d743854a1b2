//! Dual encoders that training on pairs of images and captions starts from.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hipvit::error::{Error, Result};
use hipvit::model::{self, Checkpoint, LoadOptions};
use hipvit_files::regular_file;

use super::config::layer_scale;
use super::{
    CONFIG, Content, InitialModel, OPEN_CLIP, PREPROCESSOR, Start, contents, file_names, new_tensor,
    read_json, shapes,
};
use crate::ContrastiveOptions;
use crate::fit::text_tower;

/// Files of a model that convert texts to tokens.
const TOKENIZER: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "tokenizer.model",
];

/// Tensors of a model that the loss learns.
const SCALE: &str = "logit_scale";
const BIAS: &str = "logit_bias";

impl InitialModel {
    /// Creates a model with both towers and its tokenizer. `seed` determines all new weights.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] for a model without a text tower, and the errors of [`new`](Self::new) and of the tokenizer.
    pub(crate) fn of_pairs(start: Start<'_>, seed: u64) -> Result<Self> {
        match start {
            Start::Checkpoint(path) => Self::of_dual_encoder(path),
            Start::Config(path) => Self::dual_encoder_from_scratch(path, seed),
            Start::Architecture { name, .. } => {
                let reason = format!(
                    "`{name}` is neither a directory nor a model of the hub, and architectures of timm have no text tower. Give a \
                     directory with config.json and a tokenizer"
                );
                Err(Error::argument("model", reason))
            }
        }
    }

    fn of_dual_encoder(path: &Path) -> Result<Self> {
        let loaded = model::load(path, &LoadOptions::default())?;
        text_tower(loaded.text.as_ref(), path)?.tokenizer()?;
        let checkpoint = Checkpoint::open(Some(path))?;
        Ok(Self {
            config: checkpoint.config().clone(),
            preprocessor: checkpoint.preprocessor().cloned(),
            tensors: contents(&checkpoint, |_| true),
            new: Vec::new(),
            names: checkpoint.file_names(),
            files: tokenizer_files(&model::directory(path)?)?,
        })
    }

    fn dual_encoder_from_scratch(path: &Path, seed: u64) -> Result<Self> {
        let (directory, file) = config_file(path);
        let config = read_json(&file)?;
        let preprocessor = directory.join(PREPROCESSOR);
        let preprocessor = preprocessor
            .exists()
            .then(|| read_json(&preprocessor))
            .transpose()?;
        let place = directory.to_string_lossy();
        let shapes = shapes(&place, &config, preprocessor.as_ref())?;
        if !shapes.contains_key(SCALE) {
            text_tower(None, &directory)?;
        }
        let files = tokenizer_files(&directory)?;
        if files.is_empty() {
            let reason =
                "has no tokenizer, such as tokenizer.json. Copy the one with which captions become tokens";
            return Err(Error::config(&directory, reason));
        }
        let scale = layer_scale(&config);
        let family = if shapes.contains_key(BIAS) {
            ContrastiveOptions::sigmoid()
        } else {
            ContrastiveOptions::info_nce()
        };
        let mut tensors = BTreeMap::new();
        for (name, shape) in shapes {
            let of_loss = match name.as_str() {
                SCALE => Some(family.scale.ln()),
                BIAS => Some(family.bias),
                _ => None,
            };
            let content = match of_loss {
                Some(value) => Content::of_f32(shape, [value]),
                None => new_tensor(&place, &name, shape, scale, seed)?,
            };
            tensors.insert(name, content);
        }
        Ok(Self {
            names: file_names(&config),
            config,
            preprocessor,
            new: tensors.keys().cloned().collect(),
            tensors,
            files,
        })
    }
}

/// Returns the directory of a configuration, and its file.
fn config_file(path: &Path) -> (PathBuf, PathBuf) {
    if !path.is_dir() {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        return (directory.unwrap_or(Path::new(".")).to_owned(), path.to_owned());
    }
    let name = if path.join(CONFIG).exists() {
        CONFIG
    } else {
        OPEN_CLIP
    };
    (path.to_owned(), path.join(name))
}

/// Reads the files of a tokenizer that a directory has.
fn tokenizer_files(directory: &Path) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let places = TOKENIZER.into_iter().map(|name| (name, directory.join(name)));
    let existing = places.filter(|(_, file)| fs::metadata(file).is_ok());
    existing
        .map(|(name, file)| {
            let bytes = regular_file::read(&file).map_err(|error| Error::io(&file, error))?;
            Ok((name, bytes))
        })
        .collect()
}
