//! `hipvit serve`.

mod log;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use hipvit::image::Limits;
use hipvit::run_config::Devices;
use hipvit::run_config::parsers::{self, positive, seconds};
use hipvit::{Device, DeviceSet, Parallelism, RunConfig, SessionBuilder};
use hipvit_files::regular_file;
use hipvit_serve::{self, AccessLog, ModelSource, Server, ServerLimits, ServerOptions, TlsFiles};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::decode_args::bytes;
use super::outcome::{Outcome, Usage, refused};

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = AFTER_HELP,
    mut_arg("device", |arg| {
        arg.value_parser(parsers::device_sets())
            .value_name("DEVICE,…")
            .help("Devices or groups, with one instance each [default: auto]")
    }),
    mut_arg("batch", |arg| arg.alias("max-batch").help("Maximum batch size")),
)]
pub(crate) struct Args {
    #[command(flatten)]
    models: ServedModels,
    #[command(flatten)]
    config: RunConfig,
    /// Number of decode threads [default: all cores]
    #[arg(long, value_name = "N", value_parser = positive, help_heading = "Device")]
    decode_threads: Option<usize>,
    #[command(flatten)]
    outputs: OfferedOutputs,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    queueing: QueueArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    observation: ObservationArgs,
}

/// The models to serve.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Model")]
struct ServedModels {
    /// Model directories, or ORG/NAME on the hub [default: TinyViT32]
    ///
    /// Clients use NAME, or the last part of the directory or name.
    #[arg(value_name = "[NAME=]MODEL", value_parser = model)]
    positional: Vec<ModelSource>,
    /// Same as the MODEL arguments; repeatable
    #[arg(long, short, value_name = "[NAME=]MODEL", value_parser = model)]
    model: Vec<ModelSource>,
    /// Directory whose subdirectories are models
    #[arg(long, value_name = "DIR")]
    repository: Option<PathBuf>,
    /// Load no models of --repository at startup
    #[arg(long, requires = "repository", hide_short_help = true)]
    no_load: bool,
    /// Let clients load and unload models by name
    ///
    /// Requires --token-file if other machines can connect, because clients could stop the service by unloading models.
    #[arg(long)]
    model_control: bool,
    /// Allow --model-control from other machines without a token
    #[arg(long, requires = "model_control", hide_short_help = true)]
    insecure_model_control: bool,
}

/// Additional inputs and outputs of the models.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
struct OfferedOutputs {
    /// Accept pixel_values, too; loads each model twice
    #[arg(long)]
    pixel_values: bool,
    /// Offer patch tokens as an output
    #[arg(long)]
    tokens: bool,
    /// Offer explanations; loads each model twice
    ///
    /// An explanation is the contribution of each pixel to a class. It is computed on the host in double precision.
    #[arg(long)]
    explanation: bool,
    /// Do not load the text towers of CLIP and SigLIP
    #[arg(long, hide_short_help = true)]
    no_texts: bool,
}

/// Addresses of the server, and access to it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
struct ConnectionArgs {
    /// Address for HTTP and gRPC; repeatable
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    listen: Vec<SocketAddr>,
    /// File with the bearer token of clients
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate chain for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Host name of the server; repeatable
    ///
    /// Requests for other names are rejected: always on loopback, elsewhere only with this option. IP addresses and
    /// localhost are always allowed. Required behind a reverse proxy on this machine that forwards the public name.
    #[arg(long, value_name = "NAME", value_parser = host_name, hide_short_help = true)]
    allow_host: Vec<String>,
}

/// Queueing of requests, and shutdown.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Advanced")]
struct QueueArgs {
    /// Microseconds that an incomplete batch waits for more images
    #[arg(
        long,
        default_value_t = 0,
        value_name = "MICROSECONDS",
        hide_short_help = true
    )]
    max_delay_us: u64,
    /// Maximum waiting and running images per model
    ///
    /// Further requests are rejected (429, UNAVAILABLE).
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = positive, hide_short_help = true)]
    queue: usize,
    /// Maximum queued full batches per instance
    ///
    /// Further requests are rejected. Each stage of a pipeline counts as an instance. A larger number absorbs bursts, a
    /// smaller one shortens waits.
    #[arg(long, default_value_t = ServerOptions::default().backlog, value_name = "N", value_parser = positive, hide_short_help = true)]
    backlog: usize,
    /// Seconds to accept requests after a signal
    ///
    /// After SIGTERM, SIGINT or SIGHUP, the server reports that it is not ready, but accepts requests for this time.
    #[arg(long, default_value = "0", value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    drain_delay: Duration,
    /// Seconds to finish requests in flight after that
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    drain_timeout: Duration,
}

