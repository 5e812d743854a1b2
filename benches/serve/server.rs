//! `hipvit serve` in a separate process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::{Client, Requests};

/// Name of the model.
pub(crate) const NAME: &str = "m";

pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
}

fn command(words: &[String]) -> Command {
    let (program, arguments) = words.split_first().expect("a program");
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

impl Server {
    /// Starts a server that logs its address.
    pub(crate) fn start(words: &[String]) -> Self {
        let mut process = command(words)
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
        // Drain the later log.
        thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { process, address }
    }

    /// Returns the resident memory in MiB on Linux.
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

/// Returns a free address. A client can connect before the server listens.
pub(crate) fn free() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    free.expect("a free port")
}

/// Returns the seconds from the start of the process to its first logits over HTTP.
pub(crate) fn first_logits(words: &[String], address: SocketAddr, requests: &Requests) -> f64 {
    let begin = Instant::now();
    let process = command(words)
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
