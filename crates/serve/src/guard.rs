//! Checks of every request before it reaches a protocol: the bearer token, and the limits of its body.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::Body as _;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap};
use opentelemetry::KeyValue;
use tonic::Status;

use super::access_log::{Note, Peer};
use super::client::Client;
use super::connections::Connection;
use super::failure::{Failure, Kind};
use super::memory::Charge;
use super::service::{Call, Service};
use super::traces::Trace;
use super::{answer, openai, origin, page, refusals};

/// Paths without a token for probes: they only say whether the server works.
const OPEN: [&str; 6] = [
    "/health",
    "/v2/health/live",
    "/v2/health/ready",
    "/grpc.health.v1.Health/Check",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
];

/// Maximum size of the body of a request that needs no token.
const MAX_OPEN_BODY_BYTES: usize = 4 << 10;

/// True if a request has the server's token, or needs none. Stored in the extensions of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Authorized(pub(super) bool);

/// Path of the call whose body is a stream of requests. Each message is checked on arrival.
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// Maximum size of a body that is not of an inference: names and parameters.
const MAX_CALL_BODY_BYTES: usize = 1 << 20;

/// Maximum decoded bytes per byte of a body without an inference. An entry of a map has at least two bytes.
const DECODED_CALL: usize = 128;

/// Bytes that a stream needs in addition to its messages: a received frame and its task.
const STREAM_BYTES: usize = 16 << 10;

/// Paths of gRPC. A request counts as gRPC by its path, not by the type of its body.
const CALLS: [&str; 2] = ["/inference.GRPCInferenceService/", "/grpc.health.v1.Health/"];

/// Paths of inferences that are not of the Open Inference Protocol.
const INFERENCES: [&str; 3] = ["/v1/embeddings", "/embed", "/v1/chat/completions"];

/// Path of the call with one request.
const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// Passes a request to `next`, or answers it in the form of its protocol. Writes the access log, if there is
/// one.
pub(super) async fn guard(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    match &service.access_log {
        Some(log) => {
            let entry = log.entry(&request);
            let response = admit(&service, request, next, entry.note()).await;
            entry.answer(response)
        }
        None => admit(&service, request, next, Note::default()).await,
    }
}

async fn admit(service: &Arc<Service>, request: Request, next: Next, note: Note) -> Response {
    let is_grpc = refusals::is_grpc(request.headers());
    let uri = request.uri().clone();
    let path = uri.path();
    let version = request.version();
    let limited =
        |response, charge| answer::limit(response, version, charge, service.options.limits.body_time);
    let refuse = |failure: Failure| {
        let response = if is_grpc {
            Status::from(failure).into_http::<Body>()
        } else {
            openai::error_at(path, failure)
        };
        limited(response, Charge::default())
    };
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let local = connection
        .as_ref()
        .and_then(|connection| Some(connection.local?.ip()));
    if let Err(failure) = origin::check(&request, local, &service.options.allowed_hosts) {
        return refuse(failure);
    }
    let authorized = authorize(service.options.token.as_deref(), request.headers());
    let is_open = OPEN.contains(&path) || service.options.page && page::PATHS.contains(&path);
    let is_authorized = Authorized(authorized.is_ok());
    if let Err(failure) = authorized
        && !is_open
    {
        return refuse(failure);
    }
    if let Some(connection) = connection.filter(|_| is_authorized.0) {
        connection.authorize(announced_length(request.headers()).unwrap_or(0));
    }
    let peer: Option<&Peer> = request.extensions().get();
    let client = peer.map(|Peer(address)| Client::from(address.ip()));
    let account = if is_open {
        service.bodies.open_account()
    } else {
        service.bodies.account()
    };
    let memory = account.charge(client);
    // A request without a body is answered immediately, like health over HTTP.
    let waits = !request.body().is_end_stream() && (!is_open || is_call(path));
    if waits && let Err(failure) = memory.grow(head_memory(request.headers())) {
        return refuse(failure);
    }
    if path == STREAM {
        // The stream's task keeps this memory.
        if let Err(failure) = memory.grow(STREAM_BYTES) {
            return refuse(failure);
        }
        let (mut head, body) = request.into_parts();
        head.extensions.insert(Call {
            note,
            client,
            memory,
            ..Call::default()
        });
        // Each message counts separately.
        return limited(next.run(Request::from_parts(head, body)).await, Charge::default());
    }
    let trace = begin_trace(service, &request);
    let begin = Instant::now();
    let (mut head, body) = request.into_parts();
    let length = announced_length(&head.headers);
    let limit = service.options.limits.body;
    // Limit clients without a token to the size of a name. gRPC calls other than inference are small, too.
    let is_small = path != INFER && !path.ends_with("/infer") && !INFERENCES.contains(&path);
    let most = match (is_open, is_small) {
        (true, _) => MAX_OPEN_BODY_BYTES,
        (false, true) => limit.min(MAX_CALL_BODY_BYTES),
        (false, false) => limit,
    };
    let read = async {
        if is_open && !is_call(path) {
            // Health has no body to wait for.
            return Ok(Bytes::new());
        }
        if is_open {
            let limit = service.options.limits.header_time;
            let read = service.bodies.read(body, length, most, &memory);
            return tokio::time::timeout(limit, read).await.unwrap_or_else(|_| {
                let reason = format!("the body took more than {limit:?}");
                Err(Failure::new(Kind::SlowClient, reason))
            });
        }
        let bytes = service.bodies.read(body, length, most, &memory).await?;
        if is_small {
            memory.grow(bytes.len().saturating_mul(DECODED_CALL))?;
        }
        Ok(bytes)
    };
    match read.await {
        Ok(bytes) => {
            note.received(bytes.len());
            trace.stage("receive", begin, begin.elapsed(), || {
                vec![KeyValue::new("http.request.body.size", bytes.len() as i64)]
            });
            let answer = if is_open {
                Charge::default()
            } else {
                memory.another()
            };
            head.extensions.insert(is_authorized);
            head.extensions.insert(Call {
                trace: trace.clone(),
                note,
                memory,
                answer: answer.clone(),
                client,
                ..Call::default()
            });
            // Images that are slices of the body keep its memory until the last of them is dropped.
            let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
            let mut response = match answer::count(&response, &answer) {
                Ok(()) => limited(response, answer),
                Err(failure) => refuse(failure),
            };
            trace.describe("http.response.status_code", i64::from(response.status().as_u16()));
            trace.answer(response.headers_mut());
            trace.end();
            response
        }
        Err(failure) => {
            trace.fail(&failure);
            trace.end();
            refuse(failure)
        }
    }
}

