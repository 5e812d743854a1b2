//! Where a model's files come from: a directory, or bytes in memory. Both go through the same loader.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;

use super::ModelBytes;
use super::fields::Fields;
use super::mapped;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::hip::regular_file;

const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
pub(super) const PREPROCESSOR: &str = "preprocessor_config.json";

/// A model's files.
#[derive(Debug)]
pub(super) enum Source<'a> {
    /// A directory; `weights` if the caller named a weight file.
    Directory { path: PathBuf, weights: Option<PathBuf> },
    /// In memory.
    Bytes(ModelBytes<'a>),
}

/// A JSON file that was read.
#[derive(Debug)]
pub(super) struct Document {
    /// Its path.
    pub(super) file: PathBuf,
    /// Its content.
    pub(super) value: Value,
}

impl Document {
    /// The top-level object's keys.
    pub(super) fn fields(&self) -> Result<Fields<'_>> {
        Fields::new(&self.file, &self.value)
    }
}

impl Source<'_> {
    /// The model at `path`: a directory, or a `.safetensors` file beside its `config.json`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                let reason =
                    "there is no such directory or file; a model on a hub has to be downloaded first";
                Error::io(path, io::Error::new(source.kind(), reason))
            }
            _ => Error::io(path, source),
        })?;
        if metadata.is_dir() {
            return Ok(Self::Directory {
                path: path.to_owned(),
                weights: None,
            });
        }
        if path
            .extension()
            .is_none_or(|extension| extension != "safetensors")
        {
            return Err(Error::config(
                path,
                "is neither a model directory nor a .safetensors file",
            ));
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Ok(Self::Directory {
            path: parent.to_owned(),
            weights: Some(path.to_owned()),
        })
    }

    /// The model's name: the directory's.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Bytes(files) => files.name.to_owned(),
            Self::Directory { path, .. } => fs::canonicalize(path)
                .ok()
                .as_deref()
                .and_then(Path::file_name)
                .unwrap_or(path.as_os_str())
                .to_string_lossy()
                .into_owned(),
        }
    }

    /// The directory, or the name that stands for it.
    pub(super) fn directory(&self) -> &Path {
        match self {
            Self::Directory { path, .. } => path,
            Self::Bytes(files) => Path::new(files.name),
        }
    }

    /// The path of the model's file `name`, whether it exists or not.
    fn place(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// `config.json`.
    pub(super) fn config(&self) -> Result<Document> {
        match self {
            Self::Bytes(files) => parse(self.place("config.json"), files.config),
            Self::Directory { path, .. } => self
                .json("config.json")?
                .ok_or_else(|| Error::config(path, "has no config.json, so it is not a model directory")),
        }
    }

    /// `preprocessor_config.json`, or `None` if there is none.
    pub(super) fn preprocessor(&self) -> Result<Option<Document>> {
        match self {
            Self::Directory { .. } => self.json(PREPROCESSOR),
            Self::Bytes(files) => files
                .preprocessor
                .map(|bytes| parse(self.place(PREPROCESSOR), bytes))
                .transpose(),
        }
    }

    /// The JSON file `name` of the directory, or `None` if there is none.
    fn json(&self, name: &str) -> Result<Option<Document>> {
        let file = self.place(name);
        match regular_file::read(&file) {
            Ok(bytes) => parse(file, &bytes).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&file, error)),
        }
    }

    /// The weights: `model.safetensors`, or the shards that its index lists.
    pub(super) fn weights(&self) -> Result<Weights> {
        let (path, named) = match self {
            Self::Bytes(files) => {
                let mut store = Weights::new(&self.place(WEIGHTS));
                store.add(&self.place(WEIGHTS), &files.weights)?;
                return Ok(store);
            }
            Self::Directory { path, weights } => (path, weights),
        };
        let single = named.clone().unwrap_or_else(|| path.join(WEIGHTS));
        if named.is_some() || single.exists() {
            let mut store = Weights::new(&single);
            store.add(&single, &mapped::map(&single)?)?;
            return Ok(store);
        }
        match self.json(INDEX)? {
            Some(index) => shards(path, &index),
            None => Err(self.no_weights(path)),
        }
    }

    fn no_weights(&self, path: &Path) -> Error {
        let pickled = ["pytorch_model.bin", "pytorch_model.bin.index.json"]
            .into_iter()
            .find(|name| self.place(name).exists());
        match pickled {
            Some(name) => Error::config(
                path,
                format!("has {name} but no {WEIGHTS}; save it again with safe_serialization=True"),
            ),
            None => Error::config(path, format!("has neither {WEIGHTS} nor {INDEX}")),
        }
    }
}

fn parse(file: PathBuf, bytes: &[u8]) -> Result<Document> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(Document { file, value }),
        Err(error) => Err(Error::config(&file, format!("is not valid JSON: {error}"))),
    }
}

/// Reads every file that the index names; each tensor must be where the index says.
fn shards(directory: &Path, index: &Document) -> Result<Weights> {
    let Some(map) = index.fields()?.object("weight_map")? else {
        return Err(Error::config(&index.file, "has no `weight_map`"));
    };
    let mut store = Weights::new(directory);
    let mut files: Vec<&str> = Vec::new();
    for tensor in map.keys() {
        let Some(name) = map.text(tensor)? else {
            return Err(map.error(tensor, "names no file"));
        };
        // An index must not refer to files outside its directory.
        if Path::new(name).file_name().is_none_or(|file| file != name) {
            return Err(map.error(tensor, format_args!("is \"{name}\", expected a file name")));
        }
        if !files.contains(&name) {
            files.push(name);
        }
    }
    files.sort_unstable();
    for name in files {
        let file = directory.join(name);
        store.add(&file, &mapped::map(&file)?)?;
    }
    for tensor in map.keys() {
        let Some(name) = map.text(tensor)? else { continue };
        let file = directory.join(name);
        if store.file(tensor) != Some(&file) {
            return Err(Error::tensor(
                &file,
                tensor,
                format_args!("is missing, but {INDEX} puts it there"),
            ));
        }
    }
    Ok(store)
}