/// Logs and traces.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
struct ObservationArgs {
    /// Format of the log on standard error
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    log: LogFormat,
    /// Format of the access log on standard output
    #[arg(long, default_value = "off", value_name = "FORMAT")]
    access_log: AccessLogFormat,
    /// Collector of OTLP traces (HTTP) [default: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    otlp_endpoint: Option<String>,
}

const AFTER_HELP: &str = "\
Inputs: image (BYTES, encoded files) or pixels (UINT8, [n, height, width, 3]); with --pixel-values also pixel_values.
Outputs: logits, top, embedding; with --tokens also patch_tokens; with --explanation also explanation.
Metrics for Prometheus: /metrics.

    hipvit serve vit=path/to/vit_base_patch16_224
    curl --data-binary @cat.jpg -H 'Inference-Header-Content-Length: 0' \\
      http://127.0.0.1:8000/v2/models/vit/infer

    hipvit serve --repository /models --device hip:all --dtype f16
    hipvit serve --listen 0.0.0.0:8000 --token-file token --tls-certificate chain.pem --tls-key key.pem vit=models/vit";

/// Limits on requests.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Advanced")]
struct LimitArgs {
    /// Reject images with more than N pixels
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().image.max_pixels, hide_short_help = true)]
    max_pixels: u64,
    /// Memory for decoding, e.g. 800M or 4G [default: half of RAM]
    #[arg(long, value_name = "BYTES", value_parser = bytes, hide_short_help = true)]
    max_decode_memory: Option<u64>,
    /// Maximum size of a request body
    #[arg(long, value_name = "MIB", default_value_t = ServerLimits::default().body >> 20, value_parser = mebibytes, hide_short_help = true)]
    max_body: usize,
    /// Maximum memory of all requests and responses
    #[arg(long, value_name = "MIB", default_value_t = ServerLimits::default().all_bodies >> 20, value_parser = mebibytes, hide_short_help = true)]
    body_memory: usize,
    /// Maximum number of connections [default: 1024, or fewer]
    ///
    /// The default is lower if the limit on open files requires it.
    #[arg(long, value_name = "N", value_parser = positive, hide_short_help = true)]
    max_connections: Option<usize>,
    /// Timeout in seconds for the header of a request
    #[arg(long, value_name = "SECONDS", default_value_t = ServerLimits::default().header_time.as_secs_f64(), value_parser = number_of_seconds, hide_short_help = true)]
    header_timeout: f64,
    /// Timeout in seconds for idle connections
    #[arg(long, value_name = "SECONDS", default_value_t = ServerLimits::default().idle_time.as_secs_f64(), value_parser = number_of_seconds, hide_short_help = true)]
    idle_timeout: f64,
    /// Timeout in seconds for the body of a request
    #[arg(long, value_name = "SECONDS", default_value_t = ServerLimits::default().body_time.as_secs_f64(), value_parser = number_of_seconds, hide_short_help = true)]
    body_timeout: f64,
    /// Timeout in seconds for a request
    ///
    /// Clients can request a shorter timeout.
    #[arg(long, value_name = "SECONDS", default_value_t = ServerLimits::default().request_time.as_secs_f64(), value_parser = number_of_seconds, hide_short_help = true)]
    timeout: f64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormat {
    /// Human-readable lines
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AccessLogFormat {
    /// No access log
    Off,
    /// Human-readable lines
    Text,
    /// One JSON object per line
    Json,
}

impl AccessLogFormat {
    fn form(self) -> Option<AccessLog> {
        match self {
            Self::Off => None,
            Self::Text => Some(AccessLog::Text),
            Self::Json => Some(AccessLog::Json),
        }
    }
}

/// Returns the devices of each instance of a model: one device, or the GPUs that divide the model.
fn groups(sets: &[DeviceSet], parallelism: Parallelism) -> hipvit::Result<Vec<(DeviceSet, Parallelism)>> {
    let devices: Vec<Vec<Device>> = sets
        .iter()
        .map(DeviceSet::resolve)
        .collect::<hipvit::Result<_>>()?;
    let devices = devices.concat();
    let degrees = parallelism.degrees(devices.len())?;
    let one = Parallelism::new(1, degrees.tensor, degrees.pipeline)?;
    if degrees.shards() == 1 {
        return Ok(devices.into_iter().map(|device| (device.into(), one)).collect());
    }
    let names: Vec<String> = devices.iter().map(Device::to_string).collect();
    // Rejects a set with CPU and GPUs, and a GPU in two groups.
    names.join(",").parse::<DeviceSet>()?;
    let group = |names: &[String]| Ok((names.join(",").parse()?, one));
    names.chunks(degrees.shards()).map(group).collect()
}

fn model(text: &str) -> Result<ModelSource, String> {
    // A path can contain `=`, but a name cannot contain `/`.
    let named = text.split_once('=').filter(|(name, _)| !name.contains('/'));
    let (name, directory) = match named {
        Some((name, directory)) => (name.to_owned(), directory),
        None => (last_part(text), text),
    };
    if directory.is_empty() {
        return Err("names no directory".into());
    }
    // The name is part of a URL.
    let allowed = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(allowed) {
        return Err(format!(
            "`{name}` is not a valid model name (letters, digits, `-`, `_` and `.`): write NAME={directory}"
        ));
    }
    Ok(ModelSource::new(name, directory))
}

/// Returns the name of a model without an explicit one: the name of its folder or hub repository.
fn last_part(model: &str) -> String {
    // The URL of a revision ends with the revision.
    let model = match model.split_once("/tree/") {
        Some((page, _)) if page.contains("://") => page,
        _ => model,
    };
    let path = Path::new(model);
    // `.` and `..` have no file name.
    let absolute = match path.file_name() {
        Some(_) => path.to_owned(),
        None => path.canonicalize().unwrap_or_default(),
    };
    let name = absolute.file_name().unwrap_or_default().to_string_lossy();
    match name.split_once('@') {
        Some((name, _revision)) if !path.exists() => name.to_owned(),
        _ => name.into_owned(),
    }
}

fn number_of_seconds(text: &str) -> Result<f64, String> {
    seconds(text).map(|time| time.as_secs_f64())
}

fn mebibytes(text: &str) -> Result<usize, String> {
    let mebibytes = positive(text)?;
    match mebibytes.checked_mul(1 << 20) {
        Some(_) => Ok(mebibytes),
        None => Err("is too large".into()),
    }
}

/// Parses a host of `--allow-host`, without scheme and port.
fn host_name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let text = text.trim_end_matches('.');
    if text.is_empty() || !text.chars().all(allowed) {
        return Err("must be a name without scheme and port, such as vit.example.org".into());
    }
    Ok(text.to_owned())
}

