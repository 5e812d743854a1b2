//! Loads a server on this machine's loopback. The server is `hipvit serve`, compared with the pipeline's rate
//! on the same images, or any other server of the Open Inference Protocol:
//!
//!     cargo bench --bench serve --features serve -- [--model DIR]… [--image FILE] [--seconds N] [-- SERVE OPTIONS]
//!     cargo bench --bench serve --features serve -- --model DIR --device hip --dtype bf16 --batch 64 --resize device --clients 128
//!     cargo bench --bench serve --features serve -- --url 127.0.0.1:8080 --name NAME [--image FILE] [--json]
//!
//! Arrivals are random (exponential gaps) and do not wait for answers. A latency counts from the scheduled
//! time of its request, so that a slow server cannot hide it. A request has from 1 to `--images` images, at
//! random, as binary tensors or with `--json` as base64. Clients are threads with a connection each.

#![allow(
    clippy::expect_used,
    reason = "a benchmark that cannot go on should fail there"
)]

#[path = "serve/client.rs"]
mod client;
#[path = "serve/server.rs"]
mod server;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Parser;
use hipvit::pipeline::Pipeline;
use hipvit::{DType, Device, ResizeOn, Session};

use self::client::{Load, Requests, arrivals, load};
use self::server::Server;

/// Number of connections, so that an arrival at twice the capacity does not wait for one.
const CONNECTIONS: usize = 512;

#[derive(Parser)]
struct Options {
    /// Model directory; repeatable [default: TinyViT32]
    #[arg(
        long = "model",
        value_name = "DIR",
        default_value = "assets/tinyvit32",
        hide_default_value = true
    )]
    models: Vec<PathBuf>,
    /// The image of every request
    #[arg(long, default_value = "assets/samples/7.png")]
    image: PathBuf,
    /// Maximum number of images in a request
    #[arg(long, default_value_t = 4)]
    images: usize,
    /// Duration of each load
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Clients of the closed loop that measures the capacity
    #[arg(long, default_value_t = 8)]
    clients: usize,
    #[arg(long, default_value = "auto")]
    device: Device,
    /// f32; on a GPU also f16 or bf16
    #[arg(long, default_value = "f32")]
    dtype: DType,
    /// Maximum batch size, of the pipeline too
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Where images are resized: host or device
    #[arg(long, default_value = "host")]
    resize: ResizeOn,
    /// Number of additional requests after the loads, with the server's memory before and after
    #[arg(long, default_value_t = 0)]
    requests: usize,
    /// Number of measurements of the time from the start of the process to the first logits
    #[arg(long, default_value_t = 3)]
    starts: usize,
    /// Command in front of the server's for these starts, e.g. `unshare --user --map-root-user --mount --pid
    /// --fork --kill-child`
    #[arg(long, default_value = "", value_name = "COMMAND", hide_default_value = true)]
    wrap: String,
    /// The program [default: the one that Cargo has built]
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_hipvit"), hide_default_value = true)]
    hipvit: PathBuf,
    /// Address of a running server to use instead of `hipvit serve`
    #[arg(long)]
    url: Option<SocketAddr>,
    /// Name of the model on that server
    #[arg(long, default_value = server::NAME)]
    name: String,
    /// Send requests only in JSON
    #[arg(long)]
    json: bool,
    /// Options for `hipvit serve`
    #[arg(last = true)]
    serve: Vec<String>,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    /// Returns the command that serves a model at an address.
    fn command(&self, model: &Path, listen: SocketAddr) -> Vec<String> {
        let mut words = vec![self.hipvit.display().to_string(), "serve".into()];
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        option("listen", listen.to_string());
        option("log", "json".into());
        option("model", format!("{}={}", server::NAME, model.display()));
        option("device", self.device.to_string());
        option("dtype", self.dtype.to_string());
        option("max-batch", self.batch.to_string());
        let resize = match self.resize {
            ResizeOn::Device => "device",
            _ => "host",
        };
        option("resize", resize.into());
        words.extend(self.serve.iter().cloned());
        words
    }
}

