//! Downloads models from the Hugging Face hub into its local cache.
//!
//! The cache has the layout of Python's `huggingface_hub`, so hipvit and Python find each other's downloads:
//!
//! - `blobs/<hash>` contains the bytes
//! - `snapshots/<commit>/<file>` links to a blob
//! - `refs/<revision>` contains the hash of the commit
//!
//! An interrupted download continues from `blobs/<hash>.incomplete`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
#[cfg(unix)]
use std::os::unix::fs::symlink;
// Only for administrators, and in the developer mode.
#[cfg(windows)]
use std::os::windows::fs::symlink_file as symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::client::{Client, Failure, Listing, Metadata};
use super::{Repository, environment};
use crate::error::{Error, Result};
use crate::model::adapter::base;
use crate::model::{document, file_names};
use hipvit_files::regular_file;
use hipvit_files::temporary;

/// Files other than weights and those of a tokenizer that hipvit reads if a repository has them.
const CONFIGS: [&str; 7] = [
    file_names::CONFIG,
    file_names::PREPROCESSOR,
    file_names::PROCESSOR,
    file_names::OPEN_CLIP,
    file_names::ADAPTER_CONFIG,
    file_names::ADAPTER_WEIGHTS,
    // Rules of a model that makes text.
    "generation_config.json",
];
/// Maximum number of consecutive attempts without progress.
const ATTEMPTS: u32 = 5;
/// Number of bytes that are read at a time.
const BUFFER: usize = 1 << 18;
/// Pause before the second attempt. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

type Report<'a> = dyn FnMut(PullProgress<'_>) -> ControlFlow<()> + 'a;
/// Callback that takes the number of bytes of one file that are in the cache.
type Bytes<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

/// State of a download.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PullProgress<'a> {
    /// Name of the repository, `org/name`.
    pub repository: &'a str,
    /// Name of the file that is being downloaded.
    pub file: &'a str,
    /// Number of bytes of the model that are in the cache.
    pub done: u64,
    /// Number of bytes of all files of the model.
    pub total: u64,
}

/// A model in the local cache of the Hugging Face hub.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pulled {
    /// Name of the repository, `org/name`.
    pub repository: String,
    /// Hash of the commit that the revision names.
    pub commit: String,
    /// Directory of the model's files.
    pub path: PathBuf,
    /// Number of bytes that were downloaded. 0 if the cache had all files.
    pub downloaded: u64,
    /// Base model of the repository's adapter (LoRA), if it has an adapter.
    pub base: Option<Box<Pulled>>,
}

/// Downloads a model from the Hugging Face hub into the hub's local cache. [`Session::load`](crate::Session::load) and
/// Python's libraries find it there.
///
/// `model` is `org/name`, `org/name@revision` or the URL of the model's page. Only files that hipvit reads are
/// downloaded.
///
/// `progress` is called as bytes arrive, and can stop the download. Files in the cache are not downloaded again, and an
/// interrupted download continues where it stopped.
///
/// The environment variables of Python's `huggingface_hub` apply: `HF_HOME` and `HF_HUB_CACHE` for the cache,
/// `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`.
///
/// # Errors
///
/// - [`Error::Hub`] if `model` is not a name on the hub, or if the hub cannot be reached or rejects the request
/// - [`Error::Hub`] if the repository has no weights that hipvit reads, if a file's SHA-256 is wrong, or if `progress`
///   stops the download
/// - [`Error::Config`] if a configuration that lists further files is not valid
/// - [`Error::Io`] if the cache cannot be read or written
pub fn pull(model: &str, mut progress: impl FnMut(PullProgress<'_>) -> ControlFlow<()>) -> Result<Pulled> {
    let repository = Repository::parse(model).ok_or_else(|| Error::Hub {
        model: model.to_owned(),
        reason: "not a name on the Hugging Face hub. Names are ORG/NAME or ORG/NAME@REVISION, for example \
                 timm/vit_base_patch16_224."
            .to_owned(),
    })?;
    let mut pulled = pull_repository(repository, Part::Named, &mut progress)?;
    pulled.base = pull_base(&pulled.path, &mut progress)?;
    Ok(pulled)
}

/// Downloads one repository, without the base model of an adapter.
fn pull_repository(repository: Repository, part: Part, progress: &mut Report<'_>) -> Result<Pulled> {
    let repository = repository.default_weights().unwrap_or(repository);
    let cache = environment().ok_or_else(|| {
        repository.error("there is no home directory for the cache. Set HF_HUB_CACHE to a folder.")
    })?;
    let client = Client::from_environment(&repository)?;
    let listing = patiently(|| client.listing(&repository))?;
    let download = Download {
        client: &client,
        folder: cache.join(repository.folder()),
        locks: cache.join(".locks").join(repository.folder()),
        repository: &repository,
        listing: &listing,
        part,
    };
    let downloaded = download.run(progress)?;
    Ok(Pulled {
        repository: repository.id().to_owned(),
        commit: listing.commit.clone(),
        path: download.snapshot(),
        downloaded,
        base: None,
    })
}

/// Downloads the base model of the adapter in `path`, if there is one.
///
/// If the base model is itself an adapter, its own base is not downloaded, because an adapter of an adapter cannot be
/// loaded.
fn pull_base(path: &Path, progress: &mut Report<'_>) -> Result<Option<Box<Pulled>>> {
    let file = path.join(file_names::ADAPTER_CONFIG);
    if !file.exists() {
        return Ok(None);
    }
    let bytes = document::read_json(&file)?;
    let config = document::parse(file, &bytes)?;
    let fields = config.fields()?;
    let name = fields.text("base_model_name_or_path")?;
    let Some(name) = name.filter(|name| !Path::new(name).is_dir()) else {
        return Ok(None);
    };
    match base::base_repository(fields, name)? {
        Some(base) => pull_repository(base, Part::Base, progress).map(|base| Some(Box::new(base))),
        None => Ok(None),
    }
}

/// Role of a repository in the model that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Repository that the caller names. If it has an adapter, its own model is not used.
    Named,
    /// Base model of an adapter.
    Base,
}

