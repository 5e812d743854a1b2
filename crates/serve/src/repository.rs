//! Models of a server: known models, loaded models and their versions.

mod generators;
mod image_model;
mod model;
mod vision;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Mutex, MutexGuard, RwLock};

pub(super) use self::model::{Model, Texts};
use super::failure::{Failure, Kind};
use super::metrics::{Metrics, Runs};
use super::options::ServerOptions;
use super::protocol::named::NamedProtocol;
use super::protocol::outputs::Outputs;
use super::protocol::tensors::Inputs;
use super::scheduler::{
    Backend, BatchRule, Decoders, Engine, EngineOptions, ExplainerBackend, SessionBackend, TensorBackend,
    TextBackend, Turns,
};
use super::statistics::Statistics;
use hipvit::error::{Error, Result};
use hipvit::model::{InputKind, vision_task};
use hipvit::session::{ResizeOn, Session, SessionBuilder};
use hipvit_explain::Explainer;
use hipvit_generate::makes_texts;

/// Maximum time that a load or unload waits for others.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(120);

/// A model in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Indexed {
    pub(super) name: String,
    /// Loaded version; empty if the model is not loaded.
    pub(super) version: String,
    pub(super) state: &'static str,
    pub(super) reason: String,
}

/// A model that the server knows.
#[derive(Debug, Default)]
struct Entry {
    /// Directory; `None` for the embedded model.
    directory: Option<PathBuf>,
    versions: BTreeMap<u64, Arc<Model>>,
    /// Reason if the last attempt to load it failed.
    failed: Option<String>,
}

/// The models of a server.
pub(super) struct Repository {
    options: ServerOptions,
    decoders: Arc<Decoders>,
    metrics: Arc<Metrics>,
    entries: RwLock<BTreeMap<String, Entry>>,
    /// Held while a model is loaded or unloaded, so that only one is at a time.
    changes: Mutex<()>,
    /// Turns of each instance. All models have an instance on the same devices.
    turns: Vec<Arc<Turns>>,
    no_gpu_logged: AtomicBool,
}

impl Repository {
    /// Loads the models of the start.
    pub(super) fn new(options: &ServerOptions, metrics: Arc<Metrics>) -> Result<Self> {
        let threads = match options.decode_threads {
            0 => num_cpus::get(),
            threads => threads,
        };
        let repository = Self {
            decoders: Arc::new(Decoders::new(threads, options.limits.image)?),
            options: options.clone(),
            metrics,
            entries: RwLock::default(),
            changes: Mutex::default(),
            turns: options.instances.iter().map(|_| Arc::default()).collect(),
            no_gpu_logged: AtomicBool::new(false),
        };
        for source in &options.models {
            let mut entries = repository.entries.write();
            let entry = Entry {
                directory: source.directory.clone(),
                ..Entry::default()
            };
            if entries.insert(source.name.clone(), entry).is_some() {
                let reason = format!(
                    "two models are called `{}`. Name each with --model NAME=DIR",
                    source.name
                );
                return Err(Error::argument("model", reason));
            }
        }
        let mut wanted: Vec<String> = options.models.iter().map(|source| source.name.clone()).collect();
        repository.scan()?;
        if options.load_repository {
            let entries = repository.entries.read();
            let found = entries.keys().filter(|name| !wanted.contains(name));
            let found: Vec<String> = found.cloned().collect();
            wanted.extend(found);
        }
        for name in wanted {
            repository.load_now(&name)?;
        }
        Ok(repository)
    }

    /// Finds the models of the repository's directory. Names come from its listing, never from a request.
    fn scan(&self) -> Result<()> {
        let Some(repository) = &self.options.repository else {
            return Ok(());
        };
        let io = |source| Error::io(repository, source);
        let mut found = BTreeMap::new();
        for file in fs::read_dir(repository).map_err(io)? {
            let file = file.map_err(io)?;
            if let Ok(name) = file.file_name().into_string()
                && !name.starts_with('.')
                && is_model(&file.path())
            {
                found.insert(name, file.path());
            }
        }
        let mut entries = self.entries.write();
        let given = |name: &String| self.options.models.iter().any(|source| source.name == *name);
        // A model that was removed from the directory stays in the index while it is loaded.
        entries.retain(|name, entry| given(name) || found.contains_key(name) || !entry.versions.is_empty());
        for (name, path) in found {
            entries.entry(name).or_insert_with(|| Entry {
                directory: Some(path),
                ..Entry::default()
            });
        }
        Ok(())
    }

