//! The access log on standard output. The server does not depend on its reader.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::support::server::grpc::{self, block_on, client};
use crate::support::server::process::{self, signal};
use crate::support::server::{connect, request, samples, wait_until};

/// Starts a server that writes its access log to `output`. Returns its address, too.
fn server(form: &str, output: Stdio, more: &[&str]) -> (Child, SocketAddr) {
    let mut child = process::command(more)
        .args(["--access-log", form])
        .stdout(output)
        .spawn()
        .unwrap();
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
    // Taken, so that the server can write.
    thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    (child, address)
}

fn ends_well(mut child: Child) -> String {
    signal(&child, "-TERM");
    let mut text = String::new();
    if let Some(mut output) = child.stdout.take() {
        output.read_to_string(&mut text).unwrap();
    }
    assert!(child.wait().unwrap().success());
    text
}

#[test]
fn each_request_has_a_line() {
    let (child, address) = server("json", Stdio::piped(), &[]);
    let infer = |body: &Value, headers: &[(&str, &str)]| {
        request(
            address,
            "POST",
            "/v2/models/tinyvit32/infer",
            headers,
            body.to_string().as_bytes(),
        )
    };
    let mut body = samples(&[1, 2]);
    body["id"] = "mine".into();
    let answer = infer(&body, &[]);
    assert_eq!(answer.status, 200);
    assert_eq!(
        infer(&json!({"inputs": []}), &[("X-Request-Id", "theirs")]).status,
        400
    );
    assert_eq!(
        request(address, "GET", "/v2/health/ready?token=secret", &[], b"").status,
        200
    );
    assert_eq!(request(address, "GET", "/nothing", &[], b"").status, 404);
    block_on(async {
        let mut client = client(address).await;
        let mut request = grpc::infer(&[1]);
        request.model_name = "tinyvit32".into();
        client.model_infer(request.clone()).await.unwrap();
        request.model_name = "cats".into();
        client.model_infer(request).await.unwrap_err();
    });
    let text = ends_well(child);
    assert!(!text.contains("secret"), "{text}");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 6, "{text}");
    let first = &lines[0];
    for (key, expected) in [
        ("method", json!("POST")),
        ("path", json!("/v2/models/tinyvit32/infer")),
        ("status", json!(200)),
        ("request_bytes", json!(body.to_string().len())),
        ("bytes", json!(answer.body.len())),
        ("model", json!("tinyvit32")),
        ("images", json!(2)),
        ("id", json!("mine")),
    ] {
        assert_eq!(first[key], expected, "{key}");
    }
    assert!(first["duration_ms"].as_f64().unwrap() > 0.0);
    assert!(first["client"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(first["time"].as_str().unwrap().ends_with('Z'));
    assert!(first.get("incomplete").is_none());
    assert_eq!(
        (&lines[1]["status"], &lines[1]["id"]),
        (&json!(400), &json!("theirs"))
    );
    assert_eq!(lines[2]["path"], "/v2/health/ready");
    assert_eq!(lines[3]["status"], 404);
    assert_eq!(
        (&lines[4]["status"], &lines[4]["grpc_status"]),
        (&json!(200), &json!(0))
    );
    assert_eq!(lines[4]["images"], 1);
    assert_eq!(lines[5]["grpc_status"], 5);
}

#[test]
fn a_server_without_an_access_log_writes_nothing() {
    let (child, address) = server("off", Stdio::piped(), &[]);
    assert_eq!(request(address, "GET", "/v2", &[], b"").status, 200);
    assert_eq!(ends_well(child), "");
}

#[test]
fn a_full_disk_or_a_closed_pipe_stops_nothing() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let (mut closed, address_of_closed) = server("text", Stdio::piped(), &[]);
    drop(closed.stdout.take());
    let (on_full, address_of_full) = server("text", full.into(), &[]);
    for (child, address) in [(closed, address_of_closed), (on_full, address_of_full)] {
        for _ in 0..3 {
            let body = samples(&[1]).to_string();
            let answer = request(
                address,
                "POST",
                "/v2/models/tinyvit32/infer",
                &[],
                body.as_bytes(),
            );
            assert_eq!(answer.status, 200);
        }
        wait_until("lines are counted as dropped", || {
            let metrics = request(address, "GET", "/metrics", &[], b"").text();
            let dropped = metrics
                .lines()
                .find(|line| line.starts_with("hipvit_access_log_dropped_total "));
            dropped.is_some_and(|line| !line.ends_with(" 0"))
        });
        ends_well(child);
    }
}

/// A reader of the log stops reading, so its pipe is full after some hundred lines.
#[test]
fn a_reader_that_stops_reading_slows_nothing() {
    let (child, address) = server("json", Stdio::piped(), &[]);
    let path = format!("/{}", "x".repeat(200));
    let mut stream = connect(address);
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    // More than a pipe of 64 KiB and the queue of 4096 lines take.
    for _ in 0..60 {
        stream.write_all(head.repeat(100).as_bytes()).unwrap();
        let mut answers = 0;
        let mut bytes = vec![0; 1 << 16];
        let mut tail = Vec::new();
        while answers < 100 {
            let count = stream.read(&mut bytes).unwrap();
            assert_ne!(count, 0, "the server closed the connection");
            tail.extend_from_slice(&bytes[..count]);
            answers = tail
                .windows(12)
                .filter(|window| *window == b"HTTP/1.1 404")
                .count();
        }
    }
    drop(stream);
    let metrics = request(address, "GET", "/metrics", &[], b"").text();
    let dropped = metrics
        .lines()
        .find(|line| line.starts_with("hipvit_access_log_dropped_total "));
    assert!(dropped.is_some_and(|line| !line.ends_with(" 0")), "{dropped:?}");
    signal(&child, "-TERM");
    let mut child = child;
    assert!(child.wait().unwrap().success());
}
