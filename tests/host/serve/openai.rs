//! Requests of OpenAI's clients, and of probes for servers of embeddings.

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::server::{MODEL, Response, Running, base64, expected, options, sample};

#[test]
fn models_are_listed() {
    let running = Running::digits();
    let list = running.get("/v1/models").json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    let model = &list["data"][0];
    assert_eq!((&model["id"], &model["object"]), (&json!(MODEL), &json!("model")));
    assert_eq!(model["owned_by"], "hipvit");
    assert!(model["created"].as_u64().unwrap() > 1_700_000_000);
    assert_eq!(running.get("/v1/models/digits").json(), *model);
    let unknown = running.get("/v1/models/cats");
    assert_eq!(unknown.status, 404);
    let error = unknown.json()["error"].clone();
    assert_eq!(
        error["message"],
        "there is no model `cats`; the server has `digits`"
    );
    assert_eq!(error["type"], "invalid_request_error");
    assert_eq!(error["code"], "model_not_found");
    let unknown = running.get("/v1/x");
    assert_eq!(unknown.status, 404);
    let error = unknown.json()["error"].clone();
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("there is no /v1/x. There are "), "{message}");
    assert_eq!(error["code"], "unknown_url");
}

#[test]
fn health_follows_readiness_and_needs_no_token() {
    let mut options = options();
    options.token = Some("secret".into());
    let running = Running::new(options);
    assert_eq!(running.get("/health").status, 200);
    assert_eq!(running.get("/v1/models").status, 401);
    // A client without a token cannot make the server wait for a body.
    let long = running.post("/v2/health/live", &[], &vec![b' '; 5000]);
    assert_eq!(long.status, 405);
    running.server().drain();
    assert_eq!(running.get("/health").status, 503);
}

#[test]
fn keys_of_an_embeddings_request_are_followed_or_refused() {
    let running = Running::digits();
    let url = format!("data:image/png;base64,{}", base64(&sample(3)));
    let post = |more: Value| {
        let mut body = json!({"model": MODEL, "input": url, "user": "me"});
        more.as_object()
            .unwrap()
            .iter()
            .for_each(|(key, value)| body[key] = value.clone());
        running.post("/v1/embeddings", &[], body.to_string().as_bytes())
    };
    let floats = |response: &Response| -> Vec<f32> {
        let json = response.json();
        let embedding = json["data"][0]["embedding"].as_array().unwrap().iter();
        embedding.map(|x| x.to_string().parse().unwrap()).collect()
    };
    let plain = floats(&post(json!({})));
    let expected = expected(&[3]);
    assert_eq!(plain, expected.embeddings().as_slice().unwrap());
    assert_eq!(floats(&post(json!({"dimensions": plain.len()}))), plain);
    let encoded = post(json!({"encoding_format": "base64"})).json();
    let encoded = encoded["data"][0]["embedding"].as_str().unwrap().to_owned();
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
    let decoded: Vec<f32> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|&b| f32::from_le_bytes(b))
        .collect();
    assert_eq!(decoded, plain);
    let unit = floats(&post(json!({"normalized": true})));
    let norm = plain
        .iter()
        .map(|&x| f64::from(x) * f64::from(x))
        .sum::<f64>()
        .sqrt();
    for (unit, plain) in unit.iter().zip(&plain) {
        assert_eq!(*unit, (f64::from(*plain) / norm) as f32);
    }
    assert_eq!(post(json!({"timeout": 1})).status, 504);
    for (more, expected) in [
        (
            json!({"dimensions": 3}),
            "`dimensions`: embeddings of `digits` have",
        ),
        (
            json!({"encoding_format": "int8"}),
            "the request's JSON: `encoding_format`: `int8` is not one of",
        ),
        (
            json!({"messages": []}),
            "the request's JSON: `messages` is not supported: send `input`",
        ),
        (json!({"priority": "urgent"}), "parameter `priority`"),
    ] {
        let response = post(more);
        assert_eq!(response.status, 400);
        let error = response.json()["error"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(error["type"], "invalid_request_error");
    }
}
