//! Connections without requests, with a cost above that of their requests, or in too large numbers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::server::grpc::block_on;
use crate::support::server::{LIMIT, Running, connect, options, samples, wait_until};

/// Types of HTTP/2 frames.
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 0], payload].concat()
}

/// Opens a connection and sends HTTP/2's preface and settings.
fn http2(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&frame(SETTINGS, 0, &[])).unwrap();
    stream
}

/// `GET /v2` on stream 1, by HPACK's static table.
fn get_v2() -> Vec<u8> {
    let head = [&[0x82, 0x86, 0x04, 3][..], b"/v2", &[0x01, 9], b"localhost"].concat();
    // END_STREAM and END_HEADERS.
    let mut frame = frame(1, 5, &head);
    frame[8] = 1;
    frame
}

/// Returns the types of the frames until the connection ends.
fn frames(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let (mut rest, mut kinds) = (&bytes[..], Vec::new());
    while let [a, b, c, kind, ..] = *rest {
        kinds.push(kind);
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    kinds
}

fn closed(running: &Running, reason: &str) -> f64 {
    running.metric(&format!("hipvit_closed_connections_total{{reason=\"{reason}\"}}"))
}

#[test]
fn an_http2_connection_that_asks_for_nothing_is_closed() {
    let mut options = options();
    // The request for the metrics must be faster.
    options.limits.header_time = Duration::from_secs(1);
    let running = Running::new(options);
    // The client receives GOAWAY, and is cut off because it does not answer.
    let kinds = frames(http2(running.address));
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    assert_eq!(closed(&running, "unauthorized"), 1.0);
}

#[test]
fn without_the_token_no_request_keeps_a_connection() {
    let mut options = options();
    options.token = Some("secret".into());
    options.limits.header_time = Duration::from_millis(200);
    let running = Running::new(options);
    let mut stream = connect(running.address);
    let probe = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let begin = Instant::now();
    let mut bytes = [0; 4096];
    while stream.write_all(probe).is_ok() && stream.read(&mut bytes).is_ok_and(|count| count > 0) {
        assert!(begin.elapsed() < LIMIT, "it is still open");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_idle_connection_is_closed_after_its_requests() {
    let mut options = options();
    // The second request must come sooner.
    options.limits.idle_time = Duration::from_secs(1);
    let running = Running::new(options);
    block_on(async {
        let stream = tokio::net::TcpStream::connect(running.address).await.unwrap();
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.unwrap();
        let connection = tokio::spawn(connection);
        for _ in 0..2 {
            let uri = format!("http://{}/v2", running.address);
            let request = hyper::Request::get(uri).body(Empty::<Bytes>::new()).unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), 200);
            assert!(response.headers().contains_key("date"));
            response.into_body().collect().await.unwrap();
        }
        // In order: the client is not told of an error.
        connection.await.unwrap().unwrap();
    });
    assert_eq!(closed(&running, "idle"), 1.0);
}

#[test]
fn a_peer_that_does_not_close_does_not_hold_up_the_end() {
    let mut options = options();
    options.limits.header_time = Duration::from_millis(500);
    options.drain_timeout = Duration::from_secs(86400);
    let running = Running::new(options);
    // It has been served, and does not answer the ping of the closing.
    let mut silent = http2(running.address);
    silent.write_all(&get_v2()).unwrap();
    let (mut answer, mut bytes) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&answer).contains("binary_tensor_data") {
        let count = silent.read(&mut bytes).unwrap();
        assert_ne!(count, 0, "the connection ended");
        answer.extend_from_slice(&bytes[..count]);
    }
    running.stop();
    drop(silent);
}

#[test]
fn idle_connections_make_room_for_others() {
    let mut options = options();
    options.limits.connections = 4;
    let running = Running::new(options);
    let hoarded: Vec<TcpStream> = (0..8).map(|_| http2(running.address)).collect();
    assert_eq!(running.get("/v2/health/live").status, 200);
    assert_eq!(running.infer(&samples(&[1])).status, 200);
    assert!(closed(&running, "displaced") >= 5.0);
    assert_eq!(running.metric("hipvit_refused_connections_total "), 0.0);
    assert!(running.metric("hipvit_connections ") <= 4.0);
    drop(hoarded);
}

#[test]
fn a_flood_of_frames_is_cut_off() {
    let running = Running::digits();
    let flood = |frame: Vec<u8>| {
        let mut stream = http2(running.address);
        let frames = frame.repeat(1 << 10);
        let mut sent = 0;
        while sent < 16 << 20 {
            if stream.write_all(&frames).is_err() {
                return true;
            }
            sent += frames.len();
        }
        false
    };
    // None of them is answered, so that this client need not read.
    assert!(flood(frame(PING, 1, &[0; 8])));
    assert!(flood(frame(0xee, 0, &[0; 8])));
    wait_until("both are counted", || closed(&running, "flood") == 2.0);
}

#[test]
fn a_large_request_is_no_flood() {
    let running = Running::digits();
    let body = vec![b' '; 8 << 20];
    let answer = running.post("/v2/models/digits/infer", &[], &body);
    assert_eq!(answer.error().0, 400);
    assert_eq!(closed(&running, "flood"), 0.0);
}
