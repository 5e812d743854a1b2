//! Operations of both protocols: inference, metadata, readiness, the repository, metrics.

mod generation;
mod record;
mod tensors;
mod vision;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ndarray::Array2;
use parking_lot::Mutex;

pub(super) use self::generation::{Chat, ChatContent};
use self::record::Record;
use super::access_log::{AccessLogger, Note};
use super::blocking::at_length;
use super::client::Client;
use super::failure::{Failure, Kind};
use super::limits::BodyMemory;
use super::memory::Charge;
use super::metrics::Metrics;
use super::options::ServerOptions;
use super::priority::Priority;
use super::protocol::outputs::{Results, Rows, Selected};
use super::protocol::parameters::{GENERATION, Parameters, VISION};
use super::protocol::tensors::{Given, Images, MAX_TEXT_BYTES, Sent, TEXT, decoded_size};
use super::protocol::{InferRequest, InferResponse, OutputTensor};
use super::repository::{Indexed, Model, Repository};
use super::scheduler::{Content, ImageResult, Pending, Terms};
use super::statistics::Parts;
use super::traces::{Trace, Traces};
use hipvit::error::Result;
use hipvit::hip::Monitor;
use hipvit::image::decode_memory;
use hipvit::session::Device;
use hipvit::zero_shot::{Classifier, PLACE, Prompts};

/// A year: later than any request waits.
const NEVER: Duration = Duration::from_secs(365 * 86400);

/// Number of images times texts above which a comparison would block other connections.
const LONG_COMPARISON: usize = 1 << 12;

/// Origin and limits of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub(super) protocol: &'static str,
    /// Time limit of the transport, if any.
    pub(super) limit: Option<Duration>,
    /// Client of the request, which has a share of the decoders.
    pub(super) client: Option<Client>,
    pub(super) trace: Trace,
    /// Facts of the request for the access log.
    pub(super) note: Note,
    /// Memory of the request.
    pub(super) memory: Charge,
    /// Memory of the answer.
    pub(super) answer: Charge,
    /// Number of copies of its outputs that the answer needs while it is created.
    pub(super) copies: usize,
}

impl Call {
    /// Returns the terms on which the images of this call are run.
    fn terms(&self, deadline: Instant, record: &Record) -> Terms {
        Terms {
            priority: record.priority,
            deadline,
            client: self.client,
            trace: record.trace.clone(),
            memory: self.memory.clone(),
        }
    }
}

/// The server behind its protocols.
pub(super) struct Service {
    pub(super) options: ServerOptions,
    pub(super) metrics: Arc<Metrics>,
    pub(super) bodies: BodyMemory,
    pub(super) traces: Traces,
    pub(super) access_log: Option<AccessLogger>,
    repository: Repository,
    draining: AtomicBool,
    sensors: Mutex<Sensors>,
    /// Held while the metrics are encoded.
    pub(super) metrics_turn: tokio::sync::Mutex<()>,
}

/// Sensors of the GPUs by device, and their energy at the first reading.
#[derive(Default)]
struct Sensors(Vec<(String, Option<Monitor>, Option<f64>)>);

impl Service {
    /// Loads the models.
    pub(super) fn new(options: ServerOptions, traces: Traces) -> Result<Self> {
        let metrics = Metrics::new();
        metrics.set_limits(&options.limits);
        let access_log = options.access_log.map(|form| AccessLogger::start(form, &metrics));
        let service = Self {
            access_log: access_log.transpose()?,
            repository: Repository::new(&options, metrics.clone())?,
            bodies: BodyMemory::new(options.limits, metrics.clone()),
            metrics,
            traces,
            options,
            draining: AtomicBool::new(false),
            sensors: Mutex::default(),
            metrics_turn: tokio::sync::Mutex::default(),
        };
        // Energy counts from the start.
        service.read_sensors();
        Ok(service)
    }

    /// Returns the bytes that requests, answers and images use.
    pub(super) fn memory_in_use(&self) -> u64 {
        self.bodies.account().used() as u64 + decode_memory()
    }

    /// Begins to record a request.
    fn record(&self, call: &Call) -> Record {
        Record {
            metrics: self.metrics.clone(),
            model: None,
            protocol: call.protocol,
            priority: Priority::Interactive,
            begin: Instant::now(),
            parts: Parts::default(),
            failed: None,
            ended: false,
            trace: call.trace.clone(),
        }
    }

