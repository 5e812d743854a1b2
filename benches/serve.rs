//! `hipvit serve` under load, on this machine's loopback, beside the pipeline's own rate on the same images:
//!
//!     cargo bench --bench serve --features serve -- --model DIR --image FILE [--seconds N] [--requests N] [-- SERVE OPTIONS]
//!
//! Arrivals are random (exponential gaps) and do not wait for answers: a latency counts from the moment at which the request was to
//! be sent, so that a server that falls behind cannot hide it. Clients are threads with a connection each.

#![allow(
    clippy::expect_used,
    reason = "a benchmark that cannot go on should fail there"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hipvit::pipeline::Pipeline;
use hipvit::{Device, Session};

/// Connections: enough that an arrival does not wait for one at twice the capacity.
const CLIENTS: usize = 512;

/// Clients of the closed loop that measures the capacity.
const CLOSED: usize = 32;

struct Options {
    model: PathBuf,
    image: PathBuf,
    seconds: f64,
    requests: usize,
    serve: Vec<String>,
}

fn options() -> Options {
    let mut options = Options {
        model: "assets/tinyvit32".into(),
        image: "assets/samples/7.png".into(),
        seconds: 20.0,
        requests: 10_000,
        serve: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
        match name.as_str() {
            "--model" => options.model = value().into(),
            "--image" => options.image = value().into(),
            "--seconds" => options.seconds = value().parse().expect("a number of seconds"),
            "--requests" => options.requests = value().parse().expect("a number"),
            // Cargo's own.
            "--bench" => {}
            "--" => options.serve = arguments.by_ref().collect(),
            _ => panic!("unknown option {name}"),
        }
    }
    options
}

/// A server in a process of its own.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start(options: &Options) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "json", "--model"])
            .arg(format!("m={}", options.model.display()))
            .args(&options.serve)
            .stderr(Stdio::piped())
            .spawn()
            .expect("hipvit starts");
        let mut log = BufReader::new(process.stderr.take().expect("standard error"));
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert_ne!(log.read_line(&mut line).expect("the log"), 0, "the server ended");
            if let Some((_, rest)) = line.split_once("\"listening\",\"address\":\"") {
                let address = rest.split('"').next().unwrap_or_default();
                break address.parse().expect("an address");
            }
        };
        // What it logs later is not read by anybody else.
        thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { process, address }
    }

    /// Resident memory in MiB, by Linux.
    fn memory(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.unwrap_or(f64::NAN) / 1024.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection that is used again.
struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

impl Client {
    /// Sends a request and returns the status of its answer; 0: none.
    fn send(&mut self, request: &[u8]) -> u16 {
        let status = self.try_send(request);
        if status.is_none() {
            self.stream = None;
        }
        status.unwrap_or(0)
    }

    fn try_send(&mut self, request: &[u8]) -> Option<u16> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(self.address).ok()?;
            stream.set_nodelay(true).ok()?;
            self.stream = Some(stream);
        }
        let stream = self.stream.as_mut()?;
        stream.write_all(request).ok()?;
        let mut answer = Vec::with_capacity(4096);
        let mut chunk = [0; 4096];
        loop {
            let read = stream.read(&mut chunk).ok().filter(|&read| read > 0)?;
            answer.extend_from_slice(&chunk[..read]);
            let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
                continue;
            };
            let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .and_then(|length| length.parse().ok())?;
            if answer.len() >= end + 4 + length {
                // More than one answer to one request would be here.
                assert_eq!(answer.len(), end + 4 + length, "answered twice");
                return head.split(' ').nth(1)?.parse().ok();
            }
        }
    }
}

fn request(image: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v2/models/m/infer HTTP/1.1\r\nHost: bench\r\nInference-Header-Content-Length: 0\r\nContent-Length: {}\r\n\r\n",
        image.len()
    );
    [head.as_bytes(), image].concat()
}

/// What a load gave.
#[derive(Default)]
struct Load {
    seconds: f64,
    statuses: BTreeMap<u16, usize>,
    /// Of the accepted requests, in milliseconds.
    latencies: Vec<f64>,
}

impl Load {
    fn accepted(&self) -> usize {
        self.latencies.len()
    }

    fn rate(&self) -> f64 {
        self.accepted() as f64 / self.seconds
    }

