//! Finds the files of a model: in a directory, in the local cache of the Hugging Face hub, or in memory. One loader
//! reads all of them.

mod weights;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::adapter::base::{self, Base};
use super::convert::{CONVERT_OPEN_CLIP, not_weights};
use super::document::{Document, IMAGE_PROCESSOR, LONGEST_JSON, parse};
use super::file_names::{ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG, INDEX, OPEN_CLIP, PREPROCESSOR, PROCESSOR};
use super::hub::{Repository, Snapshot};
use super::model_bytes::ModelBytes;
use super::shell::shell;
use super::timm::pretrained;
use crate::error::{Error, Result};
use hipvit_files::foreign;
use hipvit_files::regular_file;

/// Files of a model.
#[derive(Debug)]
pub(super) enum Source<'a> {
    /// A directory. `weights` is set if the caller named a weight file.
    Directory {
        path: PathBuf,
        weights: Option<PathBuf>,
        /// Repository on the hub that the directory is a snapshot of, if it is a snapshot.
        repository: Option<Repository>,
        /// Directory of an adapter whose base model is in `path`, if the caller named the adapter.
        adapter: Option<PathBuf>,
    },
    /// Files in memory.
    Bytes(ModelBytes<'a>),
}

impl Source<'_> {
    /// Opens the model at `path`: a directory, a `.safetensors` file with `config.json` in its directory, or a model of
    /// the hub in the local cache.
    ///
    /// A model of the hub is only looked up if nothing exists at `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) => {
                return match path.to_str().and_then(Repository::parse) {
                    Some(repository) => Self::of_snapshot(repository.cached()?).base_of_adapter(),
                    None if error.kind() == io::ErrorKind::NotFound => Err(not_found(path)),
                    None => Err(Error::io(path, error)),
                };
            }
        };
        if metadata.is_dir() {
            if !path.join(CONFIG).exists()
                && let Some(snapshot) = Snapshot::of_folder(path)
            {
                return Self::of_snapshot(snapshot?).base_of_adapter();
            }
            return Self::of_directory(path.to_owned(), None).with_base();
        }
        if path
            .extension()
            .is_none_or(|extension| extension != "safetensors")
        {
            return Err(not_a_model(path));
        }
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if path.file_name().is_some_and(|name| name == ADAPTER_WEIGHTS) {
            return Self::of_directory(parent.to_owned(), None).with_base();
        }
        Ok(Self::of_directory(parent.to_owned(), Some(path.to_owned())))
    }

    /// Returns a source for files of the directory that are read later, or `None` for a model in memory.
    pub(super) fn directory_files(&self) -> Option<Source<'static>> {
        match self {
            Self::Bytes(_) => None,
            Self::Directory {
                path,
                weights,
                repository,
                adapter,
            } => Some(Source::Directory {
                path: path.clone(),
                weights: weights.clone(),
                repository: repository.clone(),
                adapter: adapter.clone(),
            }),
        }
    }

    /// Replaces a local directory that has an adapter but no model by the base model's, as transformers'
    /// `from_pretrained` does.
    fn with_base(self) -> Result<Self> {
        let has = |name: &str| self.place(name).exists();
        if has(CONFIG) || has(OPEN_CLIP) {
            return Ok(self);
        }
        self.base_of_adapter()
    }

    /// Replaces the directory of an adapter by the base model's.
    ///
    /// For a name on the hub, transformers does so even if the repository has a model of its own.
    fn base_of_adapter(self) -> Result<Self> {
        let Self::Directory { path, .. } = &self else {
            return Ok(self);
        };
        let Some(config) = self.json(ADAPTER_CONFIG)? else {
            return Ok(self);
        };
        let mut base = match base::base(&config)? {
            Base::Directory(base) => Source::of_directory(base, None),
            Base::Snapshot(snapshot) => Source::of_snapshot(snapshot),
        };
        if let Source::Directory { adapter, .. } = &mut base {
            *adapter = Some(path.clone());
        }
        Ok(base)
    }

    /// Reads the file `name` of the directory. Returns `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] for a file that cannot be read, is not regular, or has more than `longest` bytes.
    pub(super) fn bytes(&self, name: &str, longest: u64) -> Result<Option<Vec<u8>>> {
        let file = self.place(name);
        match regular_file::read_within(&file, longest) {
            Ok(bytes) => match foreign::describe(&bytes).filter(|_| name.ends_with(".json")) {
                Some(what) => Err(Error::config(&file, format_args!("is {what}"))),
                None => Ok(Some(bytes)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&file, error)),
        }
    }

    pub(super) fn of_directory(path: PathBuf, weights: Option<PathBuf>) -> Self {
        let repository = fs::canonicalize(&path).ok();
        Self::Directory {
            repository: repository.as_deref().and_then(Repository::of_snapshot),
            path,
            weights,
            adapter: None,
        }
    }

    fn of_snapshot(snapshot: Snapshot) -> Self {
        Self::Directory {
            path: snapshot.path,
            weights: None,
            repository: Some(snapshot.repository),
            adapter: None,
        }
    }

    /// Returns the model's name: the repository on the hub, or the directory.
    pub(super) fn name(&self) -> String {
        let of_directory = |path: &Path| {
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            match Repository::of_snapshot(&path) {
                Some(repository) => repository.id().to_owned(),
                None => path
                    .file_name()
                    .unwrap_or(path.as_os_str())
                    .to_string_lossy()
                    .into_owned(),
            }
        };
        match self {
            Self::Bytes(files) => files.name.to_owned(),
            Self::Directory {
                adapter: Some(path), ..
            } => of_directory(path),
            Self::Directory {
                repository: Some(repository),
                ..
            } => repository.id().to_owned(),
            Self::Directory { path, .. } => of_directory(path),
        }
    }

    /// Returns the directory, or the name used in its place.
    pub(super) fn directory(&self) -> &Path {
        match self {
            Self::Directory { path, .. } => path,
            Self::Bytes(files) => Path::new(files.name),
        }
    }

    /// Returns the path of the model's file `name`, whether it exists or not.
    ///
    /// A file in the directory of an adapter replaces the base model's, unless it belongs to another model in that
    /// directory.
    pub(super) fn place(&self, name: &str) -> PathBuf {
        let beside_adapter = match self {
            Self::Directory {
                adapter: Some(path), ..
            } if !is_of_model(name) => Some(path.join(name)),
            _ => None,
        };
        beside_adapter
            .filter(|file| file.exists())
            .unwrap_or_else(|| self.directory().join(name))
    }

    /// Reads `config.json`.
    pub(super) fn config(&self) -> Result<Document> {
        match self {
            Self::Bytes(files) => parse(self.place(CONFIG), files.config),
            Self::Directory { .. } if self.is_open_clip() => self
                .json(OPEN_CLIP)?
                .ok_or_else(|| self.missing(&[OPEN_CLIP.to_owned()], "which was there a moment ago")),
            Self::Directory { .. } => self
                .json(CONFIG)?
                .ok_or_else(|| self.missing(&[CONFIG.to_owned()], "so it is not a model directory")),
        }
    }

    /// Returns true if the directory has a model in open_clip's form only, or if the configuration in memory is open_clip's.
    pub(super) fn is_open_clip(&self) -> bool {
        let has = |name| self.place(name).exists();
        match self {
            Self::Directory { .. } => !has(CONFIG) && has(OPEN_CLIP),
            Self::Bytes(files) => files.is_open_clip(),
        }
    }

    /// Returns the error for an open_clip model that is not supported. It advises a conversion, because timm knows the
    /// tensor names of all vision towers.
    pub(super) fn not_open_clip(&self, why: &Error) -> Error {
        self.fault(format_args!(
            "is an open_clip model ({OPEN_CLIP}, no {CONFIG}) that cannot be built: {why}; this writes its vision tower \
             as a timm model to the directory vision-tower, with Python, timm and safetensors: \
             python3 -c '{CONVERT_OPEN_CLIP}' {} vision-tower",
            shell(self.directory())
        ))
    }

    /// Returns an error about the directory. For a model of the hub, it is about the snapshot.
    fn fault(&self, reason: impl std::fmt::Display) -> Error {
        match self {
            Self::Directory {
                path,
                repository: Some(repository),
                ..
            } => repository.error(format_args!(
                "its snapshot in the cache ({}) {reason}",
                path.display()
            )),
            _ => Error::config(self.directory(), reason),
        }
    }

    /// Returns an error about missing files. If the hub has them, it gives the command that downloads them.
    pub(super) fn missing(&self, files: &[String], why: &str) -> Error {
        let dangling = |file: &String| self.place(file).is_symlink();
        let state = if files.iter().any(dangling) {
            "has only a broken link for"
        } else {
            "is missing"
        };
        let listed = files.join(", ");
        match self {
            Self::Directory {
                repository: Some(repository),
                ..
            } => self.fault(format_args!(
                "{state} {listed}. Download it with: {}",
                repository.download()
            )),
            _ => self.fault(format_args!("{state} {listed}, {why}")),
        }
    }

    /// Reads the image processor's configuration where transformers finds it. Returns `None` if there is none.
    ///
    /// It is under `image_processor` in `processor_config.json`, otherwise in `preprocessor_config.json`.
    pub(super) fn preprocessor(&self) -> Result<Option<Document>> {
        match self {
            Self::Directory { .. } => match self.json(PROCESSOR)?.and_then(Document::image_processor) {
                Some(document) => Ok(Some(document)),
                None => self.json(PREPROCESSOR),
            },
            Self::Bytes(files) => {
                let Some(bytes) = files.preprocessor else {
                    return Ok(None);
                };
                // The bytes may be of either file, because the name is not known.
                let document = parse(self.place(PREPROCESSOR), bytes)?;
                if document.value.get("image_processor_type").is_none()
                    && document.value.get(IMAGE_PROCESSOR).is_some()
                {
                    return Ok(document.image_processor());
                }
                Ok(Some(document))
            }
        }
    }

    /// Returns the error for a model without [`preprocessor`](Self::preprocessor).
    pub(super) fn no_preprocessor(&self) -> Error {
        let processor = self.place(PROCESSOR);
        if processor.exists() {
            let why = "which says how images are prepared, and its processor_config.json has no `image_processor` instead";
            return self.missing(&[PREPROCESSOR.to_owned()], why);
        }
        // A broken link of the hub's cache.
        let file = if processor.is_symlink() {
            PROCESSOR
        } else {
            PREPROCESSOR
        };
        let why = "which says how images are prepared, and has no processor_config.json instead";
        self.missing(&[file.to_owned()], why)
    }

    /// Reads the JSON file `name` of the directory. Returns `None` if there is no such file.
    pub(super) fn json(&self, name: &str) -> Result<Option<Document>> {
        let parsed = self
            .bytes(name, LONGEST_JSON)?
            .map(|bytes| parse(self.place(name), &bytes));
        parsed.transpose()
    }
}

