//! Counters and measurements of the server, in Prometheus' text format.
//!
//! The server uses `prometheus-client` instead of `metrics` and its exporter. A server has its own registry,
//! so that several can run in one process, and no thread maintains it.

mod engine;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub(crate) use self::engine::{EngineMetrics, Runs};
use super::closed::Closed;
use super::failure::Kind;
use super::options::ServerLimits;
use super::priority::Priority;
use super::stage::Stage;
use hipvit::hip::Monitor;

/// The content type of [`Metrics::encode`].
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Buckets from 50 µs to some seconds, two per doubling.
const SECONDS: [f64; 34] = {
    let mut buckets = [0.0; 34];
    let (mut at, mut index) = (50e-6, 0);
    while index < 34 {
        buckets[index] = at;
        buckets[index + 1] = 1.5 * at;
        at *= 2.0;
        index += 2;
    }
    buckets
};

const BATCH_SIZES: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByModel {
    model: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStage {
    model: Arc<str>,
    stage: Stage,
}

impl EncodeLabelValue for Stage {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        EncodeLabelValue::encode(&self.name(), encoder)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByPriority {
    model: Arc<str>,
    priority: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDevice {
    model: Arc<str>,
    device: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByGpu {
    device: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    model: Arc<str>,
    protocol: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRefusal {
    protocol: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Copy, Debug)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

type Histograms<L> = Family<L, Histogram, Buckets>;

/// All metrics of a server.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    requests: Family<ByOutcome, Counter>,
    latency: Histograms<ByPriority>,
    stages: Histograms<ByStage>,
    batch_sizes: Histograms<ByModel>,
    images: Family<ByModel, Counter>,
    texts: Family<ByModel, Counter>,
    generated_tokens: Family<ByModel, Counter>,
    cache_pages_used: Family<ByDevice, Gauge>,
    cache_pages: Family<ByDevice, Gauge>,
    queued: Family<ByPriority, Gauge>,
    shed: Family<ByPriority, Counter>,
    dropped: Family<ByModel, Counter>,
    retried: Family<ByModel, Counter>,
    instances: Family<ByDevice, Gauge>,
    lost: Family<ByDevice, Counter>,
    restarted: Family<ByDevice, Counter>,
    pub(super) ready: Gauge,
    pub(super) connections: Gauge,
    pub(super) refused_connections: Counter,
    closed_connections: Family<ByReason, Counter>,
    pub(super) accept_errors: Counter,
    refused_requests: Family<ByRefusal, Counter>,
    pub(super) body_bytes: Gauge,
    body_limit: Gauge,
    decode_bytes: Gauge,
    decode_limit: Gauge,
    pub(super) access_log_dropped: Counter,
    gpu_memory_used: Family<ByGpu, Gauge>,
    gpu_memory: Family<ByGpu, Gauge>,
    gpu_busy: Family<ByGpu, Gauge<f64, AtomicU64>>,
    gpu_power: Family<ByGpu, Gauge<f64, AtomicU64>>,
    gpu_temperature: Family<ByGpu, Gauge<f64, AtomicU64>>,
    gpu_energy: Family<ByGpu, Counter<f64, AtomicU64>>,
}

impl Metrics {
    pub(super) fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("hipvit");
        macro_rules! register {
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, metric.clone());
                metric
            }};
            ($name:literal, $help:literal, $unit:expr, $metric:expr) => {{
                let metric = $metric;
                registry.register_with_unit($name, $help, $unit, metric.clone());
                metric
            }};
        }
        let seconds = Buckets(&SECONDS);
        registry.register(
            "build",
            "The server's version",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        let requests = register!(
            "requests",
            "Inference requests, by how they ended",
            Family::default()
        );
        let latency = register!(
            "request_duration",
            "From the arrival of an inference request's body to its result",
            Unit::Seconds,
            Family::new_with_constructor(seconds)
        );
        let stages = register!(
            "stage_duration",
            "Time in a stage: queue per image or text, decode and resize per image, tokenize per text, copy and compute per batch (on a GPU of one batch in 32), explain per explanation. Texts from images: first_token from admission to the first token, generate per text, step per token of all texts",
            Unit::Seconds,
            Family::new_with_constructor(seconds)
        );
        let batch_sizes = register!(
            "batch_size",
            "Images or texts in a batch",
            Family::new_with_constructor(Buckets(&BATCH_SIZES))
        );
        let images = register!("images", "Images that were run", Family::default());
        let texts = register!("texts", "Texts that were embedded", Family::default());
        let generated_tokens = register!(
            "generated_tokens",
            "Tokens of texts that were made of images",
            Family::default()
        );
        let cache_pages_used = register!(
            "cache_pages_used",
            "Pages that texts in progress use of the cache of keys and values",
            Family::default()
        );
        let cache_pages = register!(
            "cache_pages",
            "Pages of the cache of keys and values",
            Family::default()
        );
        let queued = register!(
            "queue_images",
            "Images that were admitted and are not finished",
            Family::default()
        );
        let shed = register!(
            "shed_images",
            "Images refused for want of queue space",
            Family::default()
        );
        let dropped = register!(
            "dropped_images",
            "Images dropped before they were run: the client had left or the deadline had passed",
            Family::default()
        );
        let retried = register!(
            "retried_images",
            "Images run again after their batch failed",
            Family::default()
        );
        let instances = register!("instances", "Instances of a model that work", Family::default());
        let lost = register!(
            "lost_instances",
            "Instances taken out because their device failed",
            Family::default()
        );
        let restarted = register!(
            "instance_restarts",
            "Threads of instances that panicked and were replaced",
            Family::default()
        );
        let ready = register!(
            "ready",
            "1 if the server can run requests by every loaded model, else 0",
            Gauge::default()
        );
        let connections = register!("connections", "Open connections", Gauge::default());
        let refused_connections = register!(
            "refused_connections",
            "Connections closed at once: there were too many",
            Counter::default()
        );
        let closed_connections = register!(
            "closed_connections",
            "Connections that the server closed, by reason: idle, unauthorized, displaced (for another client, of a full table), flood",
            Family::default()
        );
        let accept_errors = register!(
            "accept_errors",
            "Connections that could not be accepted, such as without a free file descriptor",
            Counter::default()
        );
        let refused_requests = register!(
            "refused_requests",
            "Requests of any path that were answered with an error, by reason",
            Family::default()
        );
        let body_bytes = register!(
            "request_body_bytes",
            "Bytes that requests and answers take in memory",
            Gauge::default()
        );
        let body_limit = register!(
            "request_body_limit_bytes",
            "Maximum bytes that requests and answers take in memory",
            Gauge::default()
        );
        let decode_bytes = register!(
            "decode_bytes",
            "Bytes reserved for decoding images",
            Gauge::default()
        );
        let decode_limit = register!(
            "decode_limit_bytes",
            "Maximum bytes reserved for decoding images",
            Gauge::default()
        );
        let access_log_dropped = register!(
            "access_log_dropped",
            "Lines of the access log that were not written: the output failed or was too slow",
            Counter::default()
        );
        let gpu_memory_used = register!("gpu_memory_used_bytes", "GPU memory in use", Family::default());
        let gpu_memory = register!("gpu_memory_bytes", "GPU memory", Family::default());
        let gpu_busy = register!(
            "gpu_busy_ratio",
            "Share of the time in which the GPU was busy",
            Family::default()
        );
        let gpu_power = register!("gpu_power_watts", "Power that the GPU draws", Family::default());
        let gpu_temperature = register!(
            "gpu_temperature_celsius",
            "Temperature of the GPU",
            Family::default()
        );
        let gpu_energy = register!(
            "gpu_energy_joules",
            "Energy that the GPU has used since the server began; over hipvit_images_total it is energy per image",
            Family::default()
        );
        Arc::new(Self {
            registry,
            requests,
            latency,
            stages,
            batch_sizes,
            images,
            texts,
            generated_tokens,
            cache_pages_used,
            cache_pages,
            queued,
            shed,
            dropped,
            retried,
            instances,
            lost,
            restarted,
            ready,
            connections,
            refused_connections,
            closed_connections,
            accept_errors,
            refused_requests,
            body_bytes,
            body_limit,
            decode_bytes,
            decode_limit,
            access_log_dropped,
            gpu_memory_used,
            gpu_memory,
            gpu_busy,
            gpu_power,
            gpu_temperature,
            gpu_energy,
        })
    }

    /// Counts a finished request.
    pub(super) fn request(
        &self,
        (model, protocol): (&str, &'static str),
        priority: Priority,
        failed: Option<Kind>,
        time: Duration,
    ) {
        let model: Arc<str> = model.into();
        let outcome = failed.map_or("ok", Kind::label);
        if failed.is_none() {
            let labels = ByPriority {
                model: model.clone(),
                priority: priority.label(),
            };
            self.latency.get_or_create(&labels).observe(time.as_secs_f64());
        }
        let labels = ByOutcome {
            model,
            protocol,
            outcome,
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a request that was answered with an error.
    pub(super) fn refused_request(&self, protocol: &'static str, reason: &'static str) {
        let labels = ByRefusal { protocol, reason };
        self.refused_requests.get_or_create(&labels).inc();
    }

    /// Counts a connection that the server closed.
    pub(super) fn closed_connection(&self, reason: Closed) {
        let labels = ByReason {
            reason: reason.label(),
        };
        self.closed_connections.get_or_create(&labels).inc();
    }

    /// Sets the gauges of the memory limits.
    pub(super) fn set_limits(&self, limits: &ServerLimits) {
        self.body_limit.set(gauge(limits.all_bodies as u64));
        self.decode_limit.set(gauge(limits.image.max_memory));
    }

    /// Counts a request whose client left.
    pub(super) fn cancelled(&self, (model, protocol): (&str, &'static str)) {
        let labels = ByOutcome {
            model: model.into(),
            protocol,
            outcome: "cancelled",
        };
        self.requests.get_or_create(&labels).inc();
    }

    pub(super) fn set_queued(&self, model: &str, priority: Priority, images: usize) {
        let labels = ByPriority {
            model: model.into(),
            priority: priority.label(),
        };
        self.queued.get_or_create(&labels).set(images as i64);
    }

    pub(super) fn set_instances(&self, model: &str, device: &str, alive: usize) {
        let labels = ByDevice {
            model: model.into(),
            device: device.to_owned(),
        };
        self.instances.get_or_create(&labels).set(alive as i64);
    }

    pub(super) fn set_cache(&self, model: &str, device: &str, [used, all]: [usize; 2]) {
        let labels = ByDevice {
            model: model.into(),
            device: device.to_owned(),
        };
        self.cache_pages_used.get_or_create(&labels).set(used as i64);
        self.cache_pages.get_or_create(&labels).set(all as i64);
    }

    /// Removes the gauges of queues, instances and caches. An unloaded model has none.
    pub(super) fn forget_gauges(&self) {
        self.cache_pages_used.clear();
        self.cache_pages.clear();
        self.queued.clear();
        self.instances.clear();
    }

    /// Reads the sensors of a GPU. `energy` is the reading at the server's start.
    pub(super) fn read_gpu(&self, device: &str, monitor: &Monitor, energy: Option<f64>) {
        let labels = ByGpu {
            device: device.to_owned(),
        };
        if let Ok(bytes) = monitor.memory_used() {
            self.gpu_memory_used.get_or_create(&labels).set(bytes as i64);
        }
        if let Ok(bytes) = monitor.memory_total() {
            self.gpu_memory.get_or_create(&labels).set(bytes as i64);
        }
        for (family, value) in [
            (&self.gpu_busy, monitor.utilisation()),
            (&self.gpu_power, monitor.power()),
            (&self.gpu_temperature, monitor.temperature()),
        ] {
            if let Ok(value) = value {
                family.get_or_create(&labels).set(value);
            }
        }
        if let (Ok(now), Some(begin)) = (monitor.energy(), energy) {
            let counter = self.gpu_energy.get_or_create(&labels);
            let more = now - begin - counter.get();
            if more > 0.0 {
                counter.inc_by(more);
            }
        }
    }

    /// Encodes all metrics as text.
    pub(super) fn encode(&self) -> String {
        self.decode_bytes.set(gauge(hipvit::image::decode_memory()));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Converts bytes to the type of a gauge.
fn gauge(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
