//! The generated gRPC client.

use std::net::SocketAddr;

use hipvit_serve::proto::grpc_inference_service_client::GrpcInferenceServiceClient;
use hipvit_serve::proto::model_infer_request::InferInputTensor;
use hipvit_serve::proto::{InferTensorContents, ModelInferRequest};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tonic::body::Body;
use tower::Service;

use crate::support::server::{LIMIT, MODEL, sample};

/// Runs a client's future to its end.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let limited = async { tokio::time::timeout(LIMIT, future).await };
    runtime.block_on(limited).expect("a call was not answered")
}

/// Creates a client on a new connection.
pub(crate) async fn client(
    address: SocketAddr,
) -> GrpcInferenceServiceClient<
    impl Service<hyper::Request<Body>, Response = hyper::Response<Incoming>, Error = hyper::Error, Future: Send>
    + Clone,
> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let connect = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = connect.await.unwrap();
    tokio::spawn(connection);
    let send = tower::service_fn(move |request: hyper::Request<Body>| sender.clone().send_request(request));
    let origin = format!("http://{address}").parse().unwrap();
    GrpcInferenceServiceClient::with_origin(send, origin)
}

pub(crate) fn infer(digits: &[usize]) -> ModelInferRequest {
    let images = digits.iter().map(|&digit| sample(digit).into());
    ModelInferRequest {
        model_name: MODEL.into(),
        id: "7".into(),
        inputs: vec![InferInputTensor {
            name: "image".into(),
            datatype: "BYTES".into(),
            shape: vec![digits.len() as i64],
            contents: Some(InferTensorContents {
                bytes_contents: images.collect(),
                ..InferTensorContents::default()
            }),
            ..InferInputTensor::default()
        }],
        ..ModelInferRequest::default()
    }
}
