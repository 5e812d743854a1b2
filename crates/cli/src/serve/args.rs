//! The options of `hipvit serve` by subject, and the parsers of their values.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use hipvit::run_config::parsers::{positive, seconds};
use hipvit_serve::{AccessLog, ModelSource, ServerLimits, ServerOptions};

use crate::decode_args::bytes;

/// The models to serve.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Model")]
pub(super) struct ServedModels {
    /// Model directories, or ORG/NAME on the hub [default: TinyViT32]
    ///
    /// Clients use NAME, or the last part of the directory or name.
    #[arg(value_name = "[NAME=]MODEL", value_parser = model)]
    pub(super) positional: Vec<ModelSource>,
    /// Same as the MODEL arguments; repeatable
    #[arg(long, short, value_name = "[NAME=]MODEL", value_parser = model)]
    pub(super) model: Vec<ModelSource>,
    /// Directory whose subdirectories are models
    #[arg(long, value_name = "DIR")]
    pub(super) repository: Option<PathBuf>,
    /// Load no models of --repository at startup
    #[arg(long, requires = "repository", hide_short_help = true)]
    pub(super) no_load: bool,
    /// Let clients load and unload models by name
    ///
    /// Requires --token-file if other machines can connect, because clients could stop the service by unloading models.
    #[arg(long)]
    pub(super) model_control: bool,
    /// Allow --model-control from other machines without a token
    #[arg(long, requires = "model_control", hide_short_help = true)]
    pub(super) insecure_model_control: bool,
}

/// Additional inputs and outputs of the models.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OfferedOutputs {
    /// Accept pixel_values, too; loads each model twice
    #[arg(long)]
    pub(super) pixel_values: bool,
    /// Offer patch tokens as an output
    #[arg(long)]
    pub(super) tokens: bool,
    /// Offer explanations; loads each model twice
    ///
    /// An explanation is the contribution of each pixel to a class. It is computed on the host in double precision.
    #[arg(long)]
    pub(super) explanation: bool,
    /// Load neither text towers nor decoders of texts
    ///
    /// CLIP and SigLIP then take no texts, and TrOCR and BLIP embed images instead of making texts of them.
    #[arg(long, hide_short_help = true)]
    pub(super) no_texts: bool,
}

/// Addresses of the server, and access to it.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct ConnectionArgs {
    /// Address for HTTP and gRPC; repeatable
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub(super) listen: Vec<SocketAddr>,
    /// File with the bearer token of clients
    #[arg(long, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Certificate chain for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(super) tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub(super) tls_key: Option<PathBuf>,
    /// Host name of the server; repeatable
    ///
    /// Requests for other names are rejected: always on loopback, elsewhere only with this option. IP addresses and
    /// localhost are always allowed. Required behind a reverse proxy on this machine that forwards the public name.
    #[arg(long, value_name = "NAME", value_parser = host_name, hide_short_help = true)]
    pub(super) allow_host: Vec<String>,
    /// Do not serve the page at /
    #[arg(long, hide_short_help = true)]
    pub(super) no_page: bool,
}

/// Queueing of requests, and shutdown.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub(super) struct QueueArgs {
    /// Microseconds that an incomplete batch waits for more images
    #[arg(
        long,
        default_value_t = 0,
        value_name = "MICROSECONDS",
        hide_short_help = true
    )]
    pub(super) max_delay_us: u64,
    /// Maximum waiting and running images per model
    ///
    /// Further requests are rejected (429, UNAVAILABLE).
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = positive, hide_short_help = true)]
    pub(super) queue: usize,
    /// Maximum queued full batches per instance
    ///
    /// Further requests are rejected. Each stage of a pipeline counts as an instance. A larger number absorbs bursts, a
    /// smaller one shortens waits.
    #[arg(long, default_value_t = ServerOptions::default().backlog, value_name = "N", value_parser = positive, hide_short_help = true)]
    pub(super) backlog: usize,
    /// Seconds to accept requests after a signal
    ///
    /// After SIGTERM, SIGINT or SIGHUP, the server reports that it is not ready, but accepts requests for this time.
    #[arg(long, default_value = "0", value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    pub(super) drain_delay: Duration,
    /// Seconds to finish requests in flight after that
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    pub(super) drain_timeout: Duration,
}