/// Download of one repository at one commit.
struct Download<'a> {
    client: &'a Client,
    repository: &'a Repository,
    listing: &'a Listing,
    part: Part,
    /// Folder of the repository in the cache.
    folder: PathBuf,
    locks: PathBuf,
}

impl Download<'_> {
    /// Downloads what is missing and returns its size in bytes.
    fn run(&self, progress: &mut Report<'_>) -> Result<u64> {
        let mut files = self.configs()?;
        if let Some(index) = files.iter().position(|file| file == file_names::INDEX) {
            // The index lists the shards, so it comes first.
            let metadata = self.metadata(file_names::INDEX)?;
            self.store(&files[index], &metadata, &mut |_| ControlFlow::Continue(()))?;
            files.extend(self.shards()?);
        }
        let files: Vec<(String, Metadata)> = files
            .into_iter()
            .map(|file| self.metadata(&file).map(|metadata| (file, metadata)))
            .collect::<Result<_>>()?;
        let sizes = files.iter().map(|(_, metadata)| metadata.size);
        let total = sizes.fold(0, u64::saturating_add);
        let (mut before, mut downloaded) = (0, 0);
        for (file, metadata) in &files {
            downloaded += self.store(file, metadata, &mut |done| {
                progress(PullProgress {
                    repository: self.repository.id(),
                    file,
                    done: before + done,
                    total,
                })
            })?;
            before += metadata.size;
        }
        // Write the reference last, so that a revision always names a complete snapshot.
        self.refer()?;
        Ok(downloaded)
    }

    fn stopped(&self) -> Error {
        self.repository
            .error("stopped. The next download continues here.")
    }

    fn snapshot(&self) -> PathBuf {
        self.folder.join("snapshots").join(&self.listing.commit)
    }

    fn metadata(&self, file: &str) -> Result<Metadata> {
        patiently(|| self.client.metadata(self.repository, &self.listing.commit, file))
    }

    /// Returns the files to download, without shards.
    fn configs(&self) -> Result<Vec<String>> {
        let has = |name: &str| self.has(name);
        let is_adapter = self.is_adapter();
        let weights = if is_adapter {
            Some(file_names::ADAPTER_WEIGHTS).filter(|name| has(name))
        } else if has(file_names::CONFIG) {
            [file_names::WEIGHTS, file_names::INDEX]
                .into_iter()
                .find(|name| has(name))
        } else if has(file_names::OPEN_CLIP) {
            Some(file_names::OPEN_CLIP_WEIGHTS).filter(|name| has(name))
        } else {
            Some(file_names::ADAPTER_WEIGHTS).filter(|name| has(name))
        };
        match weights {
            Some(weights) => {
                let of_model = [file_names::CONFIG, file_names::OPEN_CLIP];
                let is_read =
                    |name: &&str| has(name) && *name != weights && !(is_adapter && of_model.contains(name));
                let configs = CONFIGS
                    .into_iter()
                    .chain(file_names::TOKENIZER_FILES)
                    .filter(is_read);
                Ok(configs.chain([weights]).map(str::to_owned).collect())
            }
            None => Err(self.no_weights()),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.listing.files().any(|file| file == name)
    }

    /// Returns true if only the repository's adapter is used, as in transformers.
    fn is_adapter(&self) -> bool {
        self.part == Part::Named && self.has(file_names::ADAPTER_CONFIG)
    }

    fn no_weights(&self) -> Error {
        let pickled = |file: &&str| file.ends_with(".bin") || file.ends_with(".pt") || file.ends_with(".pth");
        let reason = match self.listing.files().find(pickled) {
            Some(file) => format!(
                "has its weights in PyTorch's format only ({file}), which hipvit does not read. Save the model with \
                 save_pretrained, or timm's save_for_hf, and safetensors."
            ),
            None if self.is_adapter() => format!(
                "has {}, but not {}. Name its base model instead.",
                file_names::ADAPTER_CONFIG,
                file_names::ADAPTER_WEIGHTS
            ),
            None => {
                let files: Vec<&str> = self.listing.files().take(12).collect();
                format!(
                    "not a model that hipvit reads: it has no {} with {}. Its files: {}",
                    file_names::CONFIG,
                    file_names::WEIGHTS,
                    files.join(", ")
                )
            }
        };
        self.repository.error(reason)
    }

    /// Returns the weight files that the index in the snapshot lists.
    fn shards(&self) -> Result<Vec<String>> {
        let file = self.snapshot().join(file_names::INDEX);
        let bytes = document::read_json(&file)?;
        let index = document::parse(file, &bytes)?;
        Ok(document::shard_names(&index)?
            .into_iter()
            .map(str::to_owned)
            .collect())
    }

    /// Adds `file` to the snapshot, from the cache or from the hub. Returns the number of bytes that were downloaded.
    fn store(&self, file: &str, metadata: &Metadata, progress: &mut Bytes<'_>) -> Result<u64> {
        let (blobs, snapshot) = (self.folder.join("blobs"), self.snapshot());
        for folder in [&blobs, &snapshot, &self.locks] {
            fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
        }
        let blob = blobs.join(&metadata.etag);
        // Python's library takes the same lock.
        let lock = self.locks.join(format!("{}.lock", metadata.etag));
        check_absent_or_regular(&lock).map_err(|error| Error::io(&lock, error))?;
        let lock_file = File::create(&lock).map_err(|error| Error::io(&lock, error))?;
        lock_file.lock().map_err(|error| Error::io(&lock, error))?;
        let complete = |path: &Path| fs::metadata(path).is_ok_and(|found| found.len() == metadata.size);
        let mut downloaded = 0;
        let place = snapshot.join(file);
        if !complete(&place) {
            if !complete(&blob) {
                downloaded = self.fetch(file, metadata, &blob, progress)?;
            }
            link(&blob, &metadata.etag, &place)?;
        }
        if progress(metadata.size).is_break() {
            return Err(self.stopped());
        }
        Ok(downloaded)
    }

    /// Downloads the bytes of a file to `blob`. Continues an interrupted download.
    fn fetch(&self, file: &str, metadata: &Metadata, blob: &Path, progress: &mut Bytes<'_>) -> Result<u64> {
        let mut partial = blob.as_os_str().to_owned();
        partial.push(".incomplete");
        let mut partial = Partial::open(PathBuf::from(partial))?;
        if partial.length > metadata.size {
            partial.truncate(0)?;
        }
        let mut downloaded = 0;
        let mut attempts = Attempts::default();
        // A server without ranges sends the same bytes again, which is no progress.
        let mut furthest = partial.length;
        while partial.length < metadata.size {
            match self.continue_with(&mut partial, file, metadata.size, progress) {
                Ok(bytes) if partial.length > furthest => {
                    downloaded += bytes;
                    furthest = partial.length;
                    attempts = Attempts::default();
                }
                Ok(bytes) => {
                    downloaded += bytes;
                    attempts.failed(Failure::Transient(self.repository.error(format_args!(
                        "{file}: the connection ended after {} of {} bytes",
                        partial.length, metadata.size
                    ))))?;
                }
                Err(failure) => attempts.failed(failure)?,
            }
        }
        self.verify(&partial, file, metadata)?;
        fs::rename(&partial.path, blob).map_err(|error| Error::io(blob, error))?;
        Ok(downloaded)
    }

    /// Appends the bytes of one response. Returns their number, which may be less than what is missing.
    fn continue_with(
        &self,
        partial: &mut Partial,
        file: &str,
        size: u64,
        progress: &mut Bytes<'_>,
    ) -> Result<u64, Failure> {
        let commit = &self.listing.commit;
        let (begin, mut body) = self.client.read(self.repository, commit, file, partial.length)?;
        match begin {
            Some(begin) if begin <= partial.length => partial.truncate(begin)?,
            // The next attempt requests the whole file.
            _ => {
                partial.truncate(0)?;
                return Err(Failure::Transient(self.repository.error(format_args!(
                    "{file}: the hub sends a part that was not asked for"
                ))));
            }
        }
        let mut buffer = vec![0; BUFFER];
        let mut received = 0;
        // A broken connection ends the response. The bytes received so far are kept.
        while let Ok(bytes @ 1..) = body.read(&mut buffer) {
            let fitting = bytes.min(usize::try_from(size - partial.length).unwrap_or(bytes));
            if fitting < bytes {
                return Err(Failure::Final(self.repository.error(format_args!(
                    "{file}: the hub sends more than the {size} bytes that it announced"
                ))));
            }
            partial.append(&buffer[..bytes])?;
            received += bytes as u64;
            if progress(partial.length).is_break() {
                return Err(Failure::Final(self.stopped()));
            }
        }
        Ok(received)
    }

    /// Compares the SHA-256 of a large file with the hub's, and removes the file if they differ.
    fn verify(&self, partial: &Partial, file: &str, metadata: &Metadata) -> Result<()> {
        if metadata.etag.len() != 64 {
            return Ok(());
        }
        let mut content =
            regular_file::open(&partial.path).map_err(|error| Error::io(&partial.path, error))?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; BUFFER];
        loop {
            match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => hash.update(&buffer[..bytes]),
                Err(error) => return Err(Error::io(&partial.path, error)),
            }
        }
        let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if found == metadata.etag.to_ascii_lowercase() {
            return Ok(());
        }
        fs::remove_file(&partial.path).map_err(|error| Error::io(&partial.path, error))?;
        Err(self.repository.error(format_args!(
            "{file}: its SHA-256 is {found}, not {} as the hub says. The file was removed; download it again.",
            metadata.etag
        )))
    }

    /// Writes the commit into the reference of the revision.
    fn refer(&self) -> Result<()> {
        let (revision, commit) = (self.repository.revision(), &self.listing.commit);
        if revision == commit {
            return Ok(());
        }
        let reference = self.folder.join("refs").join(revision);
        let parent = reference.parent().unwrap_or(&self.folder);
        let written = fs::create_dir_all(parent).and_then(|()| {
            let (mut file, _listed) = temporary::file_in(parent, "")?;
            file.write_all(commit.as_bytes())?;
            file.persist(&reference)?;
            Ok(())
        });
        written.map_err(|error| Error::io(&reference, error))
    }
}

