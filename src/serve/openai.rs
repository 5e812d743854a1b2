//! The parts of OpenAI's API that clients look for beside embeddings: the list of models, and the form of errors.

use std::time::UNIX_EPOCH;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::failure::{Failure, Kind};
use super::repository::Model;
use super::service::NAME;

/// Describes a model as `/v1/models` does.
pub(super) fn model(model: &Model) -> Value {
    let created = model.loaded.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({ "id": model.name, "object": "model", "created": created.as_secs(), "owned_by": NAME })
}

/// Describes the loaded models, each once: the latest version.
pub(super) fn models<'a>(loaded: impl DoubleEndedIterator<Item = &'a Model>) -> Value {
    let mut data: Vec<Value> = Vec::new();
    let mut last = None;
    // Versions of a model follow each other, the latest last.
    for loaded in loaded.rev() {
        if last != Some(&loaded.name) {
            data.push(model(loaded));
            last = Some(&loaded.name);
        }
    }
    data.reverse();
    json!({ "object": "list", "data": data })
}

/// Returns a failure in the form that clients of `path` read.
pub(super) fn error_at(path: &str, failure: Failure) -> Response {
    if path.starts_with("/v1/") {
        error(failure)
    } else {
        failure.into_response()
    }
}

/// Returns a failure in the form that OpenAI's clients read.
pub(super) fn error(failure: Failure) -> Response {
    let (kind, code) = match failure.kind() {
        Kind::InvalidArgument | Kind::TooLarge | Kind::Unsupported => ("invalid_request_error", None),
        Kind::NotFound => ("invalid_request_error", Some("model_not_found")),
        kind => (kind.label(), None),
    };
    let body = json!({
        "error": { "message": failure.message(), "type": kind, "param": null, "code": code }
    });
    let mut response = failure.into_response();
    *response.body_mut() = Body::from(body.to_string());
    response.headers_mut().remove(hyper::header::CONTENT_LENGTH);
    response
}