    /// Runs a request.
    pub(super) async fn infer(&self, call: Call, request: InferRequest) -> Result<InferResponse, Failure> {
        let mut record = self.record(&call);
        call.note.request_id(&request.id);
        let result = self.infer_recorded(call, request, &mut record).await;
        record.end(result.as_ref().err());
        result
    }

    /// Records the model of a request. Returns it with the request's deadline.
    fn begin(
        &self,
        call: &Call,
        name: &str,
        version: &str,
        parameters: &Parameters,
        record: &mut Record,
    ) -> Result<(Arc<Model>, Instant), Failure> {
        let model = self.repository.find(name, version)?;
        record.model = Some(model.clone());
        call.note.model(&model.name);
        let priority = parameters.priority()?;
        record.priority = priority;
        record.trace.describe("hipvit.model", model.name.clone());
        record.trace.describe("hipvit.version", model.version as i64);
        record.trace.describe("hipvit.priority", priority.label());
        let limits = [
            parameters.timeout()?,
            call.limit,
            Some(self.options.limits.request_time),
        ];
        let time = limits.into_iter().flatten().min().unwrap_or(Duration::MAX);
        parameters.check_request()?;
        // A deadline that overflows becomes one that is never reached.
        let deadline = record.begin.checked_add(time).unwrap_or(record.begin + NEVER);
        Ok((model, deadline))
    }

    async fn infer_recorded(
        &self,
        call: Call,
        request: InferRequest,
        record: &mut Record,
    ) -> Result<InferResponse, Failure> {
        let parameters = &request.parameters;
        let (model, deadline) = self.begin(&call, &request.model, &request.version, parameters, record)?;
        if let Some(protocol) = &model.generation {
            return self
                .infer_texts(call, request, (&model, protocol), deadline, record)
                .await;
        }
        if let Some(protocol) = &model.vision {
            return self
                .infer_vision(call, request, (&model, protocol), deadline, record)
                .await;
        }
        parameters.only_for(&GENERATION, "models that make texts of images")?;
        parameters.only_for(&VISION, "models that find objects or masks")?;
        if let Some(named) = &model.named {
            return self
                .infer_tensors(call, request, (&model, named), deadline, record)
                .await;
        }
        let given = Given::of(&request.inputs);
        let selected = model.outputs.select(&request.outputs, parameters, given)?;
        let size = decoded_size(&request.inputs);
        call.memory.grow(size)?;
        let Sent { images, texts } = at_length(size, || model.inputs.read(request.inputs))?;
        let terms = call.terms(deadline, record);
        let count = images.as_ref().map_or(0, |images| images.contents.len());
        record.trace.describe("hipvit.images", count as i64);
        call.note.images(count);
        let texts = match texts {
            Some(texts) => {
                let queue = self.options.queue;
                Some(TextJob::new(&model, texts, parameters, given.images, queue)?)
            }
            None => {
                refuse_templates(parameters)?;
                None
            }
        };
        let rows = Rows {
            images: count,
            texts: texts.as_ref().map_or(0, |job| job.texts.len()),
            labels: texts
                .as_ref()
                .and_then(|job| job.prompts.as_ref())
                .map(Prompts::labels),
        };
        let size = model
            .outputs
            .check_size(&selected, rows, self.bodies.account().share())?;
        let size = size.saturating_mul(call.copies.max(1));
        call.answer
            .grow(size.saturating_add(model.outputs.results_size(rows)))?;
        let embedding = texts.as_ref().map(|job| job.submit(&model, &terms)).transpose()?;
        let (running, explaining) = submit_images(&model, images, &selected, &terms)?;
        let (mut results, mut explained, mut embedded) = (Vec::new(), Vec::new(), Vec::new());
        // The first failure drops the others, which are then not run.
        if let Some(pending) = running {
            results = pending.wait().await?;
        }
        if let Some(pending) = explaining {
            explained = pending.wait().await?;
        }
        if let Some(pending) = embedding {
            embedded = pending.wait().await?;
        }
        let begin = Instant::now();
        let all = results.iter().chain(&explained).chain(&embedded);
        record.parts = all.fold(Parts::default(), |parts, result| parts.longest(result.parts));
        let write = || {
            let classifier = match &texts {
                Some(job) => job.check(&model, &embedded)?,
                None => None,
            };
            let results = Results {
                images: &results,
                explained: &explained,
                texts: &embedded,
                classifier: classifier.as_ref(),
                has_templates: texts.as_ref().is_some_and(|job| job.has_templates),
            };
            Ok(model.outputs.write(&selected, results))
        };
        let outputs = if results.len() * embedded.len() > LONG_COMPARISON {
            tokio::task::block_in_place(write)?
        } else {
            write()?
        };
        record.parts.output += begin.elapsed();
        let tokens = embedded.iter().filter_map(ImageResult::text);
        let truncated = tokens.clone().enumerate().filter(|(_, text)| text.truncated);
        Ok(InferResponse {
            truncated: truncated.map(|(index, _)| index).collect(),
            text_tokens: tokens.map(|text| text.tokens).sum(),
            ..response(&model, outputs, request.id)
        })
    }