/// Returns an error if the path exists but is not a regular file. Opening a FIFO would wait for a reader.
fn check_absent_or_regular(path: &Path) -> io::Result<()> {
    match regular_file::check(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        checked => checked,
    }
}

/// A file that is being downloaded.
struct Partial {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Partial {
    fn open(path: PathBuf) -> Result<Self> {
        let opened = check_absent_or_regular(&path)
            .and_then(|()| OpenOptions::new().create(true).append(true).open(&path));
        let file = opened.map_err(|error| Error::io(&path, error))?;
        let length = file.metadata().map_err(|error| Error::io(&path, error))?.len();
        Ok(Self { path, file, length })
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| Error::io(&self.path, error))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> Result<()> {
        let truncated = self
            .file
            .set_len(length)
            .and_then(|()| self.file.seek(SeekFrom::End(0)));
        self.length = truncated.map_err(|error| Error::io(&self.path, error))?;
        Ok(())
    }
}

/// Number of consecutive failed attempts.
#[derive(Default)]
struct Attempts(u32);

impl Attempts {
    /// Waits before the next attempt, or returns the error if there should be none.
    fn failed(&mut self, failure: Failure) -> Result<()> {
        self.0 += 1;
        match failure {
            Failure::Transient(_) if self.0 < ATTEMPTS => {
                thread::sleep(FIRST_PAUSE * 2_u32.pow(self.0 - 1));
                Ok(())
            }
            failure => Err(failure.into_error()),
        }
    }
}

/// Repeats a request while it fails for a transient reason.
fn patiently<T>(request: impl Fn() -> Result<T, Failure>) -> Result<T> {
    let mut attempts = Attempts::default();
    loop {
        match request() {
            Ok(answer) => return Ok(answer),
            Err(failure) => attempts.failed(failure)?,
        }
    }
}

/// Links `place` in a snapshot to the blob, or copies the blob if the file system has no links.
///
/// Replaces an earlier file atomically, so that other processes always find one.
fn link(blob: &Path, etag: &str, place: &Path) -> Result<()> {
    let folder = place.parent().unwrap_or(Path::new("."));
    let temporary = tempfile::Builder::new().make_in(folder, |path| {
        match symlink(Path::new("..").join("..").join("blobs").join(etag), path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::copy(blob, path).map(drop),
            linked => linked,
        }
    });
    let replaced = temporary.and_then(|link| link.into_temp_path().persist(place).map_err(io::Error::from));
    replaced.map_err(|error| Error::io(place, error))
}
