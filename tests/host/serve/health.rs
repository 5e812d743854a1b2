//! gRPC's health checking protocol.

use std::net::SocketAddr;
use std::time::Duration;

use hipvit_serve::proto::health::health_check_response::ServingStatus;
use hipvit_serve::proto::health::health_client::HealthClient;
use hipvit_serve::proto::health::{HealthCheckRequest, HealthCheckResponse};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::body::Body;
use tonic::{Code, Request};
use tower::Service;

use crate::support::server::grpc::block_on;
use crate::support::server::{MODEL, Running, options};

async fn client(
    address: SocketAddr,
) -> HealthClient<
    impl Service<hyper::Request<Body>, Response = hyper::Response<Incoming>, Error = hyper::Error, Future: Send>
    + Clone,
> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let connect = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = connect.await.unwrap();
    tokio::spawn(connection);
    let send = tower::service_fn(move |request: hyper::Request<Body>| sender.clone().send_request(request));
    HealthClient::with_origin(send, format!("http://{address}").parse().unwrap())
}

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.into(),
    }
}

#[test]
fn the_server_and_each_model_are_checked() {
    let mut options = options();
    options.model_control = true;
    let running = Running::new(options);
    block_on(async {
        let mut client = client(running.address).await;
        for service in ["", "inference.GRPCInferenceService", MODEL] {
            let answer = client.check(of(service)).await.unwrap().into_inner();
            assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
        }
        assert_eq!(client.check(of("cats")).await.unwrap_err().code(), Code::NotFound);
    });
    assert_eq!(
        running
            .post("/v2/repository/models/digits/unload", &[], b"")
            .status,
        200
    );
    block_on(async {
        let mut client = client(running.address).await;
        let answer = client.check(of(MODEL)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::NotServing);
    });
    running.server().drain();
    block_on(async {
        let answer = client(running.address)
            .await
            .check(of(""))
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.status(), ServingStatus::NotServing);
    });
}

#[test]
fn a_watch_tells_of_each_change_and_ends_with_the_server() {
    let mut options = options();
    options.model_control = true;
    // An open watch does not hold up the end.
    options.drain_timeout = Duration::from_secs(86400);
    let running = Running::new(options);
    let post = |what: &str| {
        running
            .post(&format!("/v2/repository/models/digits/{what}"), &[], b"")
            .status
    };
    block_on(async {
        let mut client = client(running.address).await;
        let mut model = client.watch(of(MODEL)).await.unwrap().into_inner();
        let mut unknown = client.watch(of("cats")).await.unwrap().into_inner();
        let status = |answer: Option<HealthCheckResponse>| answer.unwrap().status();
        assert_eq!(
            status(unknown.message().await.unwrap()),
            ServingStatus::ServiceUnknown
        );
        assert_eq!(status(model.message().await.unwrap()), ServingStatus::Serving);
        assert_eq!(post("unload"), 200);
        assert_eq!(status(model.message().await.unwrap()), ServingStatus::NotServing);
        assert_eq!(post("load"), 200);
        assert_eq!(status(model.message().await.unwrap()), ServingStatus::Serving);
        running.server().drain();
        assert_eq!(status(model.message().await.unwrap()), ServingStatus::NotServing);
        assert_eq!(model.message().await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(unknown.message().await.unwrap_err().code(), Code::Unavailable);
    });
    running.stop();
}

#[test]
fn without_a_token_only_the_whole_server_is_checked() {
    let mut options = options();
    options.token = Some("secret".into());
    let running = Running::new(options);
    block_on(async {
        let mut client = client(running.address).await;
        assert!(client.check(of("")).await.is_ok());
        for service in [MODEL, "cats"] {
            let status = client.check(of(service)).await.unwrap_err();
            assert_eq!(status.code(), Code::Unauthenticated);
        }
        assert_eq!(
            client.watch(of("")).await.unwrap_err().code(),
            Code::Unauthenticated
        );
        let mut request = Request::new(of(MODEL));
        request
            .metadata_mut()
            .insert("authorization", "Bearer secret".parse().unwrap());
        assert!(client.check(request).await.is_ok());
    });
}

#[test]
fn watches_are_bounded() {
    let running = Running::digits();
    block_on(async {
        let mut open = Vec::new();
        // A connection has at most 128 streams at once.
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(client(running.address).await);
        }
        for watch in 0..256 {
            let client = &mut clients[watch / 100];
            open.push(client.watch(of("")).await.unwrap().into_inner());
        }
        let last = &mut clients[2];
        let status = last.watch(of("")).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        drop(open);
        while last.watch(of("")).await.is_err() {
            tokio::task::yield_now().await;
        }
    });
}
