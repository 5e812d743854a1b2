//! JSON files of a model.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::fields::Fields;
use crate::error::{Error, Result};
use hipvit_files::json;
#[cfg(feature = "hub")]
use hipvit_files::regular_file;

/// Maximum length of a JSON document in bytes. Parsing takes about 25 times as much memory.
pub(super) const LONGEST_JSON: u64 = 16 << 20;

pub(super) const IMAGE_PROCESSOR: &str = "image_processor";

/// A JSON file that was read.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// Path of the file.
    pub(super) file: PathBuf,
    /// Content of the file.
    pub(super) value: Value,
}

impl Document {
    /// Returns the fields of the top-level object.
    pub(super) fn fields(&self) -> Result<Fields<'_>> {
        Fields::new(&self.file, &self.value)
    }

    /// Returns the image processor's configuration in a processor's configuration, unless it is missing or null.
    pub(super) fn image_processor(mut self) -> Option<Self> {
        let value = self.value.get_mut(IMAGE_PROCESSOR)?.take();
        (!value.is_null()).then_some(Self { value, ..self })
    }
}

pub(super) fn parse(file: PathBuf, bytes: &[u8]) -> Result<Document> {
    match json::parse(bytes) {
        Ok(value) => Ok(Document { file, value }),
        Err(reason) => Err(Error::config(&file, reason)),
    }
}

/// Reads a file that contains a JSON document.
///
/// # Errors
///
/// Returns [`Error::Io`] if the file cannot be read, is not regular, or is too long.
#[cfg(feature = "hub")]
pub(super) fn read_json(file: &Path) -> Result<Vec<u8>> {
    regular_file::read_within(file, LONGEST_JSON).map_err(|error| Error::io(file, error))
}

/// Returns the files that an index lists.
pub(super) fn shard_names(index: &Document) -> Result<Vec<&str>> {
    let Some(map) = index.fields()?.object("weight_map")? else {
        return Err(Error::config(&index.file, "has no `weight_map`"));
    };
    let mut files: Vec<&str> = Vec::new();
    for tensor in map.keys() {
        let Some(name) = map.text(tensor)? else {
            return Err(map.error(tensor, "names no file"));
        };
        // An index must not refer to files outside of its directory.
        if Path::new(name).file_name().is_none_or(|file| file != name) {
            return Err(map.error(tensor, format_args!("is \"{name}\", expected a file name")));
        }
        if !files.contains(&name) {
            files.push(name);
        }
    }
    files.sort_unstable();
    Ok(files)
}
