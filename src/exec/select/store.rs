//! Measured choices: a readable JSON file per GPU model, in the directory `selection` of hipvit's cache.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::choice::Choice;
use super::key::{HIPBLASLT, HIPSPARSELT, Key, MIOPEN};
use super::problem::{
    AttentionShape, ConvShape, LinearShape, PatchEmbeddingShape, PatternAttentionShape, Problem,
};
use super::whole_model::WholeModel;
use crate::error::{Error, Result};
use crate::hip::DType;
use crate::kernels::cache_folder;
use crate::ops::Activation;
use hipvit_files::regular_file;
use hipvit_files::temporary;

const FORMAT: &str = "hipvit.selection/1";

/// Measurements on an H200, with the libraries that the file names.
const SHIPPED: &[&str] = &[include_str!("defaults/nvidia_h200.json")];

/// A kernel that skips the zeros of a 2:4 sparse weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exec) enum SparseKernel {
    /// The builtin kernel, [`Choice::SparseGemm`].
    Builtin,
    /// [`Choice::Hipsparselt`].
    Hipsparselt,
}

/// The fastest candidate for each measured problem.
#[derive(Clone, Debug, Default)]
pub struct Store {
    key: Key,
    measured: HashMap<Problem, Measured>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    candidate: Choice,
    microseconds: f64,
    /// Times of the whole model that decided whether the layer's weight is packed.
    whole_model: Option<WholeModel>,
}

/// A list per op. Files of older versions may lack lists.
#[derive(Deserialize)]
struct File {
    format: String,
    #[serde(flatten)]
    key: Key,
    #[serde(default)]
    linear: Vec<Entry<LinearShape>>,
    #[serde(default)]
    patch_embedding: Vec<Entry<PatchEmbeddingShape>>,
    #[serde(default)]
    attention: Vec<Entry<AttentionShape>>,
    #[serde(default)]
    pattern_attention: Vec<Entry<PatternAttentionShape>>,
    #[serde(default)]
    conv: Vec<Entry<ConvShape>>,
}

#[derive(Serialize, Deserialize)]
struct Entry<S> {
    #[serde(flatten)]
    shape: S,
    kernel: Choice,
    microseconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole_model: Option<WholeModel>,
}

impl<S: Into<Problem>> Entry<S> {
    fn measured(self) -> (Problem, Measured) {
        let Self {
            shape,
            kernel: candidate,
            microseconds,
            whole_model,
        } = self;
        (
            shape.into(),
            Measured {
                candidate,
                microseconds,
                whole_model,
            },
        )
    }
}

/// Returns the libraries that a choice depends on. A choice against MIOpen stays valid for other versions of MIOpen until the next
/// measurement.
fn libraries(problem: &Problem, candidate: Choice) -> impl Iterator<Item = &'static str> {
    let gemm = matches!(problem, Problem::Linear(_) | Problem::PatchEmbedding(_));
    let miopen = candidate == Choice::Miopen;
    let sparse = matches!(candidate, Choice::Hipsparselt { .. });
    [
        gemm.then_some(HIPBLASLT),
        miopen.then_some(MIOPEN),
        sparse.then_some(HIPSPARSELT),
    ]
    .into_iter()
    .flatten()
}

impl Store {
    /// Creates an empty store.
    pub fn new(key: Key) -> Self {
        Self {
            key,
            measured: HashMap::new(),
        }
    }

    /// Returns the measurements shipped for this device, for any versions of libraries.
    pub(super) fn shipped(key: &Key) -> Self {
        let stores = SHIPPED.iter().filter_map(|text| Self::parse(text));
        let mut fitting = stores.filter(|store| store.key.is_same_device(key));
        fitting.next().unwrap_or_default()
    }

    /// Loads the measurements for this device from the user's cache, for any versions of libraries. A missing or damaged file counts as
    /// empty: it costs only speed, and the next measurement replaces it.
    pub(super) fn load(key: &Key) -> Self {
        let text = path(key).and_then(|path| read(&path));
        let stored = text.and_then(|text| Self::parse(&text));
        match stored.filter(|store| store.key.is_same_device(key)) {
            Some(store) => store,
            None => Self::new(key.clone()),
        }
    }

