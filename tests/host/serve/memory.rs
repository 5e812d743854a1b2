//! The cost of a request for the server never exceeds its account of memory.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tonic::codegen::tokio_stream;

use crate::support::server::grpc::{block_on, client, infer};
use crate::support::server::{MODEL, Running, connect, options, samples, wait_until};

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// Returns the bytes in the account of memory.
fn counted(running: &Running) -> f64 {
    running.metric("hipvit_request_body_bytes ")
}

/// Opens an HTTP/2 connection with this window for answers.
async fn http2(address: SocketAddr, window: u32) -> SendRequest<Full<Bytes>> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let connect = Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(stream));
    let (sender, connection) = connect.await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn post(
    sender: &mut SendRequest<Full<Bytes>>,
    path: &str,
    kind: &str,
    body: Vec<u8>,
) -> hyper::Response<Incoming> {
    let request = hyper::Request::post(format!("http://localhost{path}"))
        .header("content-type", kind)
        .body(Full::new(Bytes::from(body)));
    sender.send_request(request.unwrap()).await.unwrap()
}

/// Returns the status and the message of a call with this message.
async fn call(running: &Running, path: &str, message: &[u8]) -> (String, String) {
    let mut sender = http2(running.address, 1 << 20).await;
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = [&[0], &length[..], message].concat();
    let response = post(&mut sender, path, "application/grpc", body).await;
    let mut headers = response.headers().clone();
    if let Some(trailers) = response.into_body().collect().await.unwrap().trailers() {
        headers.extend(trailers.clone());
    }
    let of = |name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    (of("grpc-status").unwrap(), of("grpc-message").unwrap_or_default())
}

/// Encodes a field of a message from its number and bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        field.push(length as u8 | 0x80);
        length >>= 7;
    }
    field.push(length as u8);
    field.extend(bytes);
    field
}

#[test]
fn a_message_of_many_short_fields_is_refused_before_it_is_decoded() {
    let mut options = options();
    options.limits.all_bodies = 64 << 20;
    let running = Running::new(options);
    let half = 1 << 19;
    let contents = |contents: &[u8]| [field(1, MODEL.as_bytes()), field(5, &field(5, contents))].concat();
    let messages = [
        ("3", [0x2a, 0].repeat(half)),
        ("3", [0x32, 0].repeat(half)),
        ("3", [0x22, 0].repeat(half)),
        ("3", [0x3a, 0].repeat(half)),
        ("3", field(5, &[0x18, 1].repeat(half))),
        ("3", field(5, &[0x22, 0].repeat(half))),
        // Elements of BYTES, of which there may be many, count for what they become.
        ("8", contents(&[0x42, 0].repeat(half))),
    ];
    block_on(async {
        for path in [INFER, STREAM] {
            for (expected, message) in &messages {
                let (status, reason) = call(&running, path, message).await;
                // A stream answers a wrong request with a message, and goes on.
                let expected = if path == STREAM { "0" } else { expected };
                assert_eq!((status.as_str(), path), (expected, path), "{reason}");
            }
        }
        // A call that is not an inference is counted, too.
        let parameters = [0x1a, 0].repeat(half);
        let load = "/inference.GRPCInferenceService/RepositoryModelLoad";
        assert_eq!(call(&running, load, &parameters).await.0, "8");
        // Ordinary requests go on.
        let mut client = client(running.address).await;
        client.model_infer(infer(&[1])).await.unwrap();
    });
    wait_until("all memory is free", || counted(&running) == 0.0);
}