/// Returns true if other machines can reach one of the addresses.
fn is_open(listen: &[SocketAddr]) -> bool {
    listen.iter().any(|address| !address.ip().is_loopback())
}

/// Maximum size in bytes of a token file.
const MAX_TOKEN_FILE: u64 = 1 << 20;

/// Reads the token in a file.
///
/// # Errors
///
/// Returns an error if the file cannot be read, is not text, or contains no token.
fn read_token(path: &Path) -> Result<String> {
    let bytes = regular_file::read_within(path, MAX_TOKEN_FILE).map_err(refused(path))?;
    let text = std::str::from_utf8(&bytes);
    let token = text.map_err(|_| anyhow!("{}: is not text in UTF-8", path.display()))?;
    let token = token.trim();
    if token.is_empty() {
        bail!("{}: has no token", path.display());
    }
    Ok(token.to_owned())
}

/// Number of open files reserved for models, logs and sensors.
const RESERVED_FILES: u64 = 256;

/// Raises the limit on open files to its maximum. Returns the limit, if there is one.
fn open_files() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    limit.current
}

/// Returns the maximum number of connections: `given`, or the default reduced to fit the limit on open files.
fn connections(given: Option<usize>, files: Option<u64>) -> usize {
    let default = ServerLimits::default().connections;
    // If the limit is low, connections get half of the files.
    let most = files.map_or(u64::MAX, |files| {
        files.saturating_sub(RESERVED_FILES).max(files / 2)
    });
    let most = usize::try_from(most).unwrap_or(usize::MAX).max(1);
    match given {
        Some(given) if given > most => {
            tracing::warn!(
                max_connections = given,
                open_files = files,
                "the limit on open files is too low for this number of connections: raise it (ulimit -n)"
            );
            given
        }
        Some(given) => given,
        None => default.min(most),
    }
}