    fn quantile(&self, q: f64) -> f64 {
        let index = (q * self.latencies.len() as f64) as usize;
        self.latencies
            .get(index.min(self.latencies.len().saturating_sub(1)))
            .copied()
            .unwrap_or(f64::NAN)
    }

    fn print(&self, name: &str) {
        println!(
            "| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:?} |",
            self.rate(),
            self.quantile(0.5),
            self.quantile(0.9),
            self.quantile(0.99),
            self.statuses
        );
    }
}

/// Sends `count` requests by `clients` threads, each at its time if there are `arrivals`.
fn load(
    address: SocketAddr,
    request: &[u8],
    clients: usize,
    count: usize,
    arrivals: Option<&[Duration]>,
) -> Load {
    let next = AtomicUsize::new(0);
    let all = Mutex::new(Load::default());
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = Client {
                    address,
                    stream: None,
                };
                let mut own = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let due = arrivals.map_or_else(Instant::now, |arrivals| begin + arrivals[index]);
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    own.push((client.send(request), due.elapsed()));
                }
                let mut all = all.lock().expect("no client panics");
                for (status, latency) in own {
                    *all.statuses.entry(status).or_default() += 1;
                    if status == 200 {
                        all.latencies.push(1e3 * latency.as_secs_f64());
                    }
                }
            });
        }
    });
    let mut load = all.into_inner().expect("no client panics");
    load.seconds = begin.elapsed().as_secs_f64();
    load.latencies.sort_by(f64::total_cmp);
    assert_eq!(
        load.statuses.values().sum::<usize>(),
        count,
        "a request has no answer"
    );
    load
}

/// Random arrivals at a rate, the same in every run.
fn arrivals(rate: f64, count: usize) -> Vec<Duration> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut at = 0.0;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        at -= (((state >> 11) as f64 + 0.5) / (1u64 << 53) as f64).ln() / rate;
        Duration::from_secs_f64(at)
    };
    std::iter::repeat_with(&mut next).take(count).collect()
}

/// The rate at which the pipeline runs the same image from a file, in images per second.
fn pipeline(options: &Options) -> f64 {
    let builder = Session::builder().device(Device::Auto);
    let session = builder.load(&options.model).expect("the model loads");
    let run = |images: usize| {
        let begin = Instant::now();
        let sources = std::iter::repeat_n(options.image.clone(), images);
        let results = Pipeline::new(&session).run(sources).expect("the pipeline starts");
        results.for_each(|item| drop(item.expect("the image runs")));
        images as f64 / begin.elapsed().as_secs_f64()
    };
    let rough = run(32);
    run((rough * options.seconds / 2.0).max(32.0) as usize)
}

fn main() {
    let options = options();
    let image = fs::read(&options.image).expect("the image");
    let request = request(&image);
    let own = pipeline(&options);
    println!("pipeline: {own:.1} images/s");
    let server = Server::start(&options);
    load(server.address, &request, CLOSED, 200, None);
    let capacity = load(
        server.address,
        &request,
        CLOSED,
        (own * options.seconds) as usize,
        None,
    );
    println!(
        "\n| load | images/s | p50 ms | p90 ms | p99 ms | answers by status |\n| --- | --- | --- | --- | --- | --- |"
    );
    capacity.print(&format!("{CLOSED} clients that wait"));
    let rate = capacity.rate();
    let mut at_90 = f64::NAN;
    for share in [0.5, 0.9, 2.0] {
        let count = (share * rate * options.seconds) as usize;
        let load = load(
            server.address,
            &request,
            CLIENTS,
            count,
            Some(&arrivals(share * rate, count)),
        );
        load.print(&format!("{:.0} % of that, random arrivals", 100.0 * share));
        match share {
            0.9 => at_90 = load.quantile(0.99),
            2.0 => println!(
                "\np99 at 200 % over that at 90 %: {:.2}",
                load.quantile(0.99) / at_90
            ),
            _ => {}
        }
    }
    println!("served over pipeline: {:.2}", rate / own);
    let before = server.memory();
    let many = load(server.address, &request, CLOSED, options.requests, None);
    println!(
        "{} more requests: {:?}; resident memory {before:.1} MiB before, {:.1} MiB after",
        options.requests,
        many.statuses,
        server.memory()
    );
}
