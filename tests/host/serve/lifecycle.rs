//! The end of the server, and clients that leave.

use std::io::{BufRead, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use hipvit_serve::{ModelSource, Server};

use crate::support::at;
use crate::support::server::process::{process, signal};
use crate::support::server::{
    LIMIT, Running, connect, expected, floats, options, request, response, samples, wait_until,
};

/// Sends the head and the first ten bytes of a request, and waits until the server has read them.
fn begun(address: SocketAddr, body: &str) -> TcpStream {
    let mut stream = connect(address);
    let head = format!(
        "POST /v2/models/tinyvit32/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body.as_bytes()[..10]).unwrap();
    wait_until("the head has come", || {
        let metrics = request(address, "GET", "/metrics", &[], b"").text();
        let mut lines = metrics.lines();
        lines.any(|line| line.starts_with("hipvit_request_body_bytes ") && !line.ends_with(" 0"))
    });
    stream
}

/// Reads the log until the server reports that it drains.
fn wait_for_drain(log: &mut impl BufRead) {
    let mut line = String::new();
    while !line.contains("draining") {
        line.clear();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the server ended");
    }
}

#[test]
fn sigterm_drains() {
    let (mut child, address, mut log) = process(&[]);
    let body = samples(&[1, 2, 3, 4, 5, 6, 7, 8, 9]).to_string();
    // One has its head sent, and its body only after the signal.
    let mut late = begun(address, &body);
    signal(&child, "-TERM");
    wait_for_drain(&mut log);
    assert!(TcpStream::connect(address).is_err(), "it still accepts");
    late.write_all(&body.as_bytes()[10..]).unwrap();
    let response = response(late);
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("connection"), Some("close"));
    assert!(child.wait().unwrap().success());
}

/// Closing the terminal ends the server as SIGTERM does, also if SIGHUP arrives twice.
#[test]
fn sighup_drains() {
    let (mut child, address, mut log) = process(&[]);
    let body = samples(&[1, 2, 3]).to_string();
    let mut late = begun(address, &body);
    signal(&child, "-HUP");
    wait_for_drain(&mut log);
    signal(&child, "-HUP");
    late.write_all(&body.as_bytes()[10..]).unwrap();
    let response = response(late);
    assert_eq!(response.status, 200, "{}", response.text());
    assert!(child.wait().unwrap().success());
}

/// Browsers and probes of load balancers connect early and send nothing.
#[test]
fn a_connection_without_a_request_does_not_hold_up_the_end() {
    let mut options = options();
    // The test would take as long.
    options.limits.header_time = Duration::from_secs(86400);
    options.drain_timeout = Duration::from_secs(86400);
    let running = Running::new(options);
    let _silent = connect(running.address);
    wait_until("it is connected", || running.metric("hipvit_connections ") >= 2.0);
    running.stop();
}

#[test]
fn before_it_stops_the_server_is_not_ready() {
    let running = Running::digits();
    running.server().drain();
    assert_eq!(running.get("/v2/health/ready").status, 503);
    assert_eq!(running.get("/v2/models/digits/ready").status, 503);
    assert_eq!(running.get("/v2/health/live").status, 200);
    // Clients that have not noticed are still served.
    assert_eq!(running.infer(&samples(&[1])).status, 200);
    running.stop();
}

/// Abandoned images are dropped before they run.
#[test]
fn the_images_of_a_client_that_left_are_not_run() {
    let mut options = options();
    // Nothing runs until the batch is full, which it never is.
    options.max_batch = 64;
    options.max_delay = Duration::from_secs(600);
    options.limits.request_time = Duration::from_secs(600);
    let running = Running::new(options);
    let body = samples(&[1, 2]).to_string();
    let mut stream = connect(running.address);
    let head = format!(
        "POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let queued = "hipvit_queue_images{model=\"digits\",priority=\"interactive\"}";
    wait_until("the images are queued", || running.metric(queued) == 2.0);
    drop(stream);
    let cancelled = "hipvit_requests_total{model=\"digits\",protocol=\"http\",outcome=\"cancelled\"}";
    wait_until("the request is cancelled", || running.metric(cancelled) == 1.0);
    // Stopping runs what waits, except for them.
    let address = running.address;
    running.stop();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn many_clients_each_get_their_own_answers() {
    let mut options = options();
    options.decode_threads = 2;
    let running = Running::new(options);
    thread::scope(|scope| {
        for client in 0..8 {
            let running = &running;
            scope.spawn(move || {
                for round in 0..10 {
                    let digits = [(client + round) % 10, (client * 3 + round) % 10];
                    let response = running.infer(&samples(&digits)).json();
                    let expected = expected(&digits);
                    let logits = expected.logits().unwrap();
                    assert_eq!(floats(&response, "logits"), logits.as_slice().unwrap());
                }
            });
        }
    });
    assert_eq!(running.metric("hipvit_images_total{model=\"digits\"}"), 160.0);
}

#[test]
fn a_model_or_an_address_that_cannot_be_used_is_an_error() {
    let mut wrong = options();
    wrong.models = vec![ModelSource::new("none", at("tests/no_such_model"))];
    let error = Server::start(wrong).unwrap_err().to_string();
    assert!(error.contains("no_such_model"), "{error}");
    let running = Running::digits();
    let mut taken = options();
    taken.listen = vec![running.address];
    let error = Server::start(taken).unwrap_err().to_string();
    assert!(error.starts_with(&running.address.to_string()), "{error}");
}

/// An HTTP/2 client keeps a stream open and ignores GOAWAY.
#[test]
fn a_client_that_stays_is_cut_when_the_time_to_drain_is_over() {
    let mut options = options();
    options.drain_timeout = Duration::from_millis(200);
    options.limits.body_time = LIMIT;
    let running = Running::new(options);
    let mut stream = connect(running.address);
    // The preface, settings, and the head of a request whose body never comes: POST / over http to localhost.
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    stream
        .write_all(b"\0\0\x0e\x01\x04\0\0\0\x01\x83\x86\x84\x41\x09localhost")
        .unwrap();
    wait_until("it is connected", || running.metric("hipvit_connections ") >= 2.0);
    let begin = Instant::now();
    running.stop();
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}
