//! The protocol over HTTP/REST, with Triton's extensions; OpenAI's embeddings, chat completions and models; metrics.

use std::cell::OnceCell;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use hyper::header::{
    CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::{Value, json};

use super::blocking::at_length;
use super::embeddings::Form;
use super::failure::{Failure, Kind};
use super::metadata::{EXTENSIONS, NAME};
use super::protocol::json;
use super::repository::Model;
use super::service::{Call, Service};
use super::{chat, embeddings, metrics, openai, page, triton};

/// Header with the length of a body's JSON, which binary tensors follow.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// Maximum number of characters of a path that an error repeats.
const MAX_SHOWN_CHARS: usize = 200;

type Result<T = Response, E = Failure> = std::result::Result<T, E>;

/// Returns the routes of the protocol.
pub(super) fn routes(service: Arc<Service>) -> Router {
    let page = if service.options.page {
        page::routes()
    } else {
        Router::new()
    };
    page.route("/v2", get(server_metadata))
        .route("/v2/", get(server_metadata))
        .route("/v2/health/live", get(server_live))
        .route("/v2/health/ready", get(server_ready))
        .route("/v2/models/{model}", get(model_metadata))
        .route("/v2/models/{model}/ready", get(model_ready))
        .route("/v2/models/{model}/versions/{version}", get(model_metadata))
        .route("/v2/models/{model}/versions/{version}/ready", get(model_ready))
        .route("/v2/models/stats", get(all_statistics))
        .route("/v2/models/{model}/config", get(model_config))
        .route("/v2/models/{model}/stats", get(model_statistics))
        .route("/v2/models/{model}/versions/{version}/config", get(model_config))
        .route(
            "/v2/models/{model}/versions/{version}/stats",
            get(model_statistics),
        )
        .route("/v1/models", get(list_models))
        .route("/v1/models/{model}", get(one_model))
        .route("/health", get(health))
        .route("/metrics", get(encode_metrics))
        // A method fallback applies to the routes added before it.
        .method_not_allowed_fallback(expect_get)
        .route("/v2/models/{model}/infer", post(infer))
        .route("/v2/models/{model}/versions/{version}/infer", post(infer))
        .route("/v2/repository/index", post(repository_index))
        .route("/v2/repository/models/{model}/load", post(repository_load))
        .route("/v2/repository/models/{model}/unload", post(repository_unload))
        .route("/v1/embeddings", post(openai_embeddings))
        .route("/v1/chat/completions", post(chat_completions))
        .route("/embed", post(tei_embeddings))
        .method_not_allowed_fallback(expect_post)
        .fallback(not_found)
        .with_state(service)
}

impl Kind {
    fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::SlowClient => StatusCode::REQUEST_TIMEOUT,
            Self::Overloaded(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unsupported => StatusCode::NOT_IMPLEMENTED,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// Answers with the protocol's form of an error: `{"error": "…"}`.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = to_json(&json!({ "error": self.message() }));
        *response.status_mut() = self.kind().status();
        let headers = response.headers_mut();
        match self.kind() {
            Kind::Overloaded(after) => drop(headers.insert(RETRY_AFTER, after.as_secs().max(1).into())),
            Kind::Unavailable => drop(headers.insert(RETRY_AFTER, 1.into())),
            Kind::Unauthorized => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

fn to_json(value: &Value) -> Response {
    json_body(value.to_string())
}

fn json_body(body: String) -> Response {
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    (headers, body).into_response()
}

/// Runs `work` off the threads that serve connections.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failure::new(Kind::Internal, error.to_string())))
}

/// Name of a model and version, if the path has one.
#[derive(Default, serde::Deserialize)]
struct ModelPath {
    model: String,
    #[serde(default)]
    version: String,
}

/// Refuses a path that is not UTF-8 in the form of its protocol. axum's extractor would answer in plain text.
impl<S: Send + Sync> FromRequestParts<S> for ModelPath {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(path)| path).map_err(|_| {
            let failure = Failure::invalid(
                "the path is not UTF-8 after its percent-encoding is removed. Encode names as UTF-8",
            );
            openai::error_at(parts.uri.path(), failure)
        })
    }
}

/// Paths of the server, listed by the error of an unknown path.
const PATHS: &str = "/v2, /v2/health/live, /v2/health/ready, /v2/models/MODEL, and under it /ready, /config, /stats and (POST) /infer; \
    (POST) /v2/repository/index, /v2/repository/models/MODEL/load and /unload; /v1/models; (POST) /v1/embeddings; (POST) /v1/chat/completions; (POST) /embed; /health; /metrics";

async fn not_found(uri: Uri) -> Response {
    let shown: String = uri.path().chars().take(MAX_SHOWN_CHARS).collect();
    let failure = Failure::new(Kind::NotFound, format!("there is no {shown}. There are {PATHS}"));
    openai::error_at(uri.path(), failure)
}

async fn expect_get(method: Method, uri: Uri) -> Response {
    wrong_method(&method, &uri, "GET")
}

async fn expect_post(method: Method, uri: Uri) -> Response {
    wrong_method(&method, &uri, "POST")
}

fn wrong_method(method: &Method, uri: &Uri, expected: &str) -> Response {
    let shown: String = uri.path().chars().take(MAX_SHOWN_CHARS).collect();
    let failure = Failure::invalid(format!("{shown} does not accept {method}. Use {expected}"));
    let mut response = openai::error_at(uri.path(), failure);
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

async fn server_live() -> Response {
    to_json(&json!({ "live": true }))
}

async fn server_ready(State(service): State<Arc<Service>>) -> Response {
    let ready = service.is_ready();
    readiness(ready, &json!({ "ready": ready }))
}

/// Returns status and body: Triton's clients check the status, KServe's the body.
fn readiness(ready: bool, body: &Value) -> Response {
    let mut response = to_json(body);
    if !ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

async fn model_ready(State(service): State<Arc<Service>>, path: ModelPath) -> Result {
    let ready = service.is_model_ready(&path.model, &path.version)?;
    Ok(readiness(ready, &json!({ "name": path.model, "ready": ready })))
}

async fn server_metadata() -> Response {
    to_json(&json!({ "name": NAME, "version": env!("CARGO_PKG_VERSION"), "extensions": EXTENSIONS }))
}

async fn model_metadata(State(service): State<Arc<Service>>, path: ModelPath) -> Result {
    let model = service.model(&path.model, &path.version)?;
    Ok(to_json(&json!({
        "name": model.name,
        "versions": service.versions(&model.name),
        "platform": model.platform,
        "inputs": model.input_metadata(),
        "outputs": model.output_metadata(),
    })))
}

async fn infer(
    State(service): State<Arc<Service>>,
    path: ModelPath,
    Extension(call): Extension<Call>,
    headers: HeaderMap,
    body: Bytes,
) -> Result {
    let call = Call {
        protocol: "http",
        copies: json::COPIES,
        ..call
    };
    // Report an unknown model before errors of the inputs.
    let model = service.model(&path.model, &path.version);
    let model = model.inspect_err(|failure| service.refused(&call, "", failure))?;
    let read = || -> Result<_> {
        refuse_encoding(&headers)?;
        let length = json_length(&headers)?;
        if length.is_none() {
            let advice = "For an image as the body, add the header Inference-Header-Content-Length: 0";
            expect_json(&headers, &body, advice)?;
        }
        let request = at_length(body.len(), || {
            let text = length.map_or(&body[..], |length| body.get(..length).unwrap_or_default());
            call.memory.grow(json::decoded_size(text))?;
            json::read_request(&path.model, &path.version, body, length)
        })?;
        let binary = json::binary_outputs(&request)?;
        Ok((request, binary))
    };
    let (request, binary) = read().inspect_err(|failure| service.refused(&call, &model.name, failure))?;
    let response = service.infer(call, request).await?;
    let elements: usize = response
        .outputs
        .iter()
        .map(|output| output.shape.iter().product::<usize>())
        .sum();
    let (body, length) = at_length(4 * elements, || json::write_response(&response, &binary))?;
    let content_type = match length {
        Some(_) => "application/octet-stream",
        None => "application/json",
    };
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if let Some(length) = length {
        headers.insert(JSON_LENGTH, length.into());
    }
    Ok(response)
}

/// Refuses a body that cannot be JSON, such as an image, with `advice`.
fn expect_json(headers: &HeaderMap, body: &[u8], advice: &str) -> Result<()> {
    let sent = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    if sent.is_some_and(|sent| sent.starts_with(b"multipart/")) {
        let reason = format!("multipart bodies are not supported (curl -F). {advice}");
        return Err(Failure::invalid(reason));
    }
    // For anything that may be meant as JSON, the parser gives the better error.
    match body.trim_ascii_start().first() {
        Some(first) if !b"{[\"-0123456789tfn".contains(first) => {
            Err(Failure::invalid(format!("the body is not JSON. {advice}")))
        }
        _ => Ok(()),
    }
}

/// Returns the length of the JSON at the beginning of the body, if the headers give it.
fn json_length(headers: &HeaderMap) -> Result<Option<usize>> {
    let Some(value) = headers.get(JSON_LENGTH) else {
        return Ok(None);
    };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    let wrong = || Failure::invalid("Inference-Header-Content-Length is not a number");
    length.ok_or_else(wrong).map(Some)
}

/// Refuses compressed bodies, because a small one could expand to a large one.
fn refuse_encoding(headers: &HeaderMap) -> Result<()> {
    match headers.get(CONTENT_ENCODING) {
        Some(encoding) if encoding != "identity" => Err(Failure::new(
            Kind::Unsupported,
            "compressed bodies are not supported: send it without Content-Encoding",
        )),
        _ => Ok(()),
    }
}

async fn openai_embeddings(
    State(service): State<Arc<Service>>,
    Extension(call): Extension<Call>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let embedded = embed(service, call, &headers, body, Form::OpenAi).await;
    embedded.map_or_else(openai::model_error, json_body)
}

async fn tei_embeddings(
    State(service): State<Arc<Service>>,
    Extension(call): Extension<Call>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let embedded = embed(service, call, &headers, body, Form::Tei).await;
    embedded.map_or_else(embeddings::tei_error, json_body)
}

async fn chat_completions(
    State(service): State<Arc<Service>>,
    Extension(call): Extension<Call>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let call = Call {
        protocol: "chat",
        copies: json::COPIES,
        ..call
    };
    let advice = "Send the image as a data: URL in the messages";
    let read = read_json(&service, &call, &headers, &body, advice, |model| {
        let request = chat::read(&body)?;
        model(&request.model)?;
        let content = request.content()?;
        Ok((request, content))
    });
    let answer = match read {
        Ok((request, content)) => chat::complete(&service, call, request, content).await,
        Err(failure) => Err(failure),
    };
    answer.unwrap_or_else(openai::model_error)
}

/// Embeds the inputs of a request. Returns the response's body.
async fn embed(
    service: Arc<Service>,
    call: Call,
    headers: &HeaderMap,
    body: Bytes,
    form: Form,
) -> Result<String> {
    let call = Call {
        protocol: "embeddings",
        copies: json::COPIES,
        ..call
    };
    let advice = "Send an image as a data: URL in the inputs";
    let (request, decoded) = read_json(&service, &call, headers, &body, advice, |model| {
        let mut request = embeddings::read(&body, form)?;
        if request.model.is_empty() && form == Form::Tei {
            request.model = only_model(&service)?;
        }
        let decoded = request.decode(&*model(&request.model)?)?;
        Ok((request, decoded))
    })?;
    request.run(&service, call, decoded).await
}

/// Reads a request in JSON, and counts it if it is refused. `read` gets a function that finds the request's model, which it calls before it
/// reports errors of the inputs.
fn read_json<T>(
    service: &Service,
    call: &Call,
    headers: &HeaderMap,
    body: &[u8],
    advice: &str,
    read: impl FnOnce(&dyn Fn(&str) -> Result<Arc<Model>>) -> Result<T>,
) -> Result<T> {
    // Label of metrics: only existing names.
    let known = OnceCell::new();
    let model = |name: &str| {
        let model = service.model(name, "")?;
        call.note.model(&model.name);
        let _ = known.set(model.name.clone());
        Ok(model)
    };
    let read = || {
        refuse_encoding(headers)?;
        expect_json(headers, body, advice)?;
        at_length(body.len(), || {
            call.memory.grow(json::decoded_size(body))?;
            read(&model)
        })
    };
    read().inspect_err(|failure| service.refused(call, known.get().map_or("", String::as_str), failure))
}

/// Returns the name of the only loaded model.
fn only_model(service: &Service) -> Result<String> {
    let mut names: Vec<String> = service.loaded().iter().map(|model| model.name.clone()).collect();
    names.dedup();
    match &names[..] {
        [name] => Ok(name.clone()),
        [] => Err(Failure::new(Kind::Unavailable, "no model is loaded")),
        names => Err(Failure::invalid(format!(
            "the server has several models: add `model`, one of {}",
            names.join(", ")
        ))),
    }
}

async fn list_models(State(service): State<Arc<Service>>) -> Response {
    let loaded = service.loaded();
    to_json(&openai::models(loaded.iter().map(|model| &**model)))
}

async fn one_model(State(service): State<Arc<Service>>, path: ModelPath) -> Response {
    match service.model(&path.model, "") {
        Ok(model) => to_json(&openai::model(&model)),
        Err(failure) => openai::model_error(failure),
    }
}

async fn model_config(State(service): State<Arc<Service>>, path: ModelPath) -> Result {
    let model = service.model(&path.model, &path.version)?;
    let config = triton::configuration(&model, &service.options);
    Ok(to_json(&triton::configuration_json(&config)))
}

async fn model_statistics(State(service): State<Arc<Service>>, path: ModelPath) -> Result {
    let models = service.with_statistics(&path.model, &path.version)?;
    let models: Vec<Value> = models
        .iter()
        .map(|model| triton::statistics_json(model))
        .collect();
    Ok(to_json(&json!({ "model_stats": models })))
}

async fn all_statistics(state: State<Arc<Service>>) -> Result {
    model_statistics(state, ModelPath::default()).await
}

/// Answers health checks by the status without a body, as Text Embeddings Inference and vLLM do.
async fn health(State(service): State<Arc<Service>>) -> StatusCode {
    if service.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}

/// Body of a request to load or unload a model. Values may be large and are skipped.
#[derive(Default, serde::Deserialize)]
struct ControlBody {
    #[serde(default)]
    parameters: Option<ControlParameters>,
}

/// First refused name among the parameters of a request to load or unload a model.
#[derive(Default)]
struct ControlParameters(Option<Failure>);

impl<'de> serde::Deserialize<'de> for ControlParameters {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamesVisitor;

        impl<'de> Visitor<'de> for NamesVisitor {
            type Value = ControlParameters;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object of parameters")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut refused = None;
                while let Some(name) = map.next_key::<String>()? {
                    let checked = super::service::check_load([name.as_str()]);
                    refused = refused.or(checked.err());
                    map.next_value::<IgnoredAny>()?;
                }
                Ok(ControlParameters(refused))
            }
        }

        deserializer.deserialize_map(NamesVisitor)
    }
}

/// Refuses parameters that Triton supports and this server does not.
fn check_control(body: &[u8]) -> Result<()> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let body: ControlBody = serde_json::from_slice(body).map_err(|error| Failure::json(&error))?;
    match body.parameters.and_then(|parameters| parameters.0) {
        Some(refused) => Err(refused),
        None => Ok(()),
    }
}

