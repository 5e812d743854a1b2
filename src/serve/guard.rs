//! What every request passes before it reaches a protocol: the bearer token, and its body is read within the limits.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap};
use opentelemetry::KeyValue;
use tonic::Status;

use super::access_log::Note;
use super::connections::Connection;
use super::failure::{Failure, Kind};
use super::limits::Taken;
use super::service::{Call, Service};
use super::stream::StreamBody;
use super::traces::Trace;
use super::{openai, origin, refusals};

/// Probes have no token: these say nothing but whether the server works.
const OPEN: [&str; 6] = [
    "/health",
    "/v2/health/live",
    "/v2/health/ready",
    "/grpc.health.v1.Health/Check",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
];

/// Maximum size of the body of a request that needs no token.
const OPEN_BODY: usize = 4 << 10;

/// True if a request has the server's token, or needs none. It is in the extensions of the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Authorized(pub(super) bool);

/// The call whose body is a stream of requests; each message is checked as it comes.
const STREAM: &str = "/inference.GRPCInferenceService/ModelStreamInfer";

/// What a stream takes beside its messages: its decoder's buffer and its task.
const STREAM_MEMORY: usize = 16 << 10;

/// The call with one request.
const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";

/// Lets a request through to `next`, or answers it in the form of its protocol. Writes the access log, if there is one.
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
    let refuse = |failure: Failure| match is_grpc {
        true => Status::from(failure).into_http::<Body>(),
        false => openai::error_at(path, failure),
    };
    let connection = request.extensions().get::<Arc<Connection>>().cloned();
    let local = connection
        .as_ref()
        .and_then(|connection| Some(connection.local?.ip()));
    if let Err(failure) = origin::check(&request, local, &service.options.allowed_hosts) {
        return refuse(failure);
    }
    let authorized = authorize(service.options.token.as_deref(), request.headers());
    let is_open = OPEN.contains(&path);
    let is_authorized = Authorized(authorized.is_ok());
    if let Err(failure) = authorized
        && !is_open
    {
        return refuse(failure);
    }
    if let Some(connection) = connection.filter(|_| is_authorized.0) {
        connection.authorize(announced_length(request.headers()).unwrap_or(0));
    }
    if path == STREAM {
        return match service.bodies.reserve(0, STREAM_MEMORY) {
            Ok(taken) => {
                let (mut head, body) = request.into_parts();
                let body = StreamBody::new(body, service.bodies.clone());
                // The stream's task keeps them.
                head.extensions.insert(body.messages());
                head.extensions.insert(Call {
                    note,
                    ..Call::default()
                });
                head.extensions.insert(Arc::new(taken));
                next.run(Request::from_parts(head, Body::new(body))).await
            }
            Err(failure) => refuse(failure),
        };
    }
    let trace = begin_trace(service, &request);
    let begin = Instant::now();
    let (mut head, body) = request.into_parts();
    let length = announced_length(&head.headers);
    // A client without a token sends no more than a name.
    let most = if is_open {
        OPEN_BODY
    } else {
        service.options.limits.body
    };
    match service.bodies.read(body, length, most).await {
        Ok((bytes, taken)) => {
            note.received(bytes.len());
            trace.stage("receive", begin, begin.elapsed(), || {
                vec![KeyValue::new("http.request.body.size", bytes.len() as i64)]
            });
            head.extensions.insert(is_authorized);
            head.extensions.insert(Call {
                trace: trace.clone(),
                note,
                ..Call::default()
            });
            let taken = Arc::new(taken);
            // Images that are parts of the body keep it, and its memory counts until the last of them is gone.
            let body = Bytes::from_owner(Owned {
                bytes,
                _taken: taken.clone(),
            });
            let mut response = next.run(Request::from_parts(head, Body::from(body))).await;
            drop(taken);
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

/// The length of a body that the client says.
fn announced_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The span of an inference request; health, metadata and the like have none.
fn begin_trace(service: &Service, request: &Request) -> Trace {
    let path = request.uri().path();
    if path == INFER {
        let trace = service.traces.request(path[1..].to_owned(), request.headers());
        trace.describe("rpc.system", "grpc");
        return trace;
    }
    // By its pattern, which has no names of models.
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    match route.filter(|route| route.ends_with("/infer") || *route == "/v1/embeddings") {
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

/// A body with the memory that it counts for.
struct Owned {
    bytes: Bytes,
    _taken: Arc<Taken>,
}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
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

/// In a time that depends on the lengths alone, so that it does not tell how much of a token is right.
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
