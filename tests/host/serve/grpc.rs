//! The protocol over gRPC.

use hipvit_serve::proto::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use hipvit_serve::proto::{
    InferParameter, ModelMetadataRequest, ModelReadyRequest, ServerLiveRequest, ServerMetadataRequest,
    ServerReadyRequest, infer_parameter::ParameterChoice,
};
use tonic::codegen::tokio_stream::StreamExt as _;
use tonic::{Code, Request, Status};

use crate::support::server::grpc::{block_on, client, infer};
use crate::support::server::{MODEL, Running, expected, options, request};

#[test]
fn health_and_metadata() {
    let running = Running::digits();
    block_on(async {
        let mut client = client(running.address).await;
        assert!(
            client
                .server_live(ServerLiveRequest {})
                .await
                .unwrap()
                .into_inner()
                .live
        );
        assert!(
            client
                .server_ready(ServerReadyRequest {})
                .await
                .unwrap()
                .into_inner()
                .ready
        );
        let metadata = client
            .server_metadata(ServerMetadataRequest {})
            .await
            .unwrap()
            .into_inner();
        assert_eq!(
            (metadata.name.as_str(), metadata.version.as_str()),
            ("hipvit", env!("CARGO_PKG_VERSION"))
        );
        for (name, ready) in [(MODEL, true), ("cats", false)] {
            let request = ModelReadyRequest {
                name: name.into(),
                version: String::new(),
            };
            assert_eq!(
                client.model_ready(request).await.unwrap().into_inner().ready,
                ready
            );
        }
        let request = |name: &str| ModelMetadataRequest {
            name: name.into(),
            version: "1".into(),
        };
        let model = client.model_metadata(request(MODEL)).await.unwrap().into_inner();
        assert_eq!(model.inputs[0].datatype, "BYTES");
        assert_eq!(model.outputs[0].shape, [-1, 10]);
        let status = client.model_metadata(request("cats")).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (
                Code::NotFound,
                "there is no model `cats`; the server has `digits`"
            )
        );
    });
}

#[test]
fn encoded_images_give_the_sessions_bits() {
    let running = Running::digits();
    let expected = expected(&[8, 1]);
    block_on(async {
        let mut client = client(running.address).await;
        let mut request = infer(&[8, 1]);
        let response = client.model_infer(request.clone()).await.unwrap().into_inner();
        assert_eq!((response.id.as_str(), response.outputs.len()), ("7", 3));
        let logits: Vec<u8> = expected
            .logits()
            .unwrap()
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        assert_eq!(response.raw_output_contents[0], logits);

        // Raw, and only the classes that are asked for.
        let contents = request.inputs[0].contents.take().unwrap();
        let mut raw = Vec::new();
        for image in &contents.bytes_contents {
            raw.extend((image.len() as u32).to_le_bytes());
            raw.extend(image);
        }
        request.raw_input_contents = vec![raw.into()];
        let one = InferParameter {
            parameter_choice: Some(ParameterChoice::Int64Param(1)),
        };
        request.outputs = vec![InferRequestedOutputTensor {
            name: "logits".into(),
            parameters: [("classification".to_owned(), one)].into(),
        }];
        let response = client.model_infer(request).await.unwrap().into_inner();
        assert_eq!(response.outputs[0].datatype, "BYTES");
        assert_eq!(response.outputs[0].shape, [2, 1]);
        let text = String::from_utf8_lossy(&response.raw_output_contents[0]).into_owned();
        assert!(text.contains(":8:eight") && text.ends_with(":1:one"), "{text}");
    });
}

#[test]
fn errors_are_statuses_that_name_the_tensor() {
    let running = Running::digits();
    block_on(async {
        let mut client = client(running.address).await;
        let mut wrong = infer(&[1]);
        wrong.inputs[0].shape = vec![3];
        let status = client.model_infer(wrong).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (
                Code::InvalidArgument,
                "input `image`: shape [3] has 3 elements, the data has 1"
            )
        );
        let mut half = infer(&[1]);
        half.inputs[0] = InferInputTensor {
            name: "pixels".into(),
            datatype: "FP16".into(),
            shape: vec![1],
            ..InferInputTensor::default()
        };
        let status = client.model_infer(half).await.unwrap_err();
        assert_eq!(
            status.message(),
            "input `pixels`: FP16 can only be sent in `raw_input_contents`"
        );
        // A call that may take no time.
        let mut late = Request::new(infer(&[1]));
        late.metadata_mut().insert("grpc-timeout", "0n".parse().unwrap());
        let status = client.model_infer(late).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    });
}

#[test]
fn a_stream_answers_in_order_and_goes_on_after_an_error() {
    let running = Running::digits();
    block_on(async {
        let mut client = client(running.address).await;
        let requests = [0, 3, 5].map(|digit| {
            let mut request = infer(&[digit]);
            request.id = digit.to_string();
            if digit == 3 {
                request.inputs[0].name = "picture".into();
            }
            request
        });
        let stream = tonic::codegen::tokio_stream::iter(requests);
        let mut responses = client.model_stream_infer(stream).await.unwrap().into_inner();
        let mut seen = Vec::new();
        while let Some(response) = responses.next().await {
            let response: Result<_, Status> = response;
            let response = response.unwrap();
            seen.push((response.infer_response.unwrap().id, response.error_message));
        }
        assert_eq!(seen[0], ("0".into(), String::new()));
        assert!(
            seen[1].0 == "3" && seen[1].1.starts_with("input `picture`"),
            "{seen:?}"
        );
        assert_eq!(seen[2], ("5".into(), String::new()));
    });
}

#[test]
fn http_and_grpc_share_a_port_and_a_token() {
    let mut options = options();
    options.token = Some("secret".into());
    let running = Running::new(options);
    // Probes need no token.
    assert_eq!(running.get("/v2/health/ready").status, 200);
    assert_eq!(running.get("/v2").error().0, 401);
    assert_eq!(running.get("/metrics").status, 401);
    let with = [("Authorization", "Bearer secret")];
    assert_eq!(request(running.address, "GET", "/v2", &with, b"").status, 200);
    block_on(async {
        let mut client = client(running.address).await;
        assert!(client.server_live(ServerLiveRequest {}).await.is_ok());
        let status = client.model_infer(infer(&[1])).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        let mut request = Request::new(infer(&[1]));
        request
            .metadata_mut()
            .insert("authorization", "Bearer secret".parse().unwrap());
        assert!(client.model_infer(request).await.is_ok());
    });
}