async fn repository_index(State(service): State<Arc<Service>>, body: Bytes) -> Result {
    #[derive(Default, serde::Deserialize)]
    struct Request {
        #[serde(default)]
        ready: bool,
    }
    let request: Request = if body.is_empty() {
        Request::default()
    } else {
        serde_json::from_slice(&body).map_err(|error| Failure::json(&error))?
    };
    let index = blocking(move || service.index(request.ready)).await?;
    let models = index.into_iter().map(|model| {
        json!({ "name": model.name, "version": model.version, "state": model.state, "reason": model.reason })
    });
    Ok(to_json(&models.collect()))
}

async fn repository_load(State(service): State<Arc<Service>>, path: ModelPath, body: Bytes) -> Result {
    check_control(&body)?;
    blocking(move || service.load(&path.model)).await?;
    Ok(to_json(&json!({})))
}

async fn repository_unload(State(service): State<Arc<Service>>, path: ModelPath, body: Bytes) -> Result {
    check_control(&body)?;
    blocking(move || service.unload(&path.model)).await?;
    Ok(to_json(&json!({})))
}

async fn encode_metrics(State(service): State<Arc<Service>>) -> Result {
    // Reading sensors takes milliseconds. The lock limits scrapers to one thread.
    let _turn = service.metrics_turn.lock().await;
    let service = service.clone();
    let text = blocking(move || Ok(service.encode_metrics())).await?;
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE))];
    Ok((headers, text).into_response())
}
