//! Options of a server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hipvit::image::Limits;
use hipvit::session::SessionBuilder;

/// A model to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelSource {
    /// Name of the model for clients.
    pub name: String,
    /// Directory of the model, or a directory of its numbered versions; `None` is the embedded TinyViT32.
    pub directory: Option<PathBuf>,
}

impl ModelSource {
    /// Creates a source from a model's directory, or from a directory whose subdirectories `1`, `2`, … are
    /// its versions.
    pub fn new(name: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            directory: Some(directory.into()),
        }
    }

    /// Creates a source of the embedded TinyViT32.
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
    /// Certificate, followed by those that signed it.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Creates a pair of PEM files.
    pub fn new(certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
        }
    }
}

/// Limits on what clients may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Maximum bytes of a request's body.
    pub body: usize,
    /// Maximum total bytes of requests and answers: received bodies, decoded bodies, and answers until they
    /// are read. One client takes at most half of it.
    pub all_bodies: usize,
    /// Maximum number of connections.
    pub connections: usize,
    /// Time in which a client must send the head of a request, and in which a connection must bring its first
    /// authorised request.
    pub header_time: Duration,
    /// Time after which a connection without an open request is closed.
    pub idle_time: Duration,
    /// Time in which a client must send the body of a request, and in which it must take each 64 KiB of an
    /// answer.
    pub body_time: Duration,
    /// Time after which a request is abandoned, if the client does not ask for a shorter one.
    pub request_time: Duration,
    /// Maximum size of an image.
    pub image: Limits,
    /// Maximum number of tokens of a text that is made of an image, and the length for which the cache has room. `None`: as the
    /// model's files say.
    pub max_tokens: Option<usize>,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            all_bodies: 1 << 30,
            connections: 1024,
            header_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            body_time: Duration::from_secs(30),
            request_time: Duration::from_secs(30),
            max_tokens: None,
            image: Limits {
                // 64 megapixels: 200 MB for each decoder thread.
                max_pixels: 1 << 26,
                ..Limits::default()
            },
        }
    }
}

/// The form of the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessLog {
    /// Columns for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The options of a [`Server`](super::Server).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Addresses to listen on. Each takes HTTP/1.1, HTTP/2 and gRPC. Port 0 selects a free port.
    pub listen: Vec<SocketAddr>,
    /// Models that are loaded at the start.
    pub models: Vec<ModelSource>,
    /// Directory of models, one per subdirectory. Clients can load and unload them by name.
    pub repository: Option<PathBuf>,
    /// True to load the models of the repository at the start.
    pub load_repository: bool,
    /// Sessions of every model, one for each instance: its device or its GPUs together, and its other
    /// options. GPUs that divide models by tensor parallelism can be in only one instance.
    pub instances: Vec<SessionBuilder>,
    /// Maximum batch size.
    pub max_batch: usize,
    /// Maximum time that the first image of a batch waits for others while an instance is idle.
    pub max_delay: Duration,
    /// Maximum number of images of a model that wait or run. More are refused.
    pub queue: usize,
    /// Number of full batches per instance or pipeline stage that may wait or run. Further requests are
    /// refused, so that accepted ones do not wait long. One request may have more images than that.
    pub backlog: usize,
    /// Number of decoder threads; 0 uses one per core.
    pub decode_threads: usize,
    /// True to load each model a second time, for clients that send normalised `pixel_values`.
    pub pixel_values: bool,
    /// True to offer the patch tokens as an output.
    pub tokens: bool,
    /// True to offer explanations as an output. Each model is loaded a second time for them, in double
    /// precision on the host.
    pub explanation: bool,
    /// True to load the text towers of models that have one, for clients that send texts, and the decoders of models that make texts
    /// of images. Without its decoder, such a model embeds images. The default is true.
    pub texts: bool,
    /// True to serve a page at `/`, on which a person tries the models. This is the default.
    pub page: bool,
    /// True to let clients load and unload models. The default is false.
    pub model_control: bool,
    /// Limits on what clients may send.
    pub limits: ServerLimits,
    /// Token that clients must send as `Authorization: Bearer …`, except for health.
    pub token: Option<String>,
    /// Names by which clients and web pages may address the server, in addition to IP addresses and
    /// `localhost`. If there are any, all requests must use one of these. If there are none, only requests
    /// over loopback are checked.
    pub allowed_hosts: Vec<String>,
    /// Files for TLS; without them connections are not encrypted.
    pub tls: Option<TlsFiles>,
    /// Collector of traces by OTLP over HTTP: `http://HOST:4318`. [`otlp_endpoint`](super::otlp_endpoint)
    /// returns the one that the environment names. `OTEL_*` variables set the other options.
    pub otlp_endpoint: Option<String>,
    /// Form of the access log on standard output. The default `None` writes no access log.
    pub access_log: Option<AccessLog>,
    /// Time in which a stopping server still takes requests while it reports that it is not ready.
    pub drain_delay: Duration,
    /// Time for requests in flight after the server has stopped taking others.
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
            // One batch runs, or two on a GPU. With Poisson arrivals at 90 % of the capacity, about one
            // request in a hundred finds more.
            backlog: 4,
            decode_threads: 0,
            pixel_values: false,
            tokens: false,
            explanation: false,
            texts: true,
            page: true,
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