/// Logs and traces.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct ObservationArgs {
    /// Format of the log on standard error
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    pub(super) log: LogFormat,
    /// Format of the access log on standard output
    #[arg(long, default_value = "off", value_name = "FORMAT")]
    pub(super) access_log: AccessLogFormat,
    /// Collector of OTLP traces (HTTP) [default: OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL", hide_short_help = true)]
    pub(super) otlp_endpoint: Option<String>,
}

/// Limits on requests.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Advanced")]
pub(super) struct LimitArgs {
    /// Reject images with more than N pixels
    #[arg(long, value_name = "N", default_value_t = ServerLimits::default().image.max_pixels, hide_short_help = true)]
    pub(super) max_pixels: u64,
    /// Memory for decoding, e.g. 800M or 4G [default: half of RAM]
    #[arg(long, value_name = "BYTES", value_parser = bytes, hide_short_help = true)]
    pub(super) max_decode_memory: Option<u64>,
    /// Maximum tokens of a text from an image [default: the model's]
    ///
    /// The cache of keys and values has room for a batch of such texts.
    #[arg(long, value_name = "N", value_parser = positive, hide_short_help = true)]
    pub(super) max_tokens: Option<usize>,
    /// Maximum size of a request body
    #[arg(long, value_name = "MIB", default_value_t = ServerLimits::default().body >> 20, value_parser = mebibytes, hide_short_help = true)]
    pub(super) max_body: usize,
    /// Maximum memory of all requests and responses
    #[arg(long, value_name = "MIB", default_value_t = ServerLimits::default().all_bodies >> 20, value_parser = mebibytes, hide_short_help = true)]
    pub(super) body_memory: usize,
    /// Maximum number of connections [default: 1024, or fewer]
    ///
    /// The default is lower if the limit on open files requires it.
    #[arg(long, value_name = "N", value_parser = positive, hide_short_help = true)]
    pub(super) max_connections: Option<usize>,
    /// Timeout in seconds for the header of a request
    #[arg(long, value_name = "SECONDS", default_value_t = ServerLimits::default().header_time.as_secs_f64(), value_parser = number_of_seconds, hide_short_help = true)]
    pub(super) header_timeout: f64,
    /// Timeout in seconds for idle connections
    #[arg(long, value_name = "SECONDS", default_value_t = ServerLimits::default().idle_time.as_secs_f64(), value_parser = number_of_seconds, hide_short_help = true)]
    pub(super) idle_timeout: f64,
    /// Timeout in seconds for the body of a request
    #[arg(long, value_name = "SECONDS", default_value_t = ServerLimits::default().body_time.as_secs_f64(), value_parser = number_of_seconds, hide_short_help = true)]
    pub(super) body_timeout: f64,
    /// Timeout in seconds for a request
    ///
    /// Clients can request a shorter timeout.
    #[arg(long, value_name = "SECONDS", default_value_t = ServerLimits::default().request_time.as_secs_f64(), value_parser = number_of_seconds, hide_short_help = true)]
    pub(super) timeout: f64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LogFormat {
    /// Human-readable lines
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum AccessLogFormat {
    /// No access log
    Off,
    /// Human-readable lines
    Text,
    /// One JSON object per line
    Json,
}

impl AccessLogFormat {
    pub(super) fn form(self) -> Option<AccessLog> {
        match self {
            Self::Off => None,
            Self::Text => Some(AccessLog::Text),
            Self::Json => Some(AccessLog::Json),
        }
    }
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
    fn a_host_has_neither_scheme_nor_port() {
        assert_eq!(host_name("vit.example.org").unwrap(), "vit.example.org");
        assert_eq!(host_name("localhost.").unwrap(), "localhost");
        for wrong in ["", ".", "http://vit", "vit:8000", "*", "a b"] {
            assert!(host_name(wrong).is_err(), "{wrong}");
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