    /// Returns the loaded version of a model, the latest if `version` is empty.
    pub(super) fn find(&self, name: &str, version: &str) -> Result<Arc<Model>, Failure> {
        let entries = self.entries.read();
        let not_found = |reason: String| Failure::new(Kind::NotFound, reason);
        let Some(entry) = entries.get(name) else {
            return Err(not_found(no_model(name, &entries)));
        };
        let model = match version {
            "" => entry.versions.values().next_back(),
            version => version
                .parse()
                .ok()
                .and_then(|version: u64| entry.versions.get(&version)),
        };
        model.cloned().ok_or_else(|| {
            not_found(match (entry.versions.is_empty(), &entry.failed) {
                (true, Some(reason)) => format!("model `{name}` is not loaded: {reason}"),
                (true, None) => format!("model `{name}` is not loaded"),
                (false, _) => format!("model `{name}` has no version `{version}`"),
            })
        })
    }

    /// Returns true if a model has this name, loaded or not.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.entries.read().contains_key(name)
    }

    /// Returns the loaded versions of a model.
    pub(super) fn versions(&self, name: &str) -> Vec<u64> {
        let entries = self.entries.read();
        entries
            .get(name)
            .map(|entry| entry.versions.keys().copied().collect())
            .unwrap_or_default()
    }

    /// Returns every loaded version of every model.
    pub(super) fn loaded(&self) -> Vec<Arc<Model>> {
        let entries = self.entries.read();
        entries
            .values()
            .flat_map(|entry| entry.versions.values().cloned())
            .collect()
    }

    /// Returns all models, loaded or not.
    pub(super) fn index(&self) -> Result<Vec<Indexed>, Failure> {
        self.scan().map_err(|error| {
            tracing::warn!(%error, "the repository cannot be read");
            Failure::of_model(&error)
        })?;
        let entries = self.entries.read();
        let mut index = Vec::new();
        for (name, entry) in entries.iter() {
            let indexed = |version: String, state, reason: String| Indexed {
                name: name.clone(),
                version,
                state,
                reason,
            };
            if entry.versions.is_empty() {
                let reason = entry.failed.clone().unwrap_or_else(|| "unloaded".into());
                index.push(indexed(String::new(), "UNAVAILABLE", reason));
            }
            for (version, model) in &entry.versions {
                index.push(match model.fault() {
                    None => indexed(version.to_string(), "READY", String::new()),
                    Some(reason) => indexed(version.to_string(), "UNAVAILABLE", reason),
                });
            }
        }
        Ok(index)
    }

    /// Loads or reloads a model of the index. If that fails, loaded versions stay.
    pub(super) fn load(&self, name: &str) -> Result<(), Failure> {
        self.scan().map_err(|error| {
            tracing::warn!(%error, "the repository cannot be read");
            Failure::of_model(&error)
        })?;
        {
            let entries = self.entries.read();
            if !entries.contains_key(name) {
                return Err(Failure::new(Kind::NotFound, no_model(name, &entries)));
            }
        }
        let _change = self.change(name)?;
        let loaded = self.load_now(name);
        loaded.map_err(|error| {
            tracing::warn!(model = name, %error, "cannot be loaded");
            let entries = self.entries.read();
            let directory = entries.get(name).and_then(|entry| entry.directory.as_deref());
            let error = self.public(&error, directory);
            Failure::invalid(format!("model `{name}` cannot be loaded: {error}"))
        })
    }

    /// Returns the reason why a model in `directory` cannot be loaded, without absolute paths for clients.
    fn public(&self, error: &Error, directory: Option<&Path>) -> String {
        let repository = self.options.repository.as_deref();
        let repository =
            repository.filter(|root| directory.is_none_or(|directory| directory.starts_with(root)));
        Failure::without_paths(error, repository.or_else(|| directory?.parent()))
    }

    /// Waits until no other model is being loaded or unloaded.
    fn change(&self, name: &str) -> Result<MutexGuard<'_, ()>, Failure> {
        self.changes.try_lock_for(CHANGE_TIMEOUT).ok_or_else(|| {
            let reason = format!(
                "model `{name}` cannot be changed while another model is being loaded or unloaded. Try again later"
            );
            Failure::new(Kind::Unavailable, reason)
        })
    }

    /// Unloads all versions of a model after the requests in flight have ended.
    pub(super) fn unload(&self, name: &str) -> Result<(), Failure> {
        let _change = self.change(name)?;
        let versions = {
            let mut entries = self.entries.write();
            if !entries.contains_key(name) {
                return Err(Failure::new(Kind::NotFound, no_model(name, &entries)));
            }
            let entry = entries.entry(name.to_owned()).or_default();
            entry.failed = None;
            std::mem::take(&mut entry.versions)
        };
        self.end(name, versions);
        tracing::info!(model = name, "unloaded");
        Ok(())
    }

    /// Ends unloaded models after their requests in flight have ended. Does not wait for a thread that hangs.
    fn end(&self, name: &str, versions: BTreeMap<u64, Arc<Model>>) {
        // A year is practically no limit, and does not overflow.
        let deadline = Instant::now() + self.options.drain_timeout.min(Duration::from_secs(365 * 86400));
        versions.values().for_each(|model| model.close());
        let ended = versions.values().all(|model| model.join(deadline));
        if !ended {
            tracing::warn!(
                model = name,
                "a batch of an unloaded model does not end: its memory stays in use"
            );
            // Freeing memory of a device that hangs may hang, too. If there is no thread, free it here.
            let _ = thread::Builder::new().spawn(move || drop(versions));
        }
    }

    /// Ends every model after the requests in flight have ended. Returns false if something still runs at
    /// `deadline`.
    pub(super) fn close(&self, deadline: Instant) -> bool {
        // Close first, so that the threads have ended when a long load has used up the time.
        self.loaded().iter().for_each(|model| model.close());
        let changes = self.changes.try_lock_until(deadline);
        // Includes models that were loaded in the meantime.
        let loaded = self.loaded();
        loaded.iter().for_each(|model| model.close());
        let ended = loaded.iter().all(|model| model.join(deadline));
        ended && changes.is_some()
    }

    /// Loads a model. The caller holds `changes` or has exclusive access to the repository.
    fn load_now(&self, name: &str) -> Result<()> {
        let (directory, versions) = match self.entries.read().get(name) {
            Some(entry) => (entry.directory.clone(), entry.versions.clone()),
            None => return Ok(()),
        };
        let engines = versions.values().flat_map(|model| model.engines());
        engines.for_each(Engine::release_lost);
        drop(versions);
        let loaded = self.load_versions(name, directory.as_deref());
        let (before, result) = {
            let mut entries = self.entries.write();
            let Some(entry) = entries.get_mut(name) else {
                return Ok(());
            };
            match loaded {
                Ok(versions) => {
                    entry.failed = None;
                    (std::mem::replace(&mut entry.versions, versions), Ok(()))
                }
                Err(error) => {
                    entry.failed = Some(self.public(&error, directory.as_deref()));
                    (BTreeMap::new(), Err(error))
                }
            }
        };
        self.end(name, before);
        result
    }

    fn load_versions(&self, name: &str, directory: Option<&Path>) -> Result<BTreeMap<u64, Arc<Model>>> {
        let versions = match directory {
            None => vec![(1, None)],
            Some(directory) => versions(directory)?,
        };
        let mut loaded = BTreeMap::new();
        for (version, directory) in versions {
            let model = self.load_version(name, version, directory.as_deref())?;
            loaded.insert(version, Arc::new(model));
        }
        Ok(loaded)
    }

    fn load_version(&self, name: &str, version: u64, directory: Option<&Path>) -> Result<Model> {
        let options = &self.options;
        if let Some(directory) = directory.filter(|directory| options.texts && makes_texts(directory)) {
            return self.load_generator(name, version, directory);
        }
        if let Some(directory) = directory
            && let Some(task) = vision_task(directory)
            && let Some(model) = self.load_vision(name, version, directory, task)?
        {
            return Ok(model);
        }
        let statistics: Arc<Statistics> = Arc::default();
        let (mut sessions, mut engines) = (Vec::new(), Vec::new());
        let kinds = if options.pixel_values {
            &[false, true][..]
        } else {
            &[false]
        };
        for &values in kinds {
            let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
            for (builder, turns) in options.instances.iter().zip(&self.turns) {
                let mut builder = builder.clone().batch(options.max_batch).tokens(options.tokens);
                if values {
                    builder = builder.input(InputKind::PixelValues).resize(ResizeOn::Host);
                }
                let session = load_session(&builder, directory)?;
                self.log_session(name, &session);
                if let Some(reason) = session.hip_graphs().and_then(|runs| runs.no_direct) {
                    tracing::warn!(
                        model = name,
                        reason,
                        "the GPUs sum by RCCL, which may round differently, because peer memory failed"
                    );
                }
                let backend: Arc<dyn Backend> = if session.check_takes_images().is_ok() {
                    let backend = SessionBackend::new(session.clone(), values, turns.clone());
                    backend.warm_up()?;
                    Arc::new(backend)
                } else {
                    let backend = TensorBackend(session.clone());
                    backend.check()?;
                    Arc::new(backend)
                };
                sessions.push(session);
                backends.push(backend);
            }
            engines.push(self.batched(name, backends, Runs::Images, &statistics)?);
        }
        let mut engines = engines.into_iter();
        let (Some(session), Some(images)) = (sessions.first(), engines.next()) else {
            return Err(Error::argument("instances", "there must be at least one"));
        };
        let explanations = if options.explanation {
            Some(self.explanations(name, session, &statistics)?)
        } else {
            None
        };
        // The sessions of the images come first, one for each instance.
        let of_images = &sessions[..options.instances.len()];
        let (texts, no_texts) = self.texts(name, of_images, &statistics)?;
        let (platform, inputs, outputs) = facts(session, options, no_texts)?;
        log_loaded(name, version, session, &images);
        Ok(Model {
            name: name.to_owned(),
            version,
            platform,
            inputs,
            outputs,
            named: session.check_takes_images().is_err().then(|| NamedProtocol {
                inputs: session.tensor_inputs(),
                outputs: session.tensor_outputs(),
            }),
            vision: None,
            generation: None,
            loaded: SystemTime::now(),
            statistics,
            images,
            values: engines.next(),
            explanations,
            texts,
        })
    }

    /// Starts an engine that runs batches of the configured size.
    fn batched(
        &self,
        name: &str,
        backends: Vec<Arc<dyn Backend>>,
        runs: Runs,
        statistics: &Arc<Statistics>,
    ) -> Result<Engine> {
        let options = EngineOptions {
            batch: BatchRule {
                max_batch: self.options.max_batch,
                max_delay: self.options.max_delay,
            },
            capacity: self.options.queue,
            backlog: self.options.backlog.saturating_mul(self.options.max_batch),
            stall: self.options.limits.request_time,
        };
        let metrics = self.metrics.engine(name, runs, statistics.clone());
        Engine::start(name, backends, options, self.decoders.clone(), metrics)
    }

    /// Loads the text tower of each session, or returns the reason why the model takes no texts.
    fn texts(
        &self,
        name: &str,
        sessions: &[Session],
        statistics: &Arc<Statistics>,
    ) -> Result<(Option<Texts>, Option<String>)> {
        let Some(session) = sessions.first() else {
            return Ok((None, None));
        };
        let Some(info) = &session.info().text else {
            let reason = "the model takes no texts: it has no text tower";
            return Ok((None, Some(reason.into())));
        };
        if !self.options.texts {
            let reason = "the server was started with --no-texts";
            return Ok((None, Some(reason.into())));
        }
        let (context, similarity) = (info.context, session.text_tower()?.similarity());
        let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
        for session in sessions {
            match TextBackend::new(session) {
                Ok(backend) => backends.push(Arc::new(backend)),
                // Without a tokenizer, only images are served.
                Err(error @ (Error::Config { .. } | Error::Hub { .. } | Error::Io { .. })) => {
                    tracing::warn!(model = name, %error, "the model is served without texts");
                    let error = Failure::without_paths(&error, None);
                    return Ok((None, Some(format!("the model takes no texts: {error}"))));
                }
                Err(error) => return Err(error),
            }
        }
        let texts = Texts {
            engine: self.batched(name, backends, Runs::Texts, statistics)?,
            similarity,
            context,
        };
        Ok((Some(texts), None))
    }

    /// Logs what a user should know of a loaded session.
    fn log_session(&self, name: &str, session: &Session) {
        for tensor in session.non_finite_weights() {
            tracing::warn!(model = name, %tensor, "some weights are NaN or infinite");
        }
        if let Some(error) = session.no_gpu() {
            self.log_no_gpu(&error.brief());
        }
    }

    /// Logs once why the server runs on the CPU.
    fn log_no_gpu(&self, reason: &str) {
        if !self.no_gpu_logged.swap(true, Ordering::Relaxed) {
            tracing::info!("no GPU ({reason}); runs on the CPU");
        }
    }

    /// Starts the engine that explains a model's results, one image after the other.
    fn explanations(&self, name: &str, session: &Session, statistics: &Arc<Statistics>) -> Result<Engine> {
        let options = EngineOptions {
            batch: BatchRule {
                max_batch: 1,
                max_delay: Duration::ZERO,
            },
            capacity: self.options.queue,
            backlog: self.options.backlog,
            stall: self.options.limits.request_time,
        };
        Engine::start(
            name,
            vec![Arc::new(ExplainerBackend(Explainer::new(session)?))],
            options,
            self.decoders.clone(),
            self.metrics.engine(name, Runs::Explanations, statistics.clone()),
        )
    }
}

