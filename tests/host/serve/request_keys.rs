//! Keys of requests: each has its effect, has none, or is refused by name.

use hipvit_serve::proto::{
    InferParameter, ModelRepositoryParameter, RepositoryIndexRequest, RepositoryModelLoadRequest,
    infer_parameter, model_repository_parameter,
};
use serde_json::{Value, json};

use crate::support::server::grpc::{block_on, client, infer};
use crate::support::server::{MODEL, Running, options, samples};

#[test]
fn parameters_that_triton_follows_are_followed_or_refused() {
    let running = Running::digits();
    let error = |change: &dyn Fn(&mut Value)| {
        let mut body = samples(&[1]);
        change(&mut body);
        running.infer(&body).error()
    };
    for (name, value, status) in [
        ("sequence_id", json!(3), 501),
        ("sequence_id", json!("session"), 501),
        ("sequence_start", json!(true), 501),
        ("sequence_end", json!(true), 501),
        ("shared_memory_region", json!("r"), 501),
        ("classification", json!(3), 400),
        ("k", json!(3), 400),
        ("binary_data", json!(true), 400),
        ("binary_data_size", json!(8), 400),
        ("priority", json!("urgent"), 400),
        ("timeout", json!(-1), 400),
        ("binary_data_output", json!("yes"), 400),
    ] {
        let got = error(&|body| body["parameters"] = json!({name: value}));
        assert_eq!(got.0, status, "{name}: {}", got.1);
        assert!(got.1.contains(&format!("parameter `{name}`")), "{}", got.1);
    }
    let shared = json!({"shared_memory_region": "r", "shared_memory_byte_size": 8});
    let input = error(&|body| body["inputs"][0]["parameters"] = shared.clone());
    assert!(
        input.1.starts_with("input `image`: parameter `shared_memory_"),
        "{}",
        input.1
    );
    for (output, name, value) in [
        ("logits", "shared_memory_region", json!("r")),
        ("embedding", "classification", json!(3)),
        ("logits", "k", json!(3)),
        ("top", "class", json!(3)),
        ("logits", "method", json!("attnlrp")),
    ] {
        let got = error(&|body| body["outputs"] = json!([{"name": output, "parameters": {name: value}}]));
        assert!(
            got.1
                .starts_with(&format!("output `{output}`: parameter `{name}`")),
            "{}",
            got.1
        );
    }
    // What changes nothing passes.
    let mut body = samples(&[1]);
    body["parameters"] =
        json!({"sequence_id": 0, "sequence_start": false, "priority": 2, "timeout": 60_000_000, "mine": 1});
    body["outputs"] =
        json!([{"name": "embedding", "parameters": {"classification": 0, "binary_data": false}}]);
    body["mine"] = json!({"a": [1]});
    assert_eq!(running.infer(&body).status, 200);
}

/// An unknown model is reported before all other errors.
#[test]
fn an_unknown_model_is_said_before_a_wrong_input() {
    let running = Running::digits();
    let body = json!({"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": ["%"]}]});
    let response = running.post("/v2/models/cats/infer", &[], body.to_string().as_bytes());
    assert_eq!(
        response.error(),
        (404, "there is no model `cats`; the server has `digits`".into())
    );
    for input in [json!("a cat"), json!([{"image": "%"}]), json!([])] {
        let body = json!({"model": "cats", "input": input});
        let response = running.post("/v1/embeddings", &[], body.to_string().as_bytes());
        assert_eq!(response.status, 404);
        let error = &response.json()["error"];
        assert_eq!(
            error["message"],
            "there is no model `cats`; the server has `digits`"
        );
        assert_eq!(error["code"], "model_not_found");
    }
    block_on(async {
        let mut request = infer(&[1]);
        request.model_name = "cats".into();
        request.inputs[0].datatype = "FP16".into();
        let status = client(running.address)
            .await
            .model_infer(request)
            .await
            .unwrap_err();
        assert_eq!(status.code(), tonic::Code::NotFound);
    });
    let unknown = r#"hipvit_requests_total{model="",protocol="embeddings",outcome="not_found"}"#;
    assert_eq!(running.metric(unknown), 3.0);
}

#[test]
fn a_model_is_loaded_as_it_is() {
    let mut options = options();
    options.model_control = true;
    let running = Running::new(options);
    let load = |body: &str| running.post("/v2/repository/models/digits/load", &[], body.as_bytes());
    for name in ["config", "file:1/model.onnx"] {
        let body = json!({"parameters": {name: "{}"}}).to_string();
        let (status, message) = load(&body).error();
        assert_eq!(status, 501);
        assert!(
            message.starts_with(&format!("parameter `{name}`: a model is loaded")),
            "{message}"
        );
    }
    assert_eq!(load("{").error().0, 400);
    for body in ["", "{}", r#"{"parameters": {}}"#] {
        assert_eq!(load(body).status, 200, "{body}");
    }
    // There are no models that depend on others.
    let body = r#"{"parameters": {"unload_dependents": true}}"#;
    let unload = running.post("/v2/repository/models/digits/unload", &[], body.as_bytes());
    assert_eq!(unload.status, 200);
    block_on(async {
        let mut client = client(running.address).await;
        let config = ModelRepositoryParameter {
            parameter_choice: Some(model_repository_parameter::ParameterChoice::StringParam(
                "{}".into(),
            )),
        };
        let load = RepositoryModelLoadRequest {
            model_name: MODEL.into(),
            parameters: [("config".to_owned(), config)].into(),
            ..RepositoryModelLoadRequest::default()
        };
        let status = client.repository_model_load(load).await.unwrap_err();
        assert!(status.message().starts_with("parameter `config`"), "{status}");
        let named = RepositoryModelLoadRequest {
            model_name: MODEL.into(),
            repository_name: "mine".into(),
            ..RepositoryModelLoadRequest::default()
        };
        let status = client.repository_model_load(named).await.unwrap_err();
        assert!(status.message().starts_with("`repository_name`"), "{status}");
        let named = RepositoryIndexRequest {
            repository_name: "mine".into(),
            ready: false,
        };
        assert!(client.repository_index(named).await.is_err());
        // KServe's message has the model's name in the field of the repository's.
        let of_kserve = RepositoryModelLoadRequest {
            repository_name: MODEL.into(),
            ..RepositoryModelLoadRequest::default()
        };
        client.repository_model_load(of_kserve).await.unwrap();
        let mut request = infer(&[1]);
        let parameter = InferParameter {
            parameter_choice: Some(infer_parameter::ParameterChoice::Int64Param(7)),
        };
        request.parameters.insert("sequence_id".into(), parameter);
        let status = client.model_infer(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented);
        assert!(
            status.message().starts_with("parameter `sequence_id`"),
            "{status}"
        );
    });
}