impl LimitArgs {
    fn limits(&self) -> ServerLimits {
        let mut limits = ServerLimits::default();
        limits.body = self.max_body << 20;
        limits.all_bodies = self.body_memory << 20;
        limits.connections = connections(self.max_connections, open_files());
        limits.idle_time = Duration::from_secs_f64(self.idle_timeout);
        limits.header_time = Duration::from_secs_f64(self.header_timeout);
        limits.body_time = Duration::from_secs_f64(self.body_timeout);
        limits.request_time = Duration::from_secs_f64(self.timeout);
        limits.image = Limits {
            max_pixels: self.max_pixels,
            max_memory: self.max_decode_memory.unwrap_or(limits.image.max_memory),
        };
        limits
    }
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let begin = Instant::now();
        // Dropping it writes the last lines.
        let log = self.log();
        let options = self.options()?;
        if is_open(&options.listen) {
            if options.token.is_none() {
                tracing::warn!("other machines can connect, and without --token-file every client is served");
            } else if options.tls.is_none() {
                tracing::warn!(
                    "other machines can connect, and without --tls-certificate the token is sent in plain text. Use TLS, here or in a proxy"
                );
            }
        }
        // A signal during the start removes temporary files and ends the process.
        let loading = super::interrupt::start()?;
        let server = Server::start(options)?;
        // Catch signals before logging the address, because a reader of the log may stop the server.
        let signals = server.catch_signals()?;
        drop(loading);
        for address in server.addresses() {
            tracing::info!(%address, after = ?begin.elapsed(), "listening");
        }
        server.wait_for(signals);
        tracing::info!("stopping: finishing the requests in flight");
        if !server.stop() {
            drop(log);
            hipvit_files::temporary::remove_all();
            // Exit at once. The GPU runtime's exit handlers could wait for a device that hangs.
            signal_hook::low_level::exit(0);
        }
        Ok(Outcome::Complete)
    }

    /// Starts the log on standard error.
    fn log(&self) -> log::Flush {
        let (writer, flush) = log::writer(std::io::stderr());
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(writer)
            .log_internal_errors(false)
            .with_target(false);
        // Clients can trigger warnings of the HTTP libraries without limit.
        let levels = Targets::new()
            .with_default(Level::INFO)
            .with_targets(["h2", "hyper", "hyper_util", "rustls", "tonic"].map(|name| (name, Level::ERROR)));
        let log = tracing_subscriber::registry().with(levels);
        match self.observation.log {
            LogFormat::Text => {
                let is_terminal = std::io::stderr().is_terminal();
                log.with(layer.with_ansi(is_terminal)).init();
            }
            LogFormat::Json => log.with(layer.json().flatten_event(true)).init(),
        }
        // The default hook would block if standard error is not read.
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        flush
    }

    /// Rejects --model-control without a token if other machines can connect.
    fn check_model_control(&self) -> Result<()> {
        if self.models.model_control
            && is_open(&self.connection.listen)
            && self.connection.token_file.is_none()
            && !self.models.insecure_model_control
        {
            let reason = "--model-control needs --token-file if other machines can connect: without a token any client can unload models. \
                Add --token-file, or allow it with --insecure-model-control";
            return Err(Usage(reason).into());
        }
        Ok(())
    }

    fn instances(&self) -> hipvit::Result<Vec<SessionBuilder>> {
        let builder = self.config.builder();
        let default = Devices::from(Device::Auto);
        let devices = self.config.device.as_ref().unwrap_or(&default);
        let groups = groups(devices.sets(), self.config.execution.parallel)?.into_iter();
        let instance = |(devices, parallelism)| builder.clone().devices(devices).parallel(parallelism);
        Ok(groups.map(instance).collect())
    }

    fn options(&self) -> Result<ServerOptions> {
        let mut options = ServerOptions::default();
        let models = self.models.positional.iter().chain(&self.models.model);
        options.models = models.cloned().collect();
        if options.models.is_empty() && self.models.repository.is_none() {
            options.models.push(ModelSource::tinyvit32());
        }
        options.repository.clone_from(&self.models.repository);
        options.load_repository = !self.models.no_load;
        options.model_control = self.models.model_control;
        if self.models.no_load && !self.models.model_control {
            return Err(
                Usage("--no-load needs --model-control, because no model could be loaded otherwise").into(),
            );
        }
        self.check_model_control()?;
        options.listen.clone_from(&self.connection.listen);
        options.instances = self.instances()?;
        options.decode_threads = self.decode_threads.unwrap_or(0);
        options.max_batch = self.config.batch;
        options.max_delay = Duration::from_micros(self.queueing.max_delay_us);
        options.queue = self.queueing.queue;
        options.backlog = self.queueing.backlog;
        options.pixel_values = self.outputs.pixel_values;
        options.tokens = self.outputs.tokens;
        options.explanation = self.outputs.explanation;
        options.texts = !self.outputs.no_texts;
        options.access_log = self.observation.access_log.form();
        options.limits = self.limits.limits();
        if let Some(path) = &self.connection.token_file {
            options.token = Some(read_token(path)?);
        }
        options.allowed_hosts.clone_from(&self.connection.allow_host);
        if let (Some(certificate), Some(key)) = (&self.connection.tls_certificate, &self.connection.tls_key) {
            options.tls = Some(TlsFiles::new(certificate, key));
        }
        options.otlp_endpoint = self
            .observation
            .otlp_endpoint
            .clone()
            .or_else(hipvit_serve::otlp_endpoint);
        options.drain_delay = self.queueing.drain_delay;
        options.drain_timeout = self.queueing.drain_timeout;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_without_a_name_has_that_of_its_folder_or_repository() {
        for (model, name) in [
            ("models/vit", "vit"),
            ("models/vit/", "vit"),
            ("org/vit@v1", "vit"),
            ("https://huggingface.co/org/vit", "vit"),
            ("https://huggingface.co/org/vit/tree/v1", "vit"),
        ] {
            assert_eq!(last_part(model), name, "{model}");
        }
    }

    #[test]
    fn connections_leave_files_to_the_models() {
        assert_eq!(connections(None, None), 1024);
        assert_eq!(connections(None, Some(1 << 20)), 1024);
        assert_eq!(connections(None, Some(1024)), 768);
        assert_eq!(connections(None, Some(64)), 32);
        assert_eq!(connections(None, Some(0)), 1);
        assert_eq!(connections(Some(5000), Some(1024)), 5000);
    }

    #[test]
    fn a_host_has_neither_scheme_nor_port() {
        assert_eq!(host_name("vit.example.org").unwrap(), "vit.example.org");
        assert_eq!(host_name("localhost.").unwrap(), "localhost");
        for wrong in ["", ".", "http://vit", "vit:8000", "*", "a b"] {
            assert!(host_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_device_or_group_of_gpus_has_an_instance() {
        let of = |devices, parallel: &str| -> hipvit::Result<Vec<String>> {
            let groups = groups(&DeviceSet::list(devices)?, parallel.parse()?)?;
            let shown = |(devices, parallelism)| format!("{devices} {parallelism}");
            Ok(groups.into_iter().map(shown).collect())
        };
        for (devices, parallel, expected) in [
            ("auto", "data", &["auto data=1"][..]),
            (
                "hip:0,1,3",
                "data",
                &["hip:0 data=1", "hip:1 data=1", "hip:3 data=1"],
            ),
            ("hip,cpu", "data", &["hip:0 data=1", "cpu data=1"]),
            ("hip:0,hip:0", "data", &["hip:0 data=1", "hip:0 data=1"]),
            ("auto", "tensor", &["auto data=1"]),
            ("hip:0,1", "tensor", &["hip:0,1 tensor=2"]),
            ("hip:0,1,2", "pipeline", &["hip:0,1,2 pipeline=3"]),
            (
                "hip:3,1,hip:2,0",
                "tensor=2,data=2",
                &["hip:3,1 tensor=2", "hip:2,0 tensor=2"],
            ),
            (
                "hip:0,1,2,3",
                "tensor=2,pipeline=2",
                &["hip:0,1,2,3 tensor=2,pipeline=2"],
            ),
        ] {
            assert_eq!(of(devices, parallel).unwrap(), expected, "{devices} {parallel}");
        }
        for (devices, parallel, reason) in [
            (
                "hip:0,1,2",
                "tensor=2",
                "parallel: data,tensor=2 takes a multiple of 2 GPUs, and the session has 3 devices",
            ),
            (
                "hip:0,1",
                "data=3",
                "parallel: data=3 takes 3 GPUs, and the session has 2 devices",
            ),
            (
                "hip:0,cpu",
                "tensor",
                "device: `hip:0,cpu`: several devices are GPUs, each with its number, as in hip:0,1",
            ),
            ("hip:0,1,hip:1,2", "tensor=2", "device: hip:1 is named twice"),
        ] {
            assert_eq!(of(devices, parallel).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn a_model_has_a_name_for_urls() {
        assert_eq!(model("vit-b_1.0=a=b"), Ok(ModelSource::new("vit-b_1.0", "a=b")));
        for (text, name) in [
            ("vit", "vit"),
            ("models/vit_tiny.augreg/", "vit_tiny.augreg"),
            ("timm/vit_tiny@main", "vit_tiny"),
            ("runs/lr=3/vit", "vit"),
        ] {
            let source = model(text).unwrap();
            assert_eq!(source.name, name, "{text}");
            assert_eq!(source.directory.as_deref(), Some(Path::new(text)), "{text}");
        }
        for wrong in ["", "=dir", "vit=", "a b=dir", "a b", "runs/lr=3"] {
            assert!(model(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            model("runs/lr=3").unwrap_err(),
            "`lr=3` is not a valid model name (letters, digits, `-`, `_` and `.`): write NAME=runs/lr=3"
        );
    }
}
