//! OpenAI's API without inferences: the list of models, and the form of errors.

use std::time::UNIX_EPOCH;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::failure::{Failure, Kind};
use super::metadata::NAME;
use super::repository::Model;

/// Describes a model as `/v1/models` does.
pub(super) fn model(model: &Model) -> Value {
    let created = model.loaded.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({ "id": model.name, "object": "model", "created": created.as_secs(), "owned_by": NAME })
}

/// Describes the latest loaded version of each model.
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

/// Returns a failure before a model is looked up, in the form that clients of `path` read.
pub(super) fn error_at(path: &str, failure: Failure) -> Response {
    if path.starts_with("/v1/") {
        let is_unknown = failure.kind() == Kind::NotFound;
        error(failure, is_unknown.then_some("unknown_url"))
    } else {
        failure.into_response()
    }
}

/// Returns a failure of a request for a model, in the form that OpenAI's clients read.
pub(super) fn model_error(failure: Failure) -> Response {
    let is_unknown = failure.kind() == Kind::NotFound;
    error(failure, is_unknown.then_some("model_not_found"))
}

/// Returns the body of a failure in the form that OpenAI's clients read.
pub(super) fn error_body(failure: &Failure, code: Option<&str>) -> Value {
    let kind = match failure.kind() {
        Kind::InvalidArgument | Kind::TooLarge | Kind::Unsupported | Kind::NotFound => {
            "invalid_request_error"
        }
        kind => kind.label(),
    };
    json!({
        "error": { "message": failure.message(), "type": kind, "param": null, "code": code }
    })
}

/// Returns a failure in the form that OpenAI's clients read.
fn error(failure: Failure, code: Option<&str>) -> Response {
    let body = error_body(&failure, code);
    let mut response = failure.into_response();
    *response.body_mut() = Body::from(body.to_string());
    response.headers_mut().remove(hyper::header::CONTENT_LENGTH);
    response
}
