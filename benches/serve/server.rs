//! `hipvit serve` in a process of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, Requests};

/// The name of the model.
const NAME: &str = "m";

pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
}

fn command(wrap: &[String], model: &Path, listen: SocketAddr, serve: &[String]) -> Command {
    let program = env!("CARGO_BIN_EXE_hipvit").to_owned();
    let mut words = wrap.iter().chain(std::iter::once(&program));
    let mut command = Command::new(words.next().expect("a program"));
    command
        .args(words)
        .args([
            "serve",
            "--listen",
            &listen.to_string(),
            "--log",
            "json",
            "--model",
        ])
        .arg(format!("{NAME}={}", model.display()))
        .args(serve);
    command
}

impl Server {
    pub(crate) fn start(model: &Path, serve: &[String], wrap: &[String]) -> Self {
        let mut process = command(wrap, model, ([127, 0, 0, 1], 0).into(), serve)
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
    pub(crate) fn memory(&self) -> f64 {
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

/// The seconds from the start of the process to its first logits over HTTP.
pub(crate) fn first_logits(model: &Path, serve: &[String], wrap: &[String], requests: &Requests) -> f64 {
    // A port that is free; a client can knock there before the server listens.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.expect("a free port");
    let begin = Instant::now();
    let process = command(wrap, model, address, serve)
        .stderr(Stdio::null())
        .spawn()
        .expect("hipvit starts");
    let server = Server { process, address };
    let mut client = Client::new(address);
    while client.send(requests.one()) != 200 {
        assert!(begin.elapsed() < Duration::from_secs(300), "no answer");
        thread::sleep(Duration::from_millis(1));
    }
    let seconds = begin.elapsed().as_secs_f64();
    drop(server);
    seconds
}