    /// Counts a request that was refused before it was run. `model` is empty if the request names no model of the server.
    pub(super) fn refused(&self, call: &Call, model: &str, failure: &Failure) {
        call.trace.fail(failure);
        let labels = (model, call.protocol);
        self.metrics.request(
            labels,
            Priority::Interactive,
            Some(failure.kind()),
            Duration::ZERO,
        );
    }

    /// Returns a loaded model.
    pub(super) fn model(&self, name: &str, version: &str) -> Result<Arc<Model>, Failure> {
        self.repository.find(name, version)
    }

    /// Returns the loaded versions of a model.
    pub(super) fn versions(&self, name: &str) -> Vec<String> {
        let versions = self.repository.versions(name);
        versions.iter().map(u64::to_string).collect()
    }

    /// Returns true if the repository has a model of this name, loaded or not.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.repository.knows(name)
    }

    /// Returns the models for a request of statistics: all versions if `version` is empty, and all models if
    /// `name` is empty.
    pub(super) fn with_statistics(&self, name: &str, version: &str) -> Result<Vec<Arc<Model>>, Failure> {
        if !version.is_empty() {
            return Ok(vec![self.model(name, version)?]);
        }
        if !name.is_empty() {
            self.model(name, "")?;
        }
        let mut models = self.loaded();
        models.retain(|model| name.is_empty() || model.name == name);
        Ok(models)
    }

    /// Returns every loaded version of every model.
    pub(super) fn loaded(&self) -> Vec<Arc<Model>> {
        self.repository.loaded()
    }

    /// Returns true if the server is stopping.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Returns true if every loaded model can run requests and the server is not stopping.
    pub(super) fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Acquire)
            && self.repository.loaded().iter().all(|model| model.is_ready())
    }

    /// Returns true if one model can run requests.
    pub(super) fn is_model_ready(&self, name: &str, version: &str) -> Result<bool, Failure> {
        let model = self.repository.find(name, version)?;
        Ok(model.is_ready() && !self.draining.load(Ordering::Acquire))
    }

    /// Makes the server report that it is not ready.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Ends the models. Returns false if one of their threads still runs at `deadline`.
    pub(super) fn close(&self, deadline: Instant) -> bool {
        self.repository.close(deadline)
    }

    pub(super) fn index(&self, ready: bool) -> Result<Vec<Indexed>, Failure> {
        let mut index = self.repository.index()?;
        index.retain(|model| !ready || model.state == "READY");
        Ok(index)
    }

    pub(super) fn load(&self, name: &str) -> Result<(), Failure> {
        self.control()?;
        self.repository.load(name)
    }

    pub(super) fn unload(&self, name: &str) -> Result<(), Failure> {
        self.control()?;
        self.repository.unload(name)
    }

    fn control(&self) -> Result<(), Failure> {
        if self.options.model_control {
            Ok(())
        } else {
            Err(Failure::new(
                Kind::Unsupported,
                "models cannot be loaded or unloaded: the server was not started with --model-control",
            ))
        }
    }

    /// Returns the metrics as text, after updating the gauges that are read on demand.
    pub(super) fn encode_metrics(&self) -> String {
        let metrics = &self.metrics;
        metrics.forget_gauges();
        let loaded = self.repository.loaded();
        let mut queued = BTreeMap::new();
        let mut instances = BTreeMap::new();
        for model in &loaded {
            let mut working: BTreeMap<&str, usize> = BTreeMap::new();
            for engine in model.engines() {
                for priority in Priority::ALL {
                    *queued.entry((&model.name, priority as usize)).or_insert(0) += engine.admitted(priority);
                }
                let mut by_device: BTreeMap<&str, usize> = BTreeMap::new();
                for (device, alive) in engine.instances() {
                    *by_device.entry(device).or_default() += usize::from(alive);
                }
                // An instance works if each of its engines does.
                for (device, alive) in by_device {
                    let least = working.entry(device).or_insert(alive);
                    *least = alive.min(*least);
                }
            }
            for (device, alive) in working {
                *instances.entry((&model.name, device)).or_insert(0) += alive;
            }
        }
        for ((model, priority), images) in queued {
            metrics.set_queued(model, Priority::ALL[priority], images);
        }
        for ((model, device), alive) in instances {
            metrics.set_instances(model, device, alive);
        }
        let mut caches: BTreeMap<(&str, &str), [usize; 2]> = BTreeMap::new();
        for model in &loaded {
            for (device, pages) in model.engines().flat_map(super::scheduler::Engine::caches) {
                let sum = caches.entry((&model.name, device)).or_default();
                sum.iter_mut().zip(pages).for_each(|(sum, pages)| *sum += pages);
            }
        }
        for ((model, device), pages) in caches {
            metrics.set_cache(model, device, pages);
        }
        metrics.ready.set(i64::from(self.is_ready()));
        self.read_sensors();
        metrics.encode()
    }

    fn read_sensors(&self) {
        let mut sensors = self.sensors.lock();
        for model in self.repository.loaded() {
            for gpu in model.engines().flat_map(super::scheduler::Engine::gpus) {
                let device = Device::Hip(gpu.ordinal()).to_string();
                if !sensors.0.iter().any(|(known, ..)| *known == device) {
                    let monitor = Monitor::new(&gpu).ok();
                    let energy = monitor.as_ref().and_then(|monitor| monitor.energy().ok());
                    sensors.0.push((device, monitor, energy));
                }
            }
        }
        for (device, monitor, energy) in &sensors.0 {
            if let Some(monitor) = monitor {
                self.metrics.read_gpu(device, monitor, *energy);
            }
        }
    }
}