    /// Loads the measurements for this device and the libraries of `key` from the user's cache.
    pub(in crate::exec) fn current(key: &Key) -> Self {
        let mut store = Self::load(key);
        store.retain(key);
        store
    }

    /// Keeps only measurements with the libraries of `key`, and sets `key`.
    pub(super) fn retain(&mut self, key: &Key) {
        let Self { key: old, measured } = self;
        measured.retain(|problem, measured| {
            let mut libraries = libraries(problem, measured.candidate);
            libraries.all(|library| old.version(library) == key.version(library))
        });
        *old = key.clone();
    }

    fn parse(text: &str) -> Option<Self> {
        let file: File = serde_json::from_str(text).ok()?;
        if file.format != FORMAT {
            return None;
        }
        let linear = file.linear.into_iter().map(Entry::measured);
        let patches = file.patch_embedding.into_iter().map(Entry::measured);
        let attention = file.attention.into_iter().map(Entry::measured);
        let patterns = file.pattern_attention.into_iter().map(Entry::measured);
        let convs = file.conv.into_iter().map(Entry::measured);
        Some(Self {
            key: file.key,
            measured: linear
                .chain(patches)
                .chain(attention)
                .chain(patterns)
                .chain(convs)
                .collect(),
        })
    }

    /// Returns the device and libraries of the measurements.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the number of problems.
    pub fn len(&self) -> usize {
        self.measured.len()
    }

    /// Returns true if there are no measurements.
    pub fn is_empty(&self) -> bool {
        self.measured.is_empty()
    }

    /// Returns the fastest candidate for `problem`. `None` if it was not measured.
    pub fn get(&self, problem: &Problem) -> Option<Choice> {
        self.measured.get(problem).map(|measured| measured.candidate)
    }

    /// Returns true if `candidate` is the fastest for some problem.
    pub(super) fn has(&self, candidate: Choice) -> bool {
        self.measured
            .values()
            .any(|measured| measured.candidate == candidate)
    }

    /// Returns true if a choice depends on the version of `library`.
    pub(super) fn depends_on(&self, library: &str) -> bool {
        let mut all = self.measured.iter();
        all.any(|(problem, measured)| libraries(problem, measured.candidate).any(|of| of == library))
    }

    /// Returns the kernel for a 2:4 sparse weight `[n, k]` if, at each measured number of rows, a kernel that skips zeros is the fastest.
    pub(in crate::exec) fn sparse(&self, [n, k]: [usize; 2], dtype: DType) -> Option<SparseKernel> {
        let mut of_weight = self
            .measured
            .iter()
            .filter_map(|(problem, measured)| match problem {
                Problem::Linear(shape)
                    if shape.sparse && (shape.n, shape.k, shape.dtype) == (n, k, dtype) =>
                {
                    Some(match measured.candidate {
                        Choice::SparseGemm => Some(SparseKernel::Builtin),
                        Choice::Hipsparselt { .. } => Some(SparseKernel::Hipsparselt),
                        _ => None,
                    })
                }
                _ => None,
            });
        let first = of_weight.next()??;
        of_weight.all(|fastest| fastest == Some(first)).then_some(first)
    }

    /// Records the fastest candidate for `problem`.
    pub fn insert(&mut self, problem: impl Into<Problem>, candidate: Choice, microseconds: f64) {
        let measured = Measured {
            candidate,
            microseconds,
            whole_model: None,
        };
        self.measured.insert(problem.into(), measured);
    }

    /// Records the whole model's times that decided whether the weight of `problem` is packed.
    pub fn remark(&mut self, problem: &Problem, whole_model: WholeModel) {
        if let Some(measured) = self.measured.get_mut(problem) {
            measured.whole_model = Some(whole_model);
        }
    }

    /// Adds the measurements of `other`, which take precedence.
    pub fn extend(&mut self, other: &Self) {
        self.measured.extend(other.measured.iter().map(|(p, m)| (*p, *m)));
    }