/// Maximum number of models that an error lists.
const MAX_LISTED_MODELS: usize = 10;

/// Maximum number of characters of a name that an error repeats.
const MAX_REPEATED_CHARS: usize = 100;

/// Returns the message for an unknown model, with the known ones.
fn no_model(name: &str, entries: &BTreeMap<String, Entry>) -> String {
    let shown: String = name.chars().take(MAX_REPEATED_CHARS).collect();
    let mut names: Vec<String> = entries
        .keys()
        .take(MAX_LISTED_MODELS)
        .map(|name| format!("`{name}`"))
        .collect();
    if entries.len() > MAX_LISTED_MODELS {
        names.push(format!("and {} more", entries.len() - MAX_LISTED_MODELS));
    }
    if names.is_empty() {
        format!("there is no model `{shown}`; the server has no model")
    } else {
        format!("there is no model `{shown}`; the server has {}", names.join(", "))
    }
}

fn load_session(builder: &SessionBuilder, directory: Option<&Path>) -> Result<Session> {
    match directory {
        Some(directory) => builder.load(directory),
        None => builder.tinyvit32(),
    }
}

fn log_loaded(name: &str, version: u64, session: &Session, images: &Engine) {
    let devices: Vec<&str> = images.instances().map(|(device, _)| device).collect();
    tracing::info!(model = name, version, devices = devices.join(","), dtype = %session.dtype(), "loaded");
}

