//! `hipvit serve`.

mod args;
mod connections;
mod log;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use hipvit::image::Limits;
use hipvit::run_config::Devices;
use hipvit::run_config::parsers::{self, positive};
use hipvit::{Device, DeviceSet, DtypeChoice, Parallelism, RunConfig, SessionBuilder};
use hipvit_files::regular_file;
use hipvit_serve::{self, ModelSource, Server, ServerLimits, ServerOptions, TlsFiles};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::args::{
    ConnectionArgs, LimitArgs, LogFormat, ObservationArgs, OfferedOutputs, QueueArgs, ServedModels,
};
use self::connections::{connections, open_files};
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

const AFTER_HELP: &str = "\
Inputs: image (BYTES, encoded files) or pixels (UINT8, [n, height, width, 3]); with --pixel-values also pixel_values.
Outputs: logits, top, embedding; with --tokens also patch_tokens; with --explanation also explanation.
Models that make texts of images (TrOCR, BLIP): text, finish_reason, tokens; and OpenAI's /v1/chat/completions.
Metrics for Prometheus: /metrics.

    hipvit serve vit=path/to/vit_base_patch16_224
    curl --data-binary @cat.jpg -H 'Inference-Header-Content-Length: 0' \\
      http://127.0.0.1:8000/v2/models/vit/infer

    hipvit serve --repository /models --device hip:all --dtype f16
    hipvit serve --listen 0.0.0.0:8000 --token-file token --tls-certificate chain.pem --tls-key key.pem vit=models/vit";

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
        limits.max_tokens = self.max_tokens;
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
            super::interrupt::exit_at_once();
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
        if self.config.dtype == DtypeChoice::Auto && groups.len() > 1 {
            let reason = "auto is measured, so that instances could choose differently: name a dtype";
            return Err(hipvit::Error::argument("dtype", reason));
        }
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
        options.page = !self.connection.no_page;
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
}
