//! `hipvit serve` in a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Returns the command that starts a server on a free port, with its events as JSON on a pipe.
pub(crate) fn command(more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hipvit"));
    command
        .args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--device",
            "cpu",
            "--threads",
            "1",
            "--log",
            "json",
        ])
        .args(more)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Starts a server in a separate process. Returns its address, too.
pub(crate) fn process(
    more: &[&str],
) -> (
    std::process::Child,
    SocketAddr,
    BufReader<std::process::ChildStderr>,
) {
    started(command(more))
}

/// Starts a server with a pipe as standard error, and waits until it reports its address.
pub(crate) fn started(
    mut command: Command,
) -> (
    std::process::Child,
    SocketAddr,
    BufReader<std::process::ChildStderr>,
) {
    let mut child = command.spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let address = loop {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the server ended");
        let event: Value = serde_json::from_str(&line).unwrap();
        if event["message"] == "listening" {
            break event["address"].as_str().unwrap().parse().unwrap();
        }
    };
    (child, address, log)
}

pub(crate) fn signal(child: &std::process::Child, name: &str) {
    let status = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}
