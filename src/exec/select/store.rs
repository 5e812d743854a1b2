//! What was measured: a readable JSON file for each GPU model, in the folder `selection` of hipvit's cache.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{LinearKernel, LinearShape};
use crate::error::{Error, Result};
use crate::hip::regular_file;
use crate::kernels::cache_folder;
use crate::ops::Activation;

const FORMAT: &str = "hipvit.selection/1";

/// Measured on an H200 with the libraries that the file names.
const SHIPPED: &[&str] = &[include_str!("defaults/nvidia_h200.json")];

/// What a measurement depends on beside the shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The GPU's name.
    pub device: String,
    /// Its architecture, such as gfx942.
    pub arch: String,
    /// The libraries and their versions.
    pub libraries: String,
}

/// The fastest kernel for each shape that was measured.
#[derive(Clone, Debug, Default)]
pub struct Store {
    key: Key,
    linear: HashMap<LinearShape, Measured>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    kernel: LinearKernel,
    microseconds: f64,
}

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    #[serde(flatten)]
    key: Key,
    linear: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    shape: LinearShape,
    kernel: LinearKernel,
    microseconds: f64,
}

impl Store {
    /// Empty.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            linear: HashMap::new(),
        }
    }

    /// What is shipped for this device and these libraries.
    pub(super) fn shipped(key: &Key) -> Self {
        let stores = SHIPPED.iter().filter_map(|text| Self::parse(text));
        let mut fitting = stores.filter(|store| store.key == *key);
        fitting.next().unwrap_or_default()
    }

    /// What the user's cache has. A file that is missing, damaged, or of other libraries counts as none: it costs speed alone,
    /// and the next measurement replaces it.
    pub(super) fn load(key: Key) -> Self {
        let text = path(&key).and_then(|path| read(&path));
        let stored = text.and_then(|text| Self::parse(&text));
        match stored.filter(|store| store.key == key) {
            Some(store) => store,
            None => Self::new(key),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let file: File = serde_json::from_str(text).ok()?;
        if file.format != FORMAT {
            return None;
        }
        let measured = |entry: Entry| {
            let Entry {
                shape,
                kernel,
                microseconds,
            } = entry;
            (shape, Measured { kernel, microseconds })
        };
        Some(Self {
            key: file.key,
            linear: file.linear.into_iter().map(measured).collect(),
        })
    }

    /// What it was measured on.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The number of shapes.
    pub fn len(&self) -> usize {
        self.linear.len()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.linear.is_empty()
    }

    /// The fastest kernel for `shape`, if it was measured.
    pub fn get(&self, shape: &LinearShape) -> Option<LinearKernel> {
        self.linear.get(shape).map(|measured| measured.kernel)
    }

    /// Whether `kernel` is the fastest for some shape.
    pub(super) fn has(&self, kernel: LinearKernel) -> bool {
        self.linear.values().any(|measured| measured.kernel == kernel)
    }

    /// Records the fastest kernel for `shape`.
    pub fn insert(&mut self, shape: LinearShape, kernel: LinearKernel, microseconds: f64) {
        self.linear.insert(shape, Measured { kernel, microseconds });
    }

    /// Adds this to the user's cache, whose other entries stay, and returns the file's path. The file appears whole or not at
    /// all.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be written; [`Error::Argument`] where there is no cache.
    pub fn save(&self) -> Result<PathBuf> {
        let Some(path) = path(&self.key) else {
            return Err(Error::argument(
                "HIPVIT_CACHE_DIR",
                "is empty, or there is no home directory: nothing is kept",
            ));
        };
        let mut all = Self::load(self.key.clone());
        all.linear.extend(self.linear.iter().map(|(s, m)| (*s, *m)));
        match all.write(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(Error::io(&path, error)),
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(self.to_json().as_bytes())?;
        file.persist(path)?;
        Ok(())
    }

    /// The file's contents: an entry per line.
    pub fn to_json(&self) -> String {
        let mut shapes: Vec<_> = self.linear.keys().copied().collect();
        shapes.sort_by_key(|s| {
            (
                s.dtype.to_string(),
                s.m,
                s.n,
                s.k,
                s.bias,
                s.residual,
                s.activation.map(Activation::name),
            )
        });
        let line = |shape: LinearShape| {
            let Measured { kernel, microseconds } = self.linear[&shape];
            let entry = Entry {
                shape,
                kernel,
                microseconds: (microseconds * 100.0).round() / 100.0,
            };
            serde_json::to_string(&entry).unwrap_or_default()
        };
        let lines: Vec<String> = shapes.into_iter().map(line).collect();
        let head = serde_json::json!({"format": FORMAT, "device": self.key.device, "arch": self.key.arch, "libraries": self.key.libraries});
        let head = head.to_string();
        let head = head.trim_end_matches('}');
        format!("{head},\n\"linear\":[\n{}\n]}}\n", lines.join(",\n"))
    }
}

/// A regular file's text; anything else, such as a named pipe, is not read.
fn read(path: &Path) -> Option<String> {
    String::from_utf8(regular_file::read(path).ok()?).ok()
}

/// A file for each GPU model.
fn path(key: &Key) -> Option<PathBuf> {
    let text = format!("{} {}", key.arch, key.device).to_lowercase();
    let name = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    let name = name.collect::<Vec<_>>().join("-");
    Some(cache_folder()?.join("selection").join(format!("{name}.json")))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{key, shape};
    use super::*;

    const FAST: LinearKernel = LinearKernel::Hipblaslt {
        algorithm: 3,
        epilogue: true,
    };

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let mut store = Store::new(key());
        store.insert(shape(3), FAST, 12.345);
        store.insert(shape(4), LinearKernel::Rocblas, 1.0);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("selection/gpu.json");
        store.write(&path).unwrap();
        let text = read(&path).unwrap();
        let read = Store::parse(&text).unwrap();
        assert_eq!((read.key(), read.len()), (&key(), 2));
        assert_eq!(read.get(&shape(3)), Some(FAST));
        assert_eq!(read.get(&shape(4)), Some(LinearKernel::Rocblas));
        assert_eq!(read.get(&shape(5)), None);
        assert_eq!(text.lines().count(), 5, "{text}");
        // The file can be replaced.
        store.write(&path).unwrap();
    }

    #[test]
    fn what_is_damaged_counts_as_none() {
        let mut store = Store::new(key());
        store.insert(shape(3), FAST, 12.345);
        let text = store.to_json();
        for end in 0..text.trim_end().len() {
            assert!(Store::parse(&text[..end]).is_none_or(|s| s.len() == 1), "{end}");
        }
        assert!(Store::parse(&text.replace("selection/1", "selection/2")).is_none());
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).is_none(), "a folder");
        fs::write(folder.path().join("binary"), [0xff; 8]).unwrap();
        assert!(read(&folder.path().join("binary")).is_none());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        Store::new(key())
            .write(&file.join("selection/gpu.json"))
            .unwrap_err();
    }

    #[test]
    fn shipped_files_are_sound() {
        for text in SHIPPED {
            let store = Store::parse(text).unwrap();
            assert_eq!(Store::shipped(store.key()).len(), store.len());
        }
        assert!(Store::shipped(&key()).is_empty());
    }
}
