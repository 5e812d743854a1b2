//! What both protocols ask for: an inference, metadata, readiness, the repository, metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::failure::{Failure, Kind};
use super::limits::BodyMemory;
use super::metrics::Metrics;
use super::options::ServerOptions;
use super::protocol::outputs::Selected;
use super::protocol::{InferRequest, InferResponse};
use super::repository::{Indexed, Model, Repository};
use super::scheduler::{Content, Priority, Terms};
use super::traces::{Trace, Traces};
use crate::error::Result;
use crate::hip::Monitor;
use crate::session::Device;

/// The name that the server gives itself.
pub(super) const NAME: &str = "hipvit";

/// The extensions of the protocol that it has.
pub(super) const EXTENSIONS: [&str; 3] = ["binary_tensor_data", "classification", "model_repository"];

/// A year: later than any request waits.
const NEVER: Duration = Duration::from_secs(365 * 86400);

/// The server behind its protocols.
pub(super) struct Service {
    pub(super) options: ServerOptions,
    pub(super) metrics: Arc<Metrics>,
    pub(super) bodies: BodyMemory,
    pub(super) traces: Traces,
    repository: Repository,
    draining: AtomicBool,
    sensors: Mutex<Sensors>,
}

/// The GPUs' sensors, by device, and their energy when they were first read.
#[derive(Default)]
struct Sensors(Vec<(String, Option<Monitor>, Option<f64>)>);

impl Service {
    /// Loads the models.
    pub(super) fn new(options: ServerOptions, traces: Traces) -> Result<Self> {
        let metrics = Metrics::new();
        let service = Self {
            repository: Repository::new(&options, metrics.clone())?,
            bodies: BodyMemory::new(options.limits, metrics.clone()),
            metrics,
            traces,
            options,
            draining: AtomicBool::new(false),
            sensors: Mutex::default(),
        };
        // So that energy counts from the start.
        service.read_sensors();
        Ok(service)
    }

    /// Runs a request that a client sent by `protocol`, whose transport has a time limit of its own if it has.
    pub(super) async fn infer(
        &self,
        protocol: &'static str,
        request: InferRequest,
        limit: Option<Duration>,
        trace: Trace,
    ) -> Result<InferResponse, Failure> {
        let mut record = Record {
            metrics: &self.metrics,
            // Only names that exist become labels: a client can send any.
            model: String::new(),
            protocol,
            priority: Priority::Interactive,
            begin: Instant::now(),
            failed: None,
            ended: false,
            trace,
        };
        let result = self.infer_recorded(request, limit, &mut record).await;
        if let Err(failure) = &result {
            record.failed = Some(failure.kind());
            record.trace.fail(failure);
        }
        record.ended = true;
        result
    }

    async fn infer_recorded(
        &self,
        request: InferRequest,
        limit: Option<Duration>,
        record: &mut Record<'_>,
    ) -> Result<InferResponse, Failure> {
        let model = self.repository.find(&request.model, &request.version)?;
        record.model.clone_from(&model.name);
        let priority = request.parameters.priority()?;
        record.priority = priority;
        record.trace.describe("hipvit.model", model.name.clone());
        record.trace.describe("hipvit.version", model.version as i64);
        record.trace.describe("hipvit.priority", priority.label());
        let time = [
            request.parameters.timeout()?,
            limit,
            Some(self.options.limits.request_time),
        ];
        let time = time.into_iter().flatten().min().unwrap_or(Duration::MAX);
        let selected = model.outputs.select(&request.outputs, &request.parameters)?;
        let images = model.inputs.read(request.inputs)?;
        let terms = Terms {
            priority,
            // So late that it is never.
            deadline: record.begin.checked_add(time).unwrap_or(record.begin + NEVER),
            trace: record.trace.clone(),
        };
        record
            .trace
            .describe("hipvit.images", images.contents.len() as i64);
        let values = matches!(images.contents.first(), Some(Content::Values(_)));
        let of = |contents: Vec<Content>| {
            contents
                .into_iter()
                .map(|content| (images.tensor, content))
                .collect()
        };
        let explain = selected.iter().find_map(Selected::to_explain);
        let explaining = match (explain, model.explanations()) {
            (Some(options), Some(engine)) => {
                let contents = images.contents.iter();
                let contents =
                    contents.map(|content| Content::ToExplain(Box::new(content.clone()), options.clone()));
                Some(engine.submit(of(contents.collect()), terms.clone())?)
            }
            _ => None,
        };
        let running = match selected.iter().all(|output| output.to_explain().is_some()) {
            true => None,
            false => Some(model.engine(values).submit(of(images.contents), terms)?),
        };
        let (mut results, mut explained) = (Vec::new(), Vec::new());
        // Whichever fails drops the other, which is then not run.
        if let Some(pending) = running {
            results = pending.wait().await?;
        }
        if let Some(pending) = explaining {
            explained = pending.wait().await?;
        }
        Ok(InferResponse {
            outputs: model.outputs.write(&selected, &results, &explained),
            model: model.name.clone(),
            version: model.version.to_string(),
            id: request.id,
        })
    }

    /// A loaded model.
    pub(super) fn model(&self, name: &str, version: &str) -> Result<Arc<Model>, Failure> {
        self.repository.find(name, version)
    }

    /// The loaded versions of a model.
    pub(super) fn versions(&self, name: &str) -> Vec<String> {
        let versions = self.repository.versions(name);
        versions.iter().map(u64::to_string).collect()
    }

    /// Whether requests can be run: by every loaded model, and the server is not about to stop.
    pub(super) fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Acquire)
            && self.repository.loaded().iter().all(|model| model.is_ready())
    }

    /// Whether one model can run requests.
    pub(super) fn is_model_ready(&self, name: &str, version: &str) -> Result<bool, Failure> {
        let model = self.repository.find(name, version)?;
        Ok(model.is_ready() && !self.draining.load(Ordering::Acquire))
    }

    /// From now on the server is not ready.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.repository.close();
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
        match self.options.model_control {
            true => Ok(()),
            false => Err(Failure::new(
                Kind::Unsupported,
                "models cannot be loaded or unloaded: the server was not started with --model-control",
            )),
        }
    }

    /// The metrics as text, with what is only known now.
    pub(super) fn encode_metrics(&self) -> String {
        let metrics = &self.metrics;
        metrics.forget_gauges();
        let loaded = self.repository.loaded();
        let mut queued = std::collections::BTreeMap::new();
        let mut instances = std::collections::BTreeMap::new();
        for model in &loaded {
            for engine in model.engines() {
                for priority in Priority::ALL {
                    *queued.entry((&model.name, priority as usize)).or_insert(0) += engine.admitted(priority);
                }
                for (device, alive) in engine.instances() {
                    *instances.entry((&model.name, device)).or_insert(0) += usize::from(alive);
                }
            }
        }
        for ((model, priority), images) in queued {
            metrics.set_queued(model, Priority::ALL[priority], images);
        }
        for ((model, device), alive) in instances {
            metrics.set_instances(model, device, alive);
        }
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

/// Counts a request when it has ended: with its result, or when its future is dropped because the client left.
struct Record<'a> {
    metrics: &'a Metrics,
    model: String,
    protocol: &'static str,
    priority: Priority,
    begin: Instant,
    failed: Option<Kind>,
    ended: bool,
    trace: Trace,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        let labels = (self.model.as_str(), self.protocol);
        let time = self.begin.elapsed();
        match self.ended {
            true => self.metrics.request(labels, self.priority, self.failed, time),
            false => {
                self.trace.describe("error.type", "cancelled");
                self.metrics.cancelled(labels);
            }
        }
    }
}