/// Returns the announced length of the body.
fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Returns true if `path` belongs to a gRPC service.
fn is_call(path: &str) -> bool {
    CALLS.iter().any(|service| path.starts_with(service))
}

/// Returns the memory of a request without its body: its stream, its task and its header fields.
fn head_memory(headers: &HeaderMap) -> usize {
    const REQUEST: usize = 8 << 10;
    const FIELD: usize = 160;
    let fields = headers
        .iter()
        .map(|(name, value)| FIELD + name.as_str().len() + value.len());
    REQUEST + fields.sum::<usize>()
}

/// Begins the span of an inference request. Health, metadata and other requests have none.
fn begin_trace(service: &Service, request: &Request) -> Trace {
    let path = request.uri().path();
    if path == INFER {
        let trace = service.traces.request(path[1..].to_owned(), request.headers());
        trace.describe("rpc.system", "grpc");
        return trace;
    }
    // The route's pattern contains no names of models.
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    match route.filter(|route| route.ends_with("/infer") || INFERENCES.contains(route)) {
        Some(route) => {
            let trace = service
                .traces
                .request(format!("{} {route}", request.method()), request.headers());
            trace.describe("http.request.method", request.method().to_string());
            trace.describe("http.route", route.to_owned());
            trace
        }
        None => Trace::default(),
    }
}

fn authorize(token: Option<&str>, headers: &HeaderMap) -> Result<(), Failure> {
    let Some(token) = token else {
        return Ok(());
    };
    let given = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, given) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(given.trim())
    });
    match given {
        Some(given) if equal(given.as_bytes(), token.as_bytes()) => Ok(()),
        Some(_) => Err(Failure::new(Kind::Unauthorized, "the bearer token is wrong")),
        None => {
            let reason = "the server requires a bearer token: `Authorization: Bearer …`";
            Err(Failure::new(Kind::Unauthorized, reason))
        }
    }
}

/// Compares in a time that depends only on the lengths, so that it does not reveal how much of a token is
/// right.
fn equal(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(differences) == 0 && a.len() == b.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_must_be_given_and_right() {
        let check = |given: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(AUTHORIZATION, given.parse().unwrap());
            }
            authorize(Some("secret"), &headers).map_err(|failure| failure.kind())
        };
        assert_eq!(check(Some("Bearer secret")), Ok(()));
        assert_eq!(check(Some("bearer  secret")), Ok(()));
        for wrong in [
            None,
            Some("Bearer secre"),
            Some("Bearer secrets"),
            Some("Basic secret"),
            Some("secret"),
        ] {
            assert_eq!(check(wrong), Err(Kind::Unauthorized), "{wrong:?}");
        }
        assert_eq!(authorize(None, &HeaderMap::new()), Ok(()));
    }
}
