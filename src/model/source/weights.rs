//! Reads the weights of a model: as stored, renamed, and with its adapter merged.

use std::fs;
use std::path::Path;

use super::Source;
use crate::error::{Error, Result};
use crate::model::adapter::Adapter;
use crate::model::convert::{CONVERT, convert};
use crate::model::document::{Document, shard_names};
use crate::model::fields::Fields;
use crate::model::file_names::{ADAPTER_WEIGHTS, INDEX, OPEN_CLIP_WEIGHTS, WEIGHTS};
use crate::model::renames;
use crate::model::shell::shell;
use crate::model::weights::Weights;

/// Extensions of PyTorch files.
const PYTORCH: [&str; 5] = [".bin", ".pt", ".pth", ".ckpt", ".pth.tar"];
/// Extensions of weight files that are neither safetensors nor PyTorch.
const OTHER_WEIGHTS: [&str; 6] = [".onnx", ".h5", ".keras", ".msgpack", ".gguf", ".npz"];

impl Source<'_> {
    /// Reads the weights, with the names in the library's files. Applies the adapter, if there is one.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`], [`Error::Weights`] and [`Error::Tensor`] for files that are missing, damaged or of
    /// another kind. Returns [`Error::Config`] for an adapter that is not supported.
    pub(in crate::model) fn weights(&self, config: Fields<'_>) -> Result<Weights> {
        let mut weights = self.stored_weights()?;
        if let Some(model_type) = config.text("model_type")? {
            weights.rename(|name| renames::in_files(model_type, name))?;
        }
        if let Some(adapter) = Adapter::open(self)? {
            adapter.merge(config, &mut weights)?;
        }
        Ok(weights)
    }

    /// Reads the weights as stored: `model.safetensors`, or the shards that its index lists.
    fn stored_weights(&self) -> Result<Weights> {
        let (path, named) = match self {
            Self::Bytes(files) => {
                let mut store = Weights::new(&self.place(WEIGHTS));
                store.add(&self.place(WEIGHTS), &files.weights)?;
                return Ok(store);
            }
            Self::Directory { path, weights, .. } => (path, weights),
        };
        let open_clip = self.is_open_clip();
        let file = if open_clip { OPEN_CLIP_WEIGHTS } else { WEIGHTS };
        let single = named.clone().unwrap_or_else(|| path.join(file));
        if named.is_some() || single.exists() {
            let mut store = Weights::new(&single);
            store.map(&single)?;
            return Ok(store);
        }
        if single.is_symlink() {
            return Err(self.missing(&[file.to_owned()], "whose target is gone"));
        }
        if open_clip {
            return Err(self.missing(&[file.to_owned()], "which open_clip models have"));
        }
        match self.json(INDEX)? {
            Some(index) => {
                let files = shard_names(&index)?;
                let missing = files.iter().filter(|file| !self.place(file).exists());
                let missing: Vec<String> = missing.map(|&file| file.to_owned()).collect();
                if missing.is_empty() {
                    shards(path, &index, &files)
                } else {
                    Err(self.missing(&missing, "which model.safetensors.index.json lists"))
                }
            }
            None => Err(self.no_weights(path)),
        }
    }

    /// Returns the error for missing weights. It says what to do about them.
    fn no_weights(&self, path: &Path) -> Error {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut files: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            // Skip files such as macOS's `._model.safetensors`, which has the attributes of a file.
            .filter(|name| !name.starts_with('.') && name != ADAPTER_WEIGHTS)
            .collect();
        files.sort_unstable();
        let pickled = |file: &&String| file.starts_with("pytorch_model") && file.ends_with(".bin");
        if files.iter().any(|file| pickled(&file)) {
            return self.fault(format_args!(
                "has its weights in PyTorch's format only (pytorch_model*.bin), not as {WEIGHTS}; convert them with \
                 Python, torch and safetensors: python3 -c '{CONVERT}' {}",
                shell(path)
            ));
        }
        if let Self::Directory {
            repository: Some(repository),
            ..
        } = self
        {
            return self.fault(format_args!(
                "is missing {WEIGHTS}. Download it with: {}",
                repository.download()
            ));
        }
        let with_end = |ends: &[&str]| {
            files
                .iter()
                .find(|file| ends.iter().any(|end| file.ends_with(end)))
        };
        let mut others = files.iter().filter(|file| file.ends_with(".safetensors"));
        let others = (others.next(), others.next());
        if let (None, Some(file)) = (others.0, with_end(&PYTORCH)) {
            return self.fault(format_args!(
                "has its weights in PyTorch's format only ({file}), not as {WEIGHTS}. {}",
                convert(&path.join(file))
            ));
        }
        if let (None, Some(file)) = (others.0, with_end(&OTHER_WEIGHTS)) {
            return self.fault(format_args!(
                "is missing {WEIGHTS}; {file} has weights in a format that is not read. Save the model with timm or transformers"
            ));
        }
        match others {
            (Some(file), None) if !file.starts_with("model-") => self.fault(format_args!(
                "has neither {WEIGHTS} nor {INDEX}; to use {file}, name the file instead of the directory"
            )),
            _ => self.missing(
                &[WEIGHTS.to_owned()],
                "and has no model.safetensors.index.json instead",
            ),
        }
    }
}

/// Reads `files`, which the index lists. Each tensor must be in the file that the index says.
fn shards(directory: &Path, index: &Document, files: &[&str]) -> Result<Weights> {
    let mut store = Weights::new(directory);
    for name in files {
        store.map(&directory.join(name))?;
    }
    let map = index.fields()?.object_or_empty("weight_map")?;
    for tensor in map.keys() {
        let Some(name) = map.text(tensor)? else { continue };
        let file = directory.join(name);
        if store.file(renames::bare(tensor)) != Some(&file) {
            return Err(Error::tensor(
                &file,
                tensor,
                format_args!("is missing, but {INDEX} puts it there"),
            ));
        }
    }
    Ok(store)
}