    /// Merges the measurements into the user's cache and returns the path of the file. Replaces the file atomically.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file cannot be written, [`Error::Argument`] if there is no cache.
    pub fn save(&self) -> Result<PathBuf> {
        let Some(path) = path(&self.key) else {
            return Err(Error::argument(
                "HIPVIT_CACHE_DIR",
                "is empty, or there is no home directory: nothing is kept",
            ));
        };
        let mut all = Self::load(&self.key);
        all.retain(&self.key);
        all.extend(self);
        match all.write(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(Error::io(&path, error)),
        }
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let (mut file, _listed) = temporary::file_in(folder, "")?;
        file.write_all(self.to_json().as_bytes())?;
        file.persist(path)?;
        Ok(())
    }

    /// Returns the contents of the file, with one entry per line.
    pub fn to_json(&self) -> String {
        let linear = self.lines(|problem| match problem {
            Problem::Linear(s) => {
                let flags = [s.bias, s.residual];
                let activation = s.activation.map(Activation::name);
                Some((*s, (s.dtype.to_string(), vec![s.m, s.n, s.k], flags, activation)))
            }
            _ => None,
        });
        let patches = self.lines(|problem| match problem {
            Problem::PatchEmbedding(s) => {
                let sizes = vec![s.images, s.height, s.width, s.patch[0], s.patch[1], s.n];
                Some((*s, (s.dtype.to_string(), sizes, [s.bias, false], None::<()>)))
            }
            _ => None,
        });
        let attention = self.lines(|problem| match problem {
            Problem::Attention(s) => {
                let sizes = vec![s.images, s.heads, s.tokens, s.head_dim];
                Some((*s, (s.dtype.to_string(), sizes, [false; 2], None::<()>)))
            }
            _ => None,
        });
        let patterns = self.lines(|problem| match problem {
            Problem::PatternAttention(s) => {
                let sizes = [s.images, s.heads, s.queries, s.keys, s.head_dim];
                Some((*s, (s.dtype.to_string(), sizes, s.pattern)))
            }
            _ => None,
        });
        let convs = self.lines(|problem| match problem {
            Problem::Conv(s) => {
                let windows = [s.size, s.kernel, s.stride, s.dilation, s.padding[0], s.padding[1]];
                let sizes = [s.images, s.channels, s.features, s.groups];
                let activation = s.activation.map(Activation::name);
                Some((
                    *s,
                    (
                        s.dtype.to_string(),
                        sizes,
                        windows,
                        [s.bias, s.residual],
                        activation,
                    ),
                ))
            }
            _ => None,
        });
        let head = serde_json::json!({"format": FORMAT, "device": self.key.device, "arch": self.key.arch, "libraries": self.key.libraries});
        let head = head.to_string();
        let head = head.trim_end_matches('}');
        let list = |name: &str, lines: &str| format!(",\n\"{name}\":[\n{lines}\n]");
        [
            head.to_owned(),
            list("linear", &linear),
            list("patch_embedding", &patches),
            list("attention", &attention),
            list("pattern_attention", &patterns),
            list("conv", &convs),
            "}\n".to_owned(),
        ]
        .concat()
    }

    /// Formats a line per problem of an op. `of` returns the shape and the sort key.
    fn lines<S: Serialize, O: Ord>(&self, of: impl Fn(&Problem) -> Option<(S, O)>) -> String {
        let mut entries: Vec<(O, String)> = self
            .measured
            .iter()
            .filter_map(|(problem, measured)| {
                let (shape, order) = of(problem)?;
                let entry = Entry {
                    shape,
                    kernel: measured.candidate,
                    microseconds: (measured.microseconds * 100.0).round() / 100.0,
                    whole_model: measured.whole_model,
                };
                Some((order, serde_json::to_string(&entry).unwrap_or_default()))
            })
            .collect();
        entries.sort();
        let lines: Vec<String> = entries.into_iter().map(|(_, line)| line).collect();
        lines.join(",\n")
    }
}