/// Returns true for the configuration and the weights of a model, which an adapter's directory may also have.
fn is_of_model(name: &str) -> bool {
    let is_weights = name.ends_with(".safetensors") && name != ADAPTER_WEIGHTS;
    is_weights || [CONFIG, INDEX, OPEN_CLIP].contains(&name)
}

/// Returns the error for a file that does not belong to a model.
fn not_a_model(path: &Path) -> Error {
    let start = regular_file::open(path).and_then(|file| {
        let mut start = Vec::new();
        file.take(foreign::PREFIX as u64).read_to_end(&mut start)?;
        Ok(start)
    });
    let start = match start {
        Ok(start) => start,
        Err(error) => return Error::io(path, error),
    };
    let expected = "is neither a model directory nor a .safetensors file";
    match foreign::describe(&start) {
        Some(what) if foreign::is_pytorch(&start) => Error::config(
            path,
            format_args!("{expected}: it {}", not_weights(path, &start, what)),
        ),
        Some(what) if !start.is_empty() => Error::config(path, format_args!("{expected}: it is {what}")),
        _ => Error::config(path, expected),
    }
}

/// Returns the error for a path that does not exist and cannot be a name on the hub.
fn not_found(path: &Path) -> Error {
    let name = path.to_string_lossy();
    let advice = match pretrained::default_weights(name.split('.').next().unwrap_or_default()) {
        Some(_) => format!("on the Hugging Face hub it is timm/{name}"),
        None if name.starts_with("file:") => "name the directory by its path, without file://".to_owned(),
        None if name.contains("://") => {
            "a model is a directory, or ORG/NAME or ORG/NAME@REVISION of the Hugging Face hub".to_owned()
        }
        None => "models of the Hugging Face hub are named as there, for example timm/vit_base_patch16_224"
            .to_owned(),
    };
    let reason = format!("there is no such directory or file; {advice}");
    Error::io(path, io::Error::new(io::ErrorKind::NotFound, reason))
}
