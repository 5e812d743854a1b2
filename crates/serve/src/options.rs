//! What a server is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::access_log::AccessLog;
use super::limits::ServerLimits;
use hipvit::session::SessionBuilder;

/// A model to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelSource {
    /// The name by which clients know it.
    pub name: String,
    /// Its directory, or a directory of numbered versions of it; `None` is the embedded TinyViT32.
    pub directory: Option<PathBuf>,
}

impl ModelSource {
    /// A model and its directory, or a directory whose subdirectories `1`, `2`, … are its versions.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            directory: Some(directory.into()),
        }
    }

    /// The embedded TinyViT32.
    pub fn tinyvit32() -> Self {
        Self {
            name: "tinyvit32".into(),
            directory: None,
        }
    }
}

/// The certificate chain and the private key of a server, in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The certificate, then those that signed it.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Files in PEM.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
        }
    }
}

/// The options of a [`Server`](super::Server).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Where to listen; each address takes HTTP/1.1, HTTP/2 and gRPC. Port 0 is any free one.
    pub listen: Vec<SocketAddr>,
    /// The models that are loaded at the start.
    pub models: Vec<ModelSource>,
    /// A directory of models, each a subdirectory. Clients can load and unload them by name.
    pub repository: Option<PathBuf>,
    /// Whether the models of the repository are loaded at the start.
    pub load_repository: bool,
    /// One for each instance of every model: on which device, or on which GPUs together, and how it runs. GPUs that divide models by
    /// tensor parallelism are in one instance alone.
    pub instances: Vec<SessionBuilder>,
    /// Maximum batch size.
    pub max_batch: usize,
    /// How long the first image of a batch waits for others while an instance is idle.
    pub max_delay: Duration,
    /// Maximum number of images of a model that wait or run; more are refused.
    pub queue: usize,
    /// Requests are refused while so many full batches for each instance, or each stage of a pipeline, wait or run, so that those that
    /// were accepted do not wait long. A request may have more images than that.
    pub backlog: usize,
    /// The number of threads that decode; 0: one per core.
    pub decode_threads: usize,
    /// Whether to load each model a second time, for clients that send normalised `pixel_values`.
    pub pixel_values: bool,
    /// Whether the patch tokens are an output.
    pub tokens: bool,
    /// Whether explanations are an output. Each model is loaded a second time for them, in double precision on the host.
    pub explanation: bool,
    /// Load the text towers of models that have one, for clients that send texts. On by default.
    pub texts: bool,
    /// Whether clients may load and unload models; off by default.
    pub model_control: bool,
    /// Limits on what clients may send.
    pub limits: ServerLimits,
    /// What clients must send as `Authorization: Bearer …`, except for health.
    pub token: Option<String>,
    /// Names by which clients and web pages may address the server, beside IP addresses and `localhost`. If there are any, every
    /// connection's requests must have one of these; without them only loopback is checked.
    pub allowed_hosts: Vec<String>,
    /// For TLS; without them connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// The collector that traces are sent to by OTLP over HTTP: `http://HOST:4318`. [`otlp_endpoint`](super::otlp_endpoint) is the
    /// one that the environment names; `OTEL_*` variables say the rest.
    pub otlp_endpoint: Option<String>,
    /// Form of the access log on standard output. `None`, the default, writes no access log.
    pub access_log: Option<AccessLog>,
    /// For how long a server that is told to stop still takes requests while it says that it is not ready.
    pub drain_delay: Duration,
    /// How long requests may take that were in flight when it stopped taking others.
    pub drain_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: vec![([127, 0, 0, 1], 8000).into()],
            models: Vec::new(),
            repository: None,
            load_repository: true,
            instances: vec![SessionBuilder::default()],
            max_batch: 8,
            max_delay: Duration::ZERO,
            queue: 256,
            // One runs, or two on a GPU; with Poisson arrivals at 90 % of the capacity about one request in a hundred finds more.
            backlog: 4,
            decode_threads: 0,
            pixel_values: false,
            tokens: false,
            explanation: false,
            texts: true,
            model_control: false,
            limits: ServerLimits::default(),
            token: None,
            allowed_hosts: Vec::new(),
            tls: None,
            otlp_endpoint: None,
            access_log: None,
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
        }
    }
}
