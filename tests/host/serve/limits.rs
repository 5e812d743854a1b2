//! Limits on clients.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::json;

use crate::support::server::grpc::{block_on, client, infer};
use crate::support::server::{Running, connect, options, response, samples, wait_until};

#[test]
fn a_body_beyond_the_limit_is_refused_by_both_protocols() {
    let mut options = options();
    options.limits.body = 300;
    let running = Running::new(options);
    let (status, message) = running.post("/v2/models/digits/infer", &[], &[b' '; 301]).error();
    assert_eq!(
        (status, message.as_str()),
        (413, "the body exceeds the limit of 300 bytes")
    );
    block_on(async {
        let mut client = client(running.address).await;
        let status = client.model_infer(infer(&[1])).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    });
    // The server goes on.
    assert_eq!(running.get("/v2/health/ready").status, 200);
}

/// A silent stream counts for its buffers, and also for its message while there is one.
#[test]
fn streams_beyond_the_memory_for_bodies_are_refused() {
    use tonic::codegen::tokio_stream::{pending, wrappers::ReceiverStream};
    let mut options = options();
    options.limits.body = 64 << 10;
    // Half of it for this client: six streams of 16 KiB and their heads of about 10, and a small request.
    options.limits.all_bodies = 332 << 10;
    let running = Running::new(options);
    block_on(async {
        let mut client = client(running.address).await;
        let mut idle = Vec::new();
        for _ in 0..5 {
            idle.push(client.model_stream_infer(pending()).await.unwrap());
        }
        let (requests, open) = tokio::sync::mpsc::channel(1);
        let sixth = client.model_stream_infer(ReceiverStream::new(open)).await;
        let mut answers = sixth.unwrap().into_inner();
        let status = client.model_stream_infer(pending()).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        // What is left is for other requests.
        client.model_infer(infer(&[1])).await.unwrap();
        // The streams work, and give their memory back after each message.
        for _ in 0..10 {
            requests.send(infer(&[2])).await.unwrap();
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!(answer.error_message, "");
        }
        // A message without memory ends its stream.
        let mut large = infer(&[2]);
        large.model_version = "7".repeat(24 << 10);
        requests.send(large).await.unwrap();
        let status = answers.message().await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.metadata().contains_key("retry-after"));
        while client.model_stream_infer(pending()).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn an_image_beyond_the_limit_is_not_decoded() {
    let mut options = options();
    options.limits.image.max_pixels = 100;
    let running = Running::new(options);
    let (status, message) = running.infer(&samples(&[1])).error();
    assert_eq!(status, 400);
    assert!(
        message.starts_with("input `image`, image 0: ") && message.contains("exceed the limit of 100"),
        "{message}"
    );
}

#[test]
fn a_slow_client_is_cut_off() {
    let mut options = options();
    options.limits.header_time = Duration::from_millis(50);
    options.limits.body_time = Duration::from_millis(50);
    let running = Running::new(options);
    // Nothing, half of HTTP/2's preface, half a head: the connection ends.
    for begin in [&b""[..], b"PRI * HT", b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n"] {
        let mut stream = connect(running.address);
        stream.write_all(begin).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(
            !rest.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&rest)
        );
    }
    // Half a body.
    let mut stream = connect(running.address);
    let head = "POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).unwrap();
    assert_eq!(
        response(stream).error(),
        (408, "the body took more than 50ms".into())
    );
}

/// A client that reads no answers keeps its connection and answers no longer than one that sends slowly.
#[test]
fn a_client_that_reads_no_answers_is_cut_off() {
    let mut options = options();
    options.tokens = true;
    options.limits.body_time = Duration::from_millis(200);
    let running = Running::new(options);
    let mut stream = connect(running.address);
    let body = samples(&[1; 64]).to_string();
    let request = format!(
        "POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // Answers of megabytes, until the buffers of both sides are full: then the server closes, and sending fails.
    while stream.write_all(request.as_bytes()).is_ok() {}
    wait_until("the connection has ended", || {
        running.metric("hipvit_connections ") <= 1.0
    });
    assert_eq!(running.infer(&samples(&[1])).status, 200);
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let mut options = options();
    options.limits.connections = 1;
    let running = Running::new(options);
    let mut first = connect(running.address);
    // It is served before its body has come, so it has its place.
    first
        .write_all(
            b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
        )
        .unwrap();
    let mut byte = [0];
    first.read_exact(&mut byte).unwrap();
    let mut second = connect(running.address);
    let _ = second.write_all(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut rest = Vec::new();
    let _ = second.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

#[test]
fn a_deadline_ends_a_request() {
    let running = Running::digits();
    let mut body = samples(&[1]);
    body["parameters"] = json!({"timeout": 1});
    let (status, message) = running.infer(&body).error();
    assert_eq!(status, 504, "{message}");
    assert!(message.contains("deadline"), "{message}");
}

#[test]
fn more_images_than_the_queue_takes_are_refused() {
    let mut options = options();
    options.queue = 2;
    let running = Running::new(options);
    let (status, message) = running.infer(&samples(&[1, 2, 3])).error();
    assert_eq!(status, 400);
    assert!(
        message.contains("3 images") && message.contains("holds 2"),
        "{message}"
    );
    assert_eq!(running.infer(&samples(&[1, 2])).status, 200);
}
