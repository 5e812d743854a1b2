//! Finds the files of a model: in a directory, in the local cache of the Hugging Face hub, or in memory. One loader
//! reads all of them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::Value;

use super::ModelBytes;
use super::adapter::{self, Adapter};
use super::fields::Fields;
use super::hub::{self, Repository, Snapshot};
use super::weights::Weights;
use super::{renames, timm};
use crate::error::{Error, Result};
use hipvit_files::foreign;
use hipvit_files::json;
use hipvit_files::regular_file;

/// Maximum length of a JSON document in bytes. Parsing takes about 25 times as much memory.
const LONGEST_JSON: u64 = 16 << 20;

pub(super) const CONFIG: &str = "config.json";
pub(super) const WEIGHTS: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";
pub(super) const OPEN_CLIP: &str = "open_clip_config.json";
pub(super) const OPEN_CLIP_WEIGHTS: &str = "open_clip_model.safetensors";
/// Python program that converts the vision tower of an open_clip model to a timm model. Arguments: the model's
/// directory, the output directory.
const CONVERT_OPEN_CLIP: &str = "import json, pathlib, sys, timm; from timm.models import save_for_hf; d = pathlib.Path(sys.argv[1]); \
                            c = json.load(open(d / \"open_clip_config.json\")); m, p = c[\"model_cfg\"], c.get(\"preprocess_cfg\", \
                            {}); v = m[\"vision_cfg\"]; t = v.get(\"timm_model_name\"); n = m[\"embed_dim\"] if not t or \
                            v.get(\"timm_proj\") not in (None, \"\", \"none\") else 0; a = t or \"vit_%s_patch%d_clip_%s%d\" % \
                            (dict([(768, \"base\"), (1024, \"large\"), (1280, \"huge\"), (1408, \"giant\"), (1664, \
                            \"gigantic\")])[v[\"width\"]], v[\"patch_size\"], \"quickgelu_\" if m.get(\"quick_gelu\") else \"\", \
                            v[\"image_size\"]); f = [*d.glob(\"*.safetensors\"), *d.glob(\"*.bin\")][0]; o = dict(file=str(f), \
                            num_classes=n, crop_pct=1.0, crop_mode=\"squash\" if p.get(\"resize_mode\") == \"squash\" else \"center\", \
                            **{k: p[k] for k in (\"mean\", \"std\", \"interpolation\") if k in p}); save_for_hf(timm.create_model(a, \
                            pretrained=True, num_classes=n, pretrained_cfg_overlay=o), sys.argv[2], safe_serialization=True)";
/// Python program that writes `model.safetensors` from the PyTorch weights in the directory given as argument. It runs
/// no code from the weights.
const CONVERT: &str = "import pathlib, sys, torch; from safetensors.torch import save_file; d = pathlib.Path(sys.argv[1]); \
                       save_file({k: v.clone().contiguous() for f in d.glob(\"pytorch_model*.bin\") for k, v in \
                       torch.load(f, map_location=\"cpu\", weights_only=True).items()}, d / \"model.safetensors\")";
/// Python program that converts one PyTorch file to safetensors. Arguments: the file, the output file.
const CONVERT_FILE: &str = "import sys, torch; from safetensors.torch import save_file; s = torch.load(sys.argv[1], map_location=\"cpu\", \
                            weights_only=True); s = next((s[k] for k in (\"state_dict_ema\", \"model_ema\", \"state_dict\", \"model\") \
                            if k in s), s); save_file({k: v.clone().contiguous() for k, v in s.items() if hasattr(v, \"shape\")}, \
                            sys.argv[2], metadata={\"format\": \"pt\"})";
/// Extensions of PyTorch files.
const PYTORCH: [&str; 5] = [".bin", ".pt", ".pth", ".ckpt", ".pth.tar"];
/// Extensions of weight files that are neither safetensors nor PyTorch.
const OTHER_WEIGHTS: [&str; 6] = [".onnx", ".h5", ".keras", ".msgpack", ".gguf", ".npz"];
pub(super) const PREPROCESSOR: &str = "preprocessor_config.json";
/// File that `save_pretrained` of a processor writes, with the configuration of the image processor under
/// [`IMAGE_PROCESSOR`].
pub(super) const PROCESSOR: &str = "processor_config.json";
const IMAGE_PROCESSOR: &str = "image_processor";

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