#[test]
fn json_of_many_short_elements_is_refused_or_skipped() {
    let mut options = options();
    options.limits.all_bodies = 64 << 20;
    let running = Running::new(options);
    let path = format!("/v2/models/{MODEL}/infer");
    let list = |element: &str| format!("[{}]", vec![element; 1 << 18].join(","));
    let empty = list(r#""""#);
    let body = format!(r#"{{"inputs":[{{"name":"image","shape":[1],"datatype":"BYTES","data":{empty}}}]}}"#);
    assert_eq!(running.post(&path, &[], body.as_bytes()).status, 413);
    let body = format!(r#"{{"model":"{MODEL}","input":{empty}}}"#);
    assert_eq!(running.post("/v1/embeddings", &[], body.as_bytes()).status, 413);
    let nested = list("0");
    let mut body = samples(&[1]).to_string();
    body.insert_str(1, &format!(r#""parameters":{{"a":[{nested}]}},"#));
    assert_eq!(running.post(&path, &[], body.as_bytes()).status, 200);
    // Binary elements without contents.
    let head = json!({"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 1 << 20}}]});
    let head = head.to_string();
    let body = [head.as_bytes(), &vec![0; 1 << 20]].concat();
    let length = head.len().to_string();
    let headers = [("Inference-Header-Content-Length", length.as_str())];
    assert_eq!(running.post(&path, &headers, &body).status, 413);
    wait_until("all memory is free", || counted(&running) == 0.0);
}

#[test]
fn bodies_that_are_announced_and_do_not_come_take_no_memory() {
    let mut options = options();
    options.token = Some("secret".into());
    let running = Running::new(options);
    let announce = |path: &str| {
        let mut stream = connect(running.address);
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nContent-Length: 67108864\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let announced: Vec<_> = (0..40).map(|_| announce("/v2/models/digits/infer")).collect();
    // Health is answered without the body.
    let mut health = announce("/health");
    let mut begin = [0; 12];
    health.read_exact(&mut begin).unwrap();
    assert!(begin.starts_with(b"HTTP/1.1 "));
    let token = [("Authorization", "Bearer secret")];
    let body = samples(&[1]).to_string();
    let answer = running.post("/v2/models/digits/infer", &token, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    drop((announced, health));
}

/// Clients are distinguished by their addresses.
#[test]
fn a_client_that_takes_all_it_can_leaves_memory_for_another() {
    let mut options = options();
    options.limits.all_bodies = 2 << 20;
    let running = Running::new(options);
    block_on(async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let send = async || {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
            let mut stream = socket.connect(running.address).await.unwrap();
            let head =
                "POST /v2/models/digits/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400000\r\n\r\n";
            let sent = [head.as_bytes(), &[b' '; 399_999]].concat();
            let _ = stream.write_all(&sent).await;
            stream
        };
        // Two of them fit into half of the memory.
        let mut first = [send().await, send().await];
        tokio::task::block_in_place(|| wait_until("both have come", || counted(&running) >= 8e5));
        let mut refused = Vec::new();
        for _ in 0..4 {
            let mut stream = send().await;
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).await.unwrap();
            refused.push(String::from_utf8_lossy(&begin).into_owned());
        }
        assert!(
            refused.iter().all(|status| status == "HTTP/1.1 429"),
            "{refused:?}"
        );
        let answer = tokio::task::block_in_place(|| running.infer(&samples(&[1, 2, 3])));
        assert_eq!(answer.status, 200, "{}", answer.text());
        // The first ones are still served.
        for stream in &mut first {
            stream.write_all(b" ").await.unwrap();
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).await.unwrap();
            assert_eq!(&begin, b"HTTP/1.1 400");
        }
    });
}

#[test]
fn an_output_is_named_once_and_answers_are_bounded() {
    let mut options = options();
    options.tokens = true;
    options.limits.all_bodies = 1 << 20;
    let running = Running::new(options);
    let mut body = samples(&[1]);
    body["outputs"] = json!([{"name": "patch_tokens"}, {"name": "patch_tokens"}]);
    let (status, message) = running.infer(&body).error();
    assert_eq!(
        (status, message.as_str()),
        (
            400,
            "output `patch_tokens`: is named more than once. Name each output once"
        )
    );
    let mut body = samples(&[1; 64]);
    body["outputs"] = json!([{"name": "patch_tokens"}]);
    let refused = running.infer(&body);
    assert!([400, 413].contains(&refused.status), "{}", refused.text());
    assert_eq!(running.infer(&samples(&[1])).status, 200);
}

/// The window is closed, or smaller than the answer.
#[test]
fn an_answer_that_is_not_read_is_reset_and_its_memory_freed() {
    let mut options = options();
    options.tokens = true;
    // A request, and each 64 KiB of the answer that is read, must be faster.
    options.limits.body_time = Duration::from_secs(1);
    let running = Running::new(options);
    let path = format!("/v2/models/{MODEL}/infer");
    let body = samples(&[1; 16]).to_string().into_bytes();
    block_on(async {
        for window in [0, 1000] {
            let mut sender = http2(running.address, window).await;
            let mut unread = Vec::new();
            for _ in 0..4 {
                let answer = post(&mut sender, &path, "application/json", body.clone()).await;
                assert_eq!(answer.status(), 200);
                unread.push(answer);
            }
            let freed = || counted(&running) == 0.0;
            tokio::task::block_in_place(|| wait_until("the answers' memory is free", freed));
            for answer in unread {
                assert!(answer.into_body().collect().await.is_err(), "{window}");
            }
            // The connection goes on, and short answers fit.
            let live = post(&mut sender, "/v2/health/live", "application/json", Vec::new()).await;
            assert_eq!(live.status(), 405);
        }
        // An answer that is read comes whole, whatever the window.
        let mut sender = http2(running.address, 1000).await;
        let answer = post(&mut sender, &path, "application/json", body.clone()).await;
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        assert!(serde_json::from_slice::<Value>(&answer).is_ok());
    });
}

#[test]
fn errors_repeat_little_and_no_path_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("broken");
    std::fs::create_dir(&model).unwrap();
    std::fs::write(model.join("config.json"), "{").unwrap();
    let mut options = options();
    options.repository = Some(folder.path().to_owned());
    options.load_repository = false;
    options.model_control = true;
    let running = Running::new(options);
    let long = "é".repeat(100_000);
    for body in [
        json!({"inputs": [{"name": long, "shape": [1], "datatype": "BYTES", "data": ["x"]}]}),
        json!({"inputs": [{"name": "image", "shape": [1], "datatype": long, "data": ["x"]}]}),
        json!({"inputs": [{"name": "image", "shape": long, "datatype": "BYTES", "data": ["x"]}]}),
        json!({"inputs": [], "outputs": [{"name": long}]}),
        json!({"inputs": [], "parameters": {"priority": long}}),
        json!({"inputs": [], "id": long}),
    ] {
        let (status, message) = running.infer(&body).error();
        assert!(
            status == 400 && message.len() <= 1024,
            "{status} {}",
            message.len()
        );
    }
    block_on(async {
        let mut client = client(running.address).await;
        let mut wrong = infer(&[1]);
        wrong.inputs[0].name = long.clone();
        let status = client.model_infer(wrong).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(status.message().len() <= 1024);
    });
    let hidden = folder.path().to_str().unwrap();
    let (status, message) = running
        .post("/v2/repository/models/broken/load", &[], b"")
        .error();
    assert!(
        status == 400 && message.contains("broken/config.json"),
        "{message}"
    );
    assert!(!message.contains(hidden), "{message}");
    let index = running.post("/v2/repository/index", &[], b"").text();
    assert!(
        index.contains("broken/config.json") && !index.contains(hidden),
        "{index}"
    );
}

/// The heads of requests that wait for their bodies count as well, also for requests without a token.
#[test]
fn heads_that_wait_for_their_bodies_count() {
    const CHECK: &str = "/grpc.health.v1.Health/Check";
    let running = Running::digits();
    let fields: Vec<String> = (0..100).map(|field| format!("f{field}")).collect();
    block_on(async {
        let stream = tokio::net::TcpStream::connect(running.address).await.unwrap();
        let connect = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream));
        let (sender, connection) = connect.await.unwrap();
        tokio::spawn(connection);
        let (answers, mut answered) = tokio::sync::mpsc::channel(128);
        for _ in 0..100 {
            let mut request = hyper::Request::post(format!("http://localhost{CHECK}"));
            for field in &fields {
                request = request.header(field, "");
            }
            // A body that does not come.
            let body = StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Infallible>>());
            let request = request
                .header("content-type", "application/grpc")
                .body(body)
                .unwrap();
            let (mut sender, answers) = (sender.clone(), answers.clone());
            tokio::spawn(async move {
                sender.ready().await.unwrap();
                if let Ok(response) = sender.send_request(request).await {
                    let _ = answers.send(response.headers()["grpc-status"].clone()).await;
                }
            });
        }
        // About 24 KiB each, and 2 MiB for one client.
        let refused = tokio::time::timeout(Duration::from_secs(60), answered.recv()).await;
        assert_eq!(refused.unwrap().unwrap(), "14");
        let counted = counted(&running);
        assert!((1048576.0..=2097152.0).contains(&counted), "{counted}");
        // Another client is served.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let stream = socket.connect(running.address).await.unwrap();
        let connect = Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream));
        let (mut other, connection) = connect.await.unwrap();
        tokio::spawn(connection);
        let response = post(&mut other, CHECK, "application/grpc", vec![0; 5]).await;
        let trailers = response.into_body().collect().await.unwrap().trailers().cloned();
        assert_eq!(trailers.unwrap()["grpc-status"], "0");
    });
    wait_until("all memory is free", || counted(&running) == 0.0);
}