/// Reads a regular file. Other kinds of files, such as named pipes, are not opened.
fn read(path: &Path) -> Option<String> {
    String::from_utf8(regular_file::read(path).ok()?).ok()
}

/// Returns the path of the file for this GPU model.
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
    use super::super::tests::{ATTENTION, CONV, PATCHES, PATTERN, key, shape};
    use super::*;

    const FAST: Choice = Choice::Hipblaslt {
        algorithm: 3,
        epilogue: true,
    };

    fn both(version: &str) -> Key {
        key().with(MIOPEN, Some(version.into()))
    }

    fn tile() -> Choice {
        serde_json::from_str(r#"{"tile":{"waves":8,"queries":128,"keys":32}}"#).unwrap()
    }

    fn store() -> Store {
        let mut store = Store::new(both("3.5.1"));
        store.insert(shape(3), FAST, 12.345);
        store.insert(shape(4), Choice::Rocblas, 1.0);
        store.insert(PATCHES, Choice::Miopen, 2.0);
        store.insert(ATTENTION, Choice::Builtin, 3.0);
        store.insert(PATTERN, tile(), 4.0);
        store.insert(CONV, Choice::Miopen, 5.0);
        store
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let store = store();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("selection/gpu.json");
        store.write(&path).unwrap();
        let text = read(&path).unwrap();
        let read = Store::parse(&text).unwrap();
        assert_eq!((read.key(), read.len()), (&both("3.5.1"), 6));
        assert_eq!(read.key().libraries, "hipBLASLt 1, MIOpen 3.5.1");
        for (problem, candidate) in [
            (shape(3).into(), Some(FAST)),
            (shape(4).into(), Some(Choice::Rocblas)),
            (shape(5).into(), None),
            (PATCHES.into(), Some(Choice::Miopen)),
            (Problem::from(ATTENTION), Some(Choice::Builtin)),
            (Problem::from(PATTERN), Some(tile())),
            (Problem::from(CONV), Some(Choice::Miopen)),
        ] {
            assert_eq!(read.get(&problem), candidate, "{problem}");
        }
        assert_eq!(text.lines().count(), 1 + 5 * 2 + 6, "{text}");
        assert!(text.contains(r#""pattern":"fedcba9876543210""#), "{text}");
        assert_eq!(read.to_json(), text);
        // An existing file is replaced.
        store.write(&path).unwrap();
    }

    /// Files of versions that only selected linear layers have one list.
    #[test]
    fn a_list_may_be_missing() {
        let mut linear = Store::new(key());
        linear.insert(shape(3), FAST, 12.345);
        let text = linear.to_json();
        let (first, _) = text.split_once(",\n\"patch_embedding\"").unwrap();
        let read = Store::parse(&format!("{first}}}")).unwrap();
        assert_eq!((read.key(), read.len()), (&key(), 1));
    }

    #[test]
    fn a_choice_is_kept_while_the_libraries_that_it_depends_on_stay() {
        let kept = |key: &Key| -> Vec<bool> {
            let mut store = store();
            store.retain(key);
            assert_eq!(store.key(), key);
            [
                shape(3).into(),
                PATCHES.into(),
                ATTENTION.into(),
                Problem::from(PATTERN),
            ]
            .map(|problem| store.get(&problem).is_some())
            .into()
        };
        assert_eq!(kept(&both("3.5.1")), [true, true, true, true]);
        assert_eq!(kept(&both("3.5.2")), [true, false, true, true], "another MIOpen");
        assert_eq!(kept(&key()), [true, false, true, true], "no MIOpen");
        let other = Key {
            libraries: "hipBLASLt 12, MIOpen 3.5.1".into(),
            ..key()
        };
        assert_eq!(kept(&other), [false, false, true, true], "another hipBLASLt");
    }

    #[test]
    fn what_is_damaged_counts_as_none() {
        let text = store().to_json();
        for end in 0..text.trim_end().len() {
            assert!(Store::parse(&text[..end]).is_none_or(|s| s.len() == 6), "{end}");
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