/// A JSON file that was read.
#[derive(Debug)]
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
    fn image_processor(mut self) -> Option<Self> {
        let value = self.value.get_mut(IMAGE_PROCESSOR)?.take();
        (!value.is_null()).then_some(Self { value, ..self })
    }
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
        if path.file_name().is_some_and(|name| name == adapter::WEIGHTS) {
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
        let Some(config) = self.json(adapter::CONFIG)? else {
            return Ok(self);
        };
        let mut base = match adapter::base(&config)? {
            adapter::Base::Directory(base) => Source::of_directory(base, None),
            adapter::Base::Snapshot(snapshot) => Source::of_snapshot(snapshot),
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

    fn of_directory(path: PathBuf, weights: Option<PathBuf>) -> Self {
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

    /// Returns true if the directory has a model in open_clip's form only.
    pub(super) fn is_open_clip(&self) -> bool {
        let has = |name| self.place(name).exists();
        matches!(self, Self::Directory { .. }) && !has(CONFIG) && has(OPEN_CLIP)
    }

    /// Returns the error for an open_clip model that is not supported. It advises a conversion, because timm knows the
    /// tensor names of all vision towers.
    pub(super) fn not_open_clip(&self, why: &Error) -> Error {
        self.fault(format_args!(
            "is an open_clip model ({OPEN_CLIP}, no {CONFIG}) that cannot be built: {why}; this writes its vision tower \
             as a timm model to the directory vision-tower, with Python, timm and safetensors: \
             python3 -c '{CONVERT_OPEN_CLIP}' {} vision-tower",
            hub::shell(self.directory())
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

    /// Reads the weights, with the names in the library's files. Applies the adapter, if there is one.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`], [`Error::Weights`] and [`Error::Tensor`] for files that are missing, damaged or of
    /// another kind. Returns [`Error::Config`] for an adapter that is not supported.
    pub(super) fn weights(&self, config: Fields<'_>) -> Result<Weights> {
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
            .filter(|name| !name.starts_with('.') && name != adapter::WEIGHTS)
            .collect();
        files.sort_unstable();
        let pickled = |file: &&String| file.starts_with("pytorch_model") && file.ends_with(".bin");
        if files.iter().any(|file| pickled(&file)) {
            return self.fault(format_args!(
                "has its weights in PyTorch's format only (pytorch_model*.bin), not as {WEIGHTS}; convert them with \
                 Python, torch and safetensors: python3 -c '{CONVERT}' {}",
                hub::shell(path)
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

/// Returns true for the configuration and the weights of a model, which an adapter's directory may also have.
fn is_of_model(name: &str) -> bool {
    let is_weights = name.ends_with(".safetensors") && name != adapter::WEIGHTS;
    is_weights || [CONFIG, INDEX, OPEN_CLIP].contains(&name)
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

/// Returns the error text for a weight file that is not safetensors: what its content is, and what to do.
pub(super) fn not_weights(file: &Path, content: &[u8], what: &str) -> String {
    let advice = if foreign::is_pytorch(content) {
        format!(": not safetensors. {}", convert(file))
    } else {
        String::new()
    };
    format!("is {what}{advice}")
}

/// Returns the command that converts a PyTorch file.
fn convert(file: &Path) -> String {
    let target = file.with_file_name(WEIGHTS);
    let target = if target == file {
        file.with_file_name("converted.safetensors")
    } else {
        target
    };
    format!(
        "Convert it with Python, torch and safetensors: python3 -c '{CONVERT_FILE}' {} {}",
        hub::shell(file),
        hub::shell(&target)
    )
}

/// Returns the error for a path that does not exist and cannot be a name on the hub.
fn not_found(path: &Path) -> Error {
    let name = path.to_string_lossy();
    let advice = match timm::pretrained(name.split('.').next().unwrap_or_default()) {
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

pub(super) fn parse(file: PathBuf, bytes: &[u8]) -> Result<Document> {
    match json::parse(bytes) {
        Ok(value) => Ok(Document { file, value }),
        Err(reason) => Err(Error::config(&file, reason)),
    }
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