/// Returns the protocol's description of a model.
fn facts(
    session: &Session,
    options: &ServerOptions,
    no_texts: Option<String>,
) -> Result<(String, Inputs, Outputs)> {
    let info = session.info();
    // Empty results give the widths of the outputs.
    let empty = session.no_outputs()?;
    let texts = no_texts.is_none();
    let inputs = Inputs {
        image_size: info.image_size,
        values: options.pixel_values,
        max_pixels: options.limits.image.max_pixels,
        max_images: options.queue,
        no_texts,
    };
    let outputs = Outputs {
        classes: empty.logits().map(ndarray::Array2::ncols),
        embedding: empty.embeddings().ncols(),
        texts,
        patch_tokens: empty.tokens().map(|tokens| [tokens.dim().1, tokens.dim().2]),
        explanation: options.explanation.then_some(info.image_size),
    };
    Ok((format!("hipvit_{}", info.library), inputs, outputs))
}

/// Returns true if a directory looks like a model's. Other directories of a repository are ignored.
fn is_model(directory: &Path) -> bool {
    let has_config = |directory: &Path| directory.join("config.json").is_file();
    let versions = || versions(directory).unwrap_or_default().into_iter();
    has_config(directory)
        || versions().any(|(_, version)| version.is_some_and(|version| has_config(&version)))
}

/// Returns the versions in a model's directory: its numbered subdirectories, or the directory itself as
/// version 1.
fn versions(directory: &Path) -> Result<Vec<(u64, Option<PathBuf>)>> {
    let itself = vec![(1, Some(directory.to_owned()))];
    if !directory.is_dir() || directory.join("config.json").exists() {
        return Ok(itself);
    }
    let io = |source| Error::io(directory, source);
    let mut versions = Vec::new();
    for file in fs::read_dir(directory).map_err(io)? {
        let file = file.map_err(io)?;
        let version = file.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(version) = version
            && file.path().is_dir()
        {
            versions.push((version, Some(file.path())));
        }
    }
    if versions.is_empty() {
        // Loading reports what is missing.
        Ok(itself)
    } else {
        Ok(versions)
    }
}