/// Refuses parameters to load or unload a model that Triton supports and this server does not.
pub(super) fn check_load<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), Failure> {
    let refused = |name: &&str| *name == "config" || name.starts_with("file:");
    match names.into_iter().find(refused) {
        Some(name) => {
            let shown: String = name.chars().take(100).collect();
            let reason = format!(
                "parameter `{shown}`: a model is loaded from its directory as it is. Change the files there, and the options of the server"
            );
            Err(Failure::new(Kind::Unsupported, reason))
        }
        None => Ok(()),
    }
}

/// Returns the response of a model without texts in the request or the result.
fn response(model: &Model, outputs: Vec<OutputTensor>, id: String) -> InferResponse {
    InferResponse {
        outputs,
        truncated: Vec::new(),
        text_tokens: 0,
        model: model.name.clone(),
        version: model.version.to_string(),
        id,
    }
}

/// Refuses templates in a request without labels.
fn refuse_templates(parameters: &Parameters) -> Result<(), Failure> {
    match parameters.text("template")? {
        Some(templates) if !templates.is_empty() => Err(Failure::invalid(
            "parameter `template` is for requests with images and texts. Write the texts in full",
        )),
        _ => Ok(()),
    }
}

/// Texts of a request.
struct TextJob {
    /// Texts to embed, with the templates applied.
    texts: Vec<String>,
    /// Labels, for a request with images.
    prompts: Option<Prompts>,
    has_templates: bool,
    /// True to truncate a text that is longer than the context.
    truncate: bool,
}

impl TextJob {
    fn new(
        model: &Model,
        texts: Vec<String>,
        parameters: &Parameters,
        with_images: bool,
        queue: usize,
    ) -> Result<Self, Failure> {
        let truncate = parameters.boolean("truncate")?.unwrap_or(true);
        if !with_images {
            refuse_templates(parameters)?;
            return Ok(Self {
                texts,
                prompts: None,
                has_templates: false,
                truncate,
            });
        }
        let templates: Vec<String> = match parameters.text("template")? {
            Some(text) => text.lines().map(str::to_owned).collect(),
            None => Vec::new(),
        };
        if model.outputs.classes.is_some() {
            let reason = "the model has a classification head: send images or texts, not both";
            return Err(Failure::input(TEXT, reason));
        }
        let all = texts.len().saturating_mul(templates.len().max(1));
        if all > queue {
            let reason = format!(
                "texts times templates are {all}, which exceeds the queue of {queue}. Send fewer at once"
            );
            return Err(Failure::input(TEXT, reason));
        }
        check_filled(&templates, &texts)?;
        let prompts = Prompts::new(texts, &templates).map_err(|error| Failure::input(TEXT, error))?;
        Ok(Self {
            texts: prompts.texts().to_vec(),
            prompts: Some(prompts),
            has_templates: !templates.is_empty(),
            truncate,
        })
    }

