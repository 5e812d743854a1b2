//! A server under load, on this machine's loopback: `hipvit serve`, beside the pipeline's own rate on the same images, or any other
//! server of the Open Inference Protocol, by the same client:
//!
//!     cargo bench --bench serve --features serve -- [--model DIR]… [--image FILE] [--seconds N] [-- SERVE OPTIONS]
//!     cargo bench --bench serve --features serve -- --url 127.0.0.1:8080 --name NAME [--image FILE] [--json]
//!
//! Arrivals are random (exponential gaps) and do not wait for answers: a latency counts from the moment at which the request was to
//! be sent, so that a server that falls behind cannot hide it. A request has from 1 to `--images` images, at random, as binary tensors
//! or with `--json` as base64. Clients are threads with a connection each. Without a model it is TinyViT32.
//!
//! `--starts N` also measures the time from the start of the process to the first logits, the median of N; `--wrap 'COMMAND …'`
//! puts a command before the server's, as `unshare --user --map-root-user --mount --pid --fork`.

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

use hipvit::pipeline::Pipeline;
use hipvit::{Device, Session};

use self::client::{Load, Requests, arrivals, load};
use self::server::Server;

/// Connections: enough that an arrival does not wait for one at twice the capacity.
const CLIENTS: usize = 512;

/// Clients of the closed loop that measures the capacity.
const CLOSED: usize = 8;

struct Options {
    models: Vec<PathBuf>,
    image: Option<PathBuf>,
    images: usize,
    seconds: f64,
    requests: usize,
    starts: usize,
    wrap: Vec<String>,
    url: Option<SocketAddr>,
    json: bool,
    name: String,
    serve: Vec<String>,
}

fn options() -> Options {
    let mut options = Options {
        models: Vec::new(),
        image: None,
        images: 4,
        seconds: 10.0,
        requests: 0,
        starts: 3,
        wrap: Vec::new(),
        url: None,
        json: false,
        name: "m".into(),
        serve: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
        match name.as_str() {
            "--model" => options.models.push(value().into()),
            "--image" => options.image = Some(value().into()),
            "--images" => options.images = value().parse().expect("a number of images"),
            "--seconds" => options.seconds = value().parse().expect("a number of seconds"),
            "--requests" => options.requests = value().parse().expect("a number of requests"),
            "--starts" => options.starts = value().parse().expect("a number of starts"),
            "--wrap" => options.wrap = value().split_whitespace().map(String::from).collect(),
            "--url" => {
                let url = value();
                let address = url.trim_start_matches("http://").trim_end_matches('/');
                options.url = Some(address.parse().expect("an IP address and a port"));
            }
            "--json" => options.json = true,
            "--name" => options.name = value(),
            // Cargo's own.
            "--bench" => {}
            "--" => options.serve = arguments.by_ref().collect(),
            _ => panic!("unknown option {name}"),
        }
    }
    if options.models.is_empty() {
        options.models.push("assets/tinyvit32".into());
    }
    options
}

impl Options {
    fn image(&self) -> PathBuf {
        self.image
            .clone()
            .unwrap_or_else(|| "assets/samples/7.png".into())
    }
}

/// The rate at which the pipeline runs the same image from a file, in images per second.
fn pipeline(options: &Options, model: &Path) -> f64 {
    let builder = Session::builder().device(Device::Auto);
    let session = builder.load(model).expect("the model loads");
    let run = |images: usize| {
        let begin = std::time::Instant::now();
        let sources = std::iter::repeat_n(options.image(), images);
        let results = Pipeline::new(&session).run(sources).expect("the pipeline starts");
        results.for_each(|item| drop(item.expect("the image runs")));
        images as f64 / begin.elapsed().as_secs_f64()
    };
    let rough = run(16);
    run((rough * options.seconds / 2.0).max(16.0) as usize)
}

/// Prints the table of loads; returns the rate of the closed loop.
fn table(address: SocketAddr, requests: &Requests, seconds: f64) -> f64 {
    // As many as tell the rate roughly; the first few wake the server up.
    load(address, requests, CLOSED, 2 * CLOSED, None);
    let rough = load(address, requests, CLOSED, 4 * CLOSED, None).requests_per_second();
    let count = |rate: f64| ((rate * seconds) as usize).max(2 * CLOSED);
    let capacity = load(address, requests, CLOSED, count(rough), None);
    println!(
        "| load | images/s | p50 ms | p90 ms | p99 ms | requests by status |\n| --- | --- | --- | --- | --- | --- |"
    );
    capacity.print(&format!("{CLOSED} clients that wait"));
    let rate = capacity.requests_per_second();
    let open = |share: f64| {
        let count = count(share * rate);
        let load = load(
            address,
            requests,
            CLIENTS,
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
    let server = Server::start(model, &options.serve, &[]);
    let served = table(server.address, requests, options.seconds);
    println!(
        "pipeline: {own:.1} images/s; served over pipeline: {:.2}",
        served / own
    );
    if options.requests > 0 {
        let before = server.memory();
        let many: Load = load(server.address, requests, CLOSED, options.requests, None);
        println!(
            "{} more requests: {:?}; resident memory {before:.1} MiB before, {:.1} MiB after",
            options.requests,
            many.statuses,
            server.memory()
        );
    }
    drop(server);
    let mut starts: Vec<f64> = (0..options.starts)
        .map(|_| server::first_logits(model, &options.serve, &options.wrap, requests))
        .collect();
    starts.sort_by(f64::total_cmp);
    if let (Some(fastest), Some(median)) = (starts.first(), starts.get(starts.len() / 2)) {
        let wrap = match options.wrap.is_empty() {
            true => String::new(),
            false => format!(" in `{}`", options.wrap.join(" ")),
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
    let options = options();
    let image = fs::read(options.image()).expect("the image");
    let requests = Requests::new(&options.name, &image, options.images, options.json);
    match options.url {
        Some(address) => {
            println!("\n## {} at {address}\n", options.name);
            table(address, &requests, options.seconds);
        }
        None => {
            for model in &options.models {
                hipvit(&options, model, &requests);
            }
        }
    }
}
