//! Requests of clients of Text Embeddings Inference.

use hipvit::outputs::normalize;
use serde_json::json;

use crate::support::server::{MODEL, Response, Running, base64, expected, sample};

fn vectors(response: &Response) -> Vec<Vec<f32>> {
    assert_eq!(response.status, 200, "{}", response.json());
    let rows = response.json();
    let vector = |row: &serde_json::Value| {
        let values = row.as_array().unwrap().iter();
        values.map(|value| value.to_string().parse().unwrap()).collect()
    };
    rows.as_array().unwrap().iter().map(vector).collect()
}

#[test]
fn inputs_are_embedded_to_unit_length_in_their_order() {
    let running = Running::digits();
    let url = |digit| format!("data:image/png;base64,{}", base64(&sample(digit)));
    let post = |body: serde_json::Value| running.post("/embed", &[], body.to_string().as_bytes());
    let plain: Vec<Vec<f32>> = expected(&[3, 1])
        .embeddings()
        .rows()
        .into_iter()
        .map(|row| row.to_vec())
        .collect();
    let mut unit = plain.clone();
    for row in &mut unit {
        normalize(row);
    }
    let inputs = json!([url(3), url(1)]);
    assert_eq!(vectors(&post(json!({"inputs": inputs}))), unit);
    assert_eq!(vectors(&post(json!({"inputs": inputs, "model": MODEL}))), unit);
    assert_eq!(
        vectors(&post(json!({"inputs": inputs, "normalize": false}))),
        plain
    );
    assert_eq!(
        vectors(&post(json!({"inputs": url(3), "truncate": true}))),
        unit[..1]
    );
}

#[test]
fn errors_have_the_form_that_clients_read() {
    let running = Running::digits();
    let post = |body: serde_json::Value| running.post("/embed", &[], body.to_string().as_bytes());
    for (body, status, reason) in [
        (json!({"inputs": []}), 400, "`inputs` is empty"),
        (json!({"inputs": ["a cat"]}), 400, "`inputs`[0] is a text, but"),
        (json!({"input": "a"}), 400, "missing field `inputs`"),
        (
            json!({"inputs": "a", "prompt_name": "query"}),
            400,
            "`prompt_name` is not supported",
        ),
        (
            json!({"inputs": "a", "model": "cats"}),
            404,
            "there is no model `cats`",
        ),
    ] {
        let response = post(body);
        assert_eq!(response.status, status);
        let error = response.json();
        assert!(error["error"].as_str().unwrap().contains(reason), "{error}");
        assert_eq!(error["error_type"], "validation");
    }
    assert_eq!(running.get("/embed").status, 405);
}