    fn submit(&self, model: &Model, terms: &Terms) -> Result<Pending, Failure> {
        let Some(tower) = model.texts() else {
            return Err(Failure::input(TEXT, "the model takes no texts"));
        };
        let texts = self.texts.iter();
        let texts = texts.map(|text| (TEXT, Content::Text(text.clone())));
        tower.engine.submit(texts.collect(), terms.clone())
    }

    /// Checks the embeddings. Returns the classifier that they form if there are images.
    fn check(&self, model: &Model, embedded: &[ImageResult]) -> Result<Option<Classifier>, Failure> {
        let results: Vec<_> = embedded.iter().filter_map(ImageResult::text).collect();
        if !self.truncate
            && let Some(long) = results.iter().position(|text| text.truncated)
        {
            let context = model.texts().map_or(0, |tower| tower.context);
            let reason =
                format!("text {long} is longer than the model's {context} tokens, and `truncate` is false");
            return Err(Failure::input(TEXT, reason));
        }
        let is_wrong = |value: &f32| !value.is_finite();
        if let Some(wrong) = results
            .iter()
            .position(|text| text.embedding.iter().any(is_wrong))
        {
            let reason = format!("input `{TEXT}`: the embedding of text {wrong} is NaN or infinite");
            return Err(Failure::new(Kind::Internal, reason));
        }
        let (Some(prompts), Some(tower), Some(first)) = (&self.prompts, model.texts(), results.first())
        else {
            return Ok(None);
        };
        if first.embedding.len() != model.outputs.embedding {
            let reason =
                "the embeddings of texts and of images have different widths: they cannot be compared";
            return Err(Failure::new(Kind::Internal, reason));
        }
        let values = results.iter().flat_map(|text| text.embedding.iter().copied());
        let shape = (results.len(), first.embedding.len());
        let embeddings = Array2::from_shape_vec(shape, values.collect());
        let embeddings = embeddings.map_err(|error| Failure::new(Kind::Internal, error.to_string()))?;
        Ok(Some(Classifier::new(
            prompts,
            embeddings.view(),
            tower.similarity,
        )))
    }
}

/// Refuses templates that lead to a text that is too long: each `{}` of a template repeats the label.
fn check_filled(templates: &[String], labels: &[String]) -> Result<(), Failure> {
    let longest = labels.iter().map(String::len).max().unwrap_or(0);
    let filled = |template: &String| {
        let places = template.matches(PLACE).count();
        template.len().saturating_add(places.saturating_mul(longest))
    };
    match templates
        .iter()
        .position(|template| filled(template) > MAX_TEXT_BYTES)
    {
        Some(index) => {
            let reason = format!(
                "template {index}, filled with the longest text, has more than {MAX_TEXT_BYTES} bytes. Shorten one of them"
            );
            Err(Failure::input(TEXT, reason))
        }
        None => Ok(()),
    }
}

/// Submits the images of a request to the engines that the outputs need: one that runs them, and one that
/// explains them.
fn submit_images(
    model: &Model,
    images: Option<Images>,
    selected: &[Selected],
    terms: &Terms,
) -> Result<(Option<Pending>, Option<Pending>), Failure> {
    let Some(Images { tensor, contents }) = images else {
        return Ok((None, None));
    };
    let values = matches!(contents.first(), Some(Content::Values(_)));
    let of = |contents: Vec<Content>| contents.into_iter().map(|content| (tensor, content)).collect();
    if values && selected.iter().any(Selected::is_resized_image) {
        let reason = "needs an image that the server resizes, but the request has `pixel_values`";
        return Err(Failure::output("resized", reason));
    }
    let explain = selected.iter().find_map(Selected::to_explain);
    let explaining = match (explain, model.explanations()) {
        (Some(explain), Some(engine)) => {
            let contents = contents.iter();
            let contents =
                contents.map(|content| Content::ToExplain(Box::new(content.clone()), explain.clone()));
            Some(engine.submit(of(contents.collect()), terms.clone())?)
        }
        _ => None,
    };
    let running = if selected.iter().all(Selected::is_of_explanation) {
        None
    } else {
        Some(model.engine(values).submit(of(contents), terms.clone())?)
    };
    Ok((running, explaining))
}
