//! The files of a model: the `.onnx` file, and the files beside it with external data.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use hipvit_files::{foreign, regular_file};

use crate::error::{Error, Refusal, refuse};
use crate::mapped;
use crate::proto::{StringStringEntryProto, TensorProto};

/// Reads external data of tensors. Every file is opened once.
#[derive(Debug)]
pub(crate) struct Source {
    /// The model's file, for errors.
    path: PathBuf,
    /// The directory with external data. `None` for a model in memory.
    directory: Option<PathBuf>,
    files: RefCell<HashMap<String, Bytes>>,
}

impl Source {
    /// Opens the model at `path`. Returns its bytes too.
    pub(crate) fn open(path: &Path) -> Result<(Self, Bytes), Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let file = regular_file::open(path).map_err(io)?;
        let bytes = mapped::map(&file).map_err(io)?;
        if let Some(what) = foreign::describe(&bytes[..bytes.len().min(foreign::PREFIX)]) {
            return Err(Error::Invalid {
                path: path.to_owned(),
                reason: format!("is {what}. An ONNX model is expected"),
            });
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let source = Self {
            path: path.to_owned(),
            directory: Some(parent.unwrap_or(Path::new(".")).to_owned()),
            files: RefCell::default(),
        };
        Ok((source, bytes))
    }

    /// Returns the source of a model in memory, which has no external data.
    pub(crate) fn in_memory(name: &str) -> Self {
        Self {
            path: name.into(),
            directory: None,
            files: RefCell::default(),
        }
    }

    /// Returns an error of the model's file.
    pub(crate) fn invalid(&self, reason: impl Into<String>) -> Error {
        Error::Invalid {
            path: self.path.clone(),
            reason: reason.into(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the `size` bytes of a tensor that is stored outside the model's file.
    pub(crate) fn external(&self, tensor: &TensorProto, size: usize) -> Result<Bytes, Refusal> {
        let entry = |key: &str| {
            let mut entries = tensor.external_data.iter();
            entries
                .find(|entry| entry.key == key)
                .map(|StringStringEntryProto { value, .. }| value)
        };
        let number = |key: &str| match entry(key) {
            None => Ok(None),
            Some(text) => match text.trim().parse::<usize>() {
                Ok(number) => Ok(Some(number)),
                Err(_) => refuse!("its external data has the {key} `{text}`, not a number"),
            },
        };
        let location = entry("location").ok_or("its external data has no location")?;
        let offset = number("offset")?.unwrap_or(0);
        let length = number("length")?.unwrap_or(size);
        if length != size {
            refuse!("its external data has {length} bytes, but its shape takes {size}");
        }
        let bytes = self.file(location)?;
        let end = offset.checked_add(size).filter(|&end| end <= bytes.len());
        let end = end.ok_or_else(|| {
            format!(
                "its external data is at byte {offset}, {size} bytes long, but `{location}` has {} bytes",
                bytes.len()
            )
        })?;
        Ok(bytes.slice(offset..end))
    }

    fn file(&self, location: &str) -> Result<Bytes, Refusal> {
        if let Some(bytes) = self.files.borrow().get(location) {
            return Ok(bytes.clone());
        }
        let directory = self
            .directory
            .as_ref()
            .ok_or("its data is in another file, but the model is in memory. Load the model by its path")?;
        let bytes = open_within(directory, location)
            .and_then(|file| mapped::map(&file))
            .map_err(|error| format!("its external data `{location}` cannot be read: {error}"))?;
        self.files.borrow_mut().insert(location.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

/// Opens the file `location` in `directory`. Refuses paths that lead out of the directory, also by symbolic links.
///
/// A link is followed if what it points to is in the directory, or in the same cache of the Hugging Face hub: there,
/// the files of a model are links to `../../blobs`.
fn open_within(directory: &Path, location: &str) -> io::Result<File> {
    let refuse = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason);
    let relative = Path::new(location);
    let is_plain = |component: Component<'_>| matches!(component, Component::Normal(_) | Component::CurDir);
    // A backslash separates folders on Windows, where such models may have been written.
    if !relative.components().all(is_plain) || location.contains(['\\', '\0']) {
        return Err(refuse("is not a path inside the model's directory"));
    }
    let path = directory.join(relative);
    let resolved = path.canonicalize()?;
    let mut roots = vec![directory.canonicalize()?];
    roots.extend(hub_blobs(&roots[0]));
    if !roots.iter().any(|root| resolved.starts_with(root)) {
        return Err(refuse("is a link to a file outside the model's directory"));
    }
    regular_file::open(resolved)
}

/// Returns the folder with the files of a model in the hub's cache: `…/models--x/blobs` of `…/models--x/snapshots/hash`.
fn hub_blobs(directory: &Path) -> Option<PathBuf> {
    let mut ancestors = directory.ancestors();
    let snapshots = ancestors.find(|folder| folder.file_name().is_some_and(|name| name == "snapshots"))?;
    let model = snapshots.parent()?;
    let is_model = model.file_name()?.to_str()?.starts_with("models--");
    is_model.then(|| model.join("blobs"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use std::fs;

    fn external(location: &str, offset: &str, length: &str) -> TensorProto {
        let entry = |(key, value): (&str, &str)| StringStringEntryProto {
            key: key.into(),
            value: value.into(),
        };
        let entries = [("location", location), ("offset", offset), ("length", length)];
        TensorProto {
            external_data: entries
                .into_iter()
                .filter(|(_, value)| !value.is_empty())
                .map(entry)
                .collect(),
            ..TensorProto::default()
        }
    }

    #[test]
    fn external_data_is_read_from_inside_the_directory_only() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        fs::create_dir_all(model.join("inner")).unwrap();
        fs::write(folder.path().join("outside"), [1; 16]).unwrap();
        fs::write(model.join("model.onnx"), [8, 10]).unwrap();
        fs::write(model.join("inner/data"), (0..16).collect::<Vec<u8>>()).unwrap();
        let (source, _) = Source::open(&model.join("model.onnx")).unwrap();
        let read = |location, offset, length| source.external(&external(location, offset, length), 4);
        assert_eq!(&read("inner/data", "4", "4").unwrap()[..], [4, 5, 6, 7]);
        assert_eq!(&read("./inner/data", "", "").unwrap()[..], [0, 1, 2, 3]);
        let absolute = folder.path().join("outside");
        for (location, offset, length, reason) in [
            ("../outside", "0", "4", "is not a path inside"),
            (absolute.to_str().unwrap(), "0", "4", "is not a path inside"),
            ("inner/../../outside", "0", "4", "is not a path inside"),
            ("inner\\data", "0", "4", "is not a path inside"),
            ("", "0", "4", "has no location"),
            ("inner", "0", "4", "is a directory, not a regular file"),
            ("missing", "0", "4", "cannot be read"),
            ("inner/data", "13", "4", "`inner/data` has 16 bytes"),
            (
                "inner/data",
                "18446744073709551615",
                "4",
                "`inner/data` has 16 bytes",
            ),
            ("inner/data", "-1", "4", "not a number"),
            ("inner/data", "0", "8", "8 bytes, but its shape takes 4"),
        ] {
            let error = read(location, offset, length).unwrap_err();
            assert!(error.to_string().contains(reason), "{location}: {error}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("../outside", model.join("link")).unwrap();
            std::os::unix::fs::symlink("inner/data", model.join("inside")).unwrap();
            assert!(
                read("link", "0", "4")
                    .unwrap_err()
                    .to_string()
                    .contains("is a link to a file outside")
            );
            assert_eq!(&read("inside", "0", "4").unwrap()[..], [0, 1, 2, 3]);
        }
    }
}