/// Returns the images per second of the pipeline, with the image read from a file.
fn pipeline(options: &Options, model: &Path) -> f64 {
    let builder = Session::builder()
        .device(options.device)
        .dtype(options.dtype)
        .batch(options.batch)
        .resize(options.resize);
    let session = builder.load(model).expect("the model loads");
    let run = |images: usize| {
        let begin = std::time::Instant::now();
        let sources = std::iter::repeat_n(options.image.clone(), images);
        let results = Pipeline::new(&session).run(sources).expect("the pipeline starts");
        results.for_each(|item| drop(item.expect("the image runs")));
        images as f64 / begin.elapsed().as_secs_f64()
    };
    // The first batches compile and allocate; a second run estimates the rate.
    run(2 * options.batch);
    let rough = run(8 * options.batch);
    run(((rough * options.seconds / 2.0) as usize).max(2 * options.batch))
}

/// Prints the table of loads. Returns the rate of the closed loop.
fn table(address: SocketAddr, requests: &Requests, options: &Options) -> f64 {
    let clients = options.clients;
    // Enough requests to estimate the rate; the first few warm up the server.
    load(address, requests, clients, 2 * clients, None);
    let rough = load(address, requests, clients, 4 * clients, None).requests_per_second();
    let count = |rate: f64| ((rate * options.seconds) as usize).max(2 * clients);
    let capacity = load(address, requests, clients, count(rough), None);
    println!(
        "| load | images/s | p50 ms | p90 ms | p99 ms | requests by status |\n| --- | --- | --- | --- | --- | --- |"
    );
    capacity.print(&format!("{clients} clients that wait"));
    let rate = capacity.requests_per_second();
    let open = |share: f64| {
        let count = count(share * rate);
        let load = load(
            address,
            requests,
            CONNECTIONS,
            count,
            Some(&arrivals(share * rate, count)),
        );
        load.print(&format!("{:.0} % of that, random arrivals", 100.0 * share));
        load
    };
    open(0.5);
    let at_90 = open(0.9);
    let at_200 = open(2.0);
    println!(
        "\np99 of the accepted at 200 % over that at 90 %: {:.2}",
        at_200.quantile(0.99) / at_90.quantile(0.99)
    );
    capacity.images_per_second()
}

fn hipvit(options: &Options, model: &Path, requests: &Requests) {
    println!("\n## hipvit, {}\n", model.display());
    let own = pipeline(options, model);
    let server = Server::start(&options.command(model, ([127, 0, 0, 1], 0).into()));
    let served = table(server.address, requests, options);
    println!(
        "pipeline: {own:.1} images/s; served over pipeline: {:.2}",
        served / own
    );
    if options.requests > 0 {
        let before = server.memory();
        let many: Load = load(server.address, requests, options.clients, options.requests, None);
        println!(
            "{} more requests: {:?}; resident memory {before:.1} MiB before, {:.1} MiB after",
            options.requests,
            many.statuses,
            server.memory()
        );
    }
    drop(server);
    let start = || {
        let address = server::free();
        let mut command: Vec<String> = options.wrap.split_whitespace().map(String::from).collect();
        command.extend(options.command(model, address));
        server::first_logits(&command, address, requests)
    };
    let mut starts: Vec<f64> = (0..options.starts).map(|_| start()).collect();
    starts.sort_by(f64::total_cmp);
    if let (Some(fastest), Some(median)) = (starts.first(), starts.get(starts.len() / 2)) {
        let wrap = match options.wrap.as_str() {
            "" => String::new(),
            wrap => format!(" in `{wrap}`"),
        };
        println!(
            "process start to first logits over HTTP{wrap}: {:.0} ms, the fastest of {} {:.0} ms",
            1e3 * median,
            starts.len(),
            1e3 * fastest
        );
    }
}

fn main() {
    let options = Options::parse();
    let image = fs::read(&options.image).expect("the image");
    let requests = Requests::new(&options.name, &image, options.images, options.json);
    match options.url {
        Some(address) => {
            println!("\n## {} at {address}\n", options.name);
            table(address, &requests, &options);
        }
        None => {
            for model in &options.models {
                hipvit(&options, model, &requests);
            }
        }
    }
}
