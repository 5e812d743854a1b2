//! Foreign web pages cannot use the server, and every refusal is counted.

use std::io::Write;
use std::net::SocketAddr;

use hipvit_serve::proto::ServerLiveRequest;
use hipvit_serve::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::support::server::grpc::{block_on, infer};
use crate::support::server::{Response, Running, connect, options, request, response};

/// Sends an HTTP/1.1 request with this `Host`.
fn of_host(address: SocketAddr, request: &str, host: &str, more: &str) -> Response {
    let mut stream = connect(address);
    let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    response(stream)
}

#[test]
fn a_page_cannot_unload_a_model() {
    let mut options = options();
    options.model_control = true;
    let running = Running::new(options);
    let unload = "/v2/repository/models/digits/unload";
    let foreign = [
        &[("Origin", "http://evil.example"), ("Content-Type", "text/plain")][..],
        &[("Origin", "null")],
        &[("Origin", "http://localhost:1")],
        &[("Sec-Fetch-Site", "cross-site")],
    ];
    for headers in foreign {
        let (status, message) = running.post(unload, headers, b"").error();
        assert_eq!(status, 403, "{message}");
        let answer = running.post("/v2/models/digits/infer", headers, b"{}");
        assert_eq!(answer.status, 403, "{headers:?}");
    }
    assert_eq!(running.get("/v2/models/digits/ready").status, 200);
    let refused = "hipvit_refused_requests_total{protocol=\"http\",reason=\"forbidden\"}";
    assert_eq!(running.metric(refused), 8.0);
    // The server's own origin, as a page that it served would have.
    let own = [("Origin", "http://localhost")];
    assert_eq!(running.post(unload, &own, b"").status, 200);
}

#[test]
fn a_name_that_was_pointed_at_loopback_is_refused() {
    let running = Running::digits();
    for path in ["/v2/models/digits", "/v2/health/live", "/metrics", "/v1/models"] {
        let answer = of_host(running.address, &format!("GET {path}"), "evil.example:8000", "");
        assert_eq!(answer.status, 403, "{path}");
        assert!(
            answer.text().contains("--allow-host evil.example"),
            "{}",
            answer.text()
        );
    }
    let port = running.address.port();
    for host in [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        "[::1]".into(),
    ] {
        assert_eq!(
            of_host(running.address, "GET /v2", &host, "").status,
            200,
            "{host}"
        );
    }
    block_on(async {
        let stream = tokio::net::TcpStream::connect(running.address).await.unwrap();
        let connect = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = connect.await.unwrap();
        tokio::spawn(connection);
        let send = tower::service_fn(move |request: hyper::Request<tonic::body::Body>| {
            sender.clone().send_request(request)
        });
        let origin = "http://evil.example:8000".parse().unwrap();
        let mut client = GrpcInferenceServiceClient::with_origin(send, origin);
        let status = client.model_infer(infer(&[1])).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
        let status = client.server_live(ServerLiveRequest {}).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
    });
    let refused = "hipvit_refused_requests_total{protocol=\"grpc\",reason=\"forbidden\"}";
    assert_eq!(running.metric(refused), 2.0);
}

#[test]
fn an_allowed_name_is_answered() {
    let mut options = options();
    options.allowed_hosts = vec!["vit.example".into()];
    let running = Running::new(options);
    let origin = "Origin: https://vit.example\r\nContent-Length: 0\r\n";
    for host in ["vit.example", "localhost"] {
        let answer = of_host(running.address, "POST /v2/repository/index", host, origin);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[test]
fn refusals_are_counted_by_their_reason() {
    let mut options = options();
    options.token = Some("secret".into());
    options.limits.body = 1000;
    let running = Running::new(options);
    let token = [("Authorization", "Bearer secret")];
    let infer = "/v2/models/digits/infer";
    assert_eq!(running.post(infer, &[], b"{}").status, 401);
    assert_eq!(running.post(infer, &token, &[b' '; 1001]).status, 413);
    assert_eq!(running.post(infer, &token, b"{").status, 400);
    assert_eq!(running.post("/v2/nothing", &token, b"").status, 404);
    assert_eq!(running.post("/v2/models/digits", &token, b"").status, 405);
    let authorized = [("Authorization", "Bearer secret"), ("Connection", "close")];
    let metrics = request(running.address, "GET", "/metrics", &authorized, b"").text();
    for reason in [
        "unauthorized",
        "too_large",
        "invalid_argument",
        "not_found",
        "method_not_allowed",
    ] {
        let line = format!("hipvit_refused_requests_total{{protocol=\"http\",reason=\"{reason}\"}} 1");
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
    assert!(metrics.contains("\nhipvit_ready 1\n"), "{metrics}");
    // A probe's answer from a draining server is not a refusal.
    running.server().drain();
    assert_eq!(running.get("/v2/health/ready").status, 503);
    let metrics = request(running.address, "GET", "/metrics", &authorized, b"").text();
    assert!(!metrics.contains("reason=\"unavailable\""), "{metrics}");
}

#[test]
fn a_path_that_is_no_text_has_the_protocols_error() {
    let running = Running::digits();
    let (status, message) = running.get("/v2/models/%ff").error();
    assert_eq!(status, 400);
    assert!(message.contains("not UTF-8"), "{message}");
    assert_eq!(running.post("/v2/models/%ff/infer", &[], b"{}").error().0, 400);
    let answer = running.get("/v1/models/%ff");
    assert_eq!(
        (answer.status, answer.json()["error"]["message"].is_string()),
        (400, true)
    );
}
