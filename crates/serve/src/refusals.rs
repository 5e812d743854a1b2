//! Counts the requests that are answered with an error, for every path and every layer that refuses.

use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Request, StatusCode};
use tonic::Code;

use super::metrics::Metrics;

/// Protocol of a request, and true if it asks for health. Read before the request is handled.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestKind {
    is_grpc: bool,
    is_health: bool,
}

/// True for a call of gRPC.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

impl RequestKind {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path();
        Self {
            is_grpc: is_grpc(request.headers()),
            is_health: path == "/health" || path.ends_with("/ready"),
        }
    }

    /// Counts the request if `response` is an error.
    pub(super) fn count<B>(self, response: &hyper::Response<B>, metrics: &Metrics) {
        let reason = if self.is_grpc {
            grpc_reason(response.headers())
        } else {
            http_reason(response.status(), self.is_health)
        };
        if let Some(reason) = reason {
            let protocol = if self.is_grpc { "grpc" } else { "http" };
            metrics.refused_request(protocol, reason);
        }
    }
}

fn http_reason(status: StatusCode, is_health: bool) -> Option<&'static str> {
    Some(match status {
        // The answer to a probe is not a refusal.
        StatusCode::SERVICE_UNAVAILABLE if is_health => return None,
        StatusCode::BAD_REQUEST => "invalid_argument",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::REQUEST_TIMEOUT => "slow_client",
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::TOO_MANY_REQUESTS => "overloaded",
        StatusCode::INTERNAL_SERVER_ERROR => "internal",
        StatusCode::NOT_IMPLEMENTED => "unsupported",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        StatusCode::GATEWAY_TIMEOUT => "deadline_exceeded",
        status if status.is_client_error() || status.is_server_error() => "other",
        _ => return None,
    })
}

/// Returns the reason of an error whose status is in the headers, because it has no message. `None` for other
/// answers.
fn grpc_reason(headers: &HeaderMap) -> Option<&'static str> {
    let code = Code::from_bytes(headers.get("grpc-status")?.as_bytes());
    Some(match code {
        Code::Ok => return None,
        Code::InvalidArgument => "invalid_argument",
        Code::Unauthenticated => "unauthorized",
        Code::PermissionDenied => "forbidden",
        Code::NotFound => "not_found",
        Code::ResourceExhausted => "too_large",
        Code::DeadlineExceeded => "deadline_exceeded",
        // Overload and a lost device have the same code.
        Code::Unavailable => "unavailable",
        Code::Unimplemented => "unsupported",
        Code::Internal => "internal",
        _ => "other",
    })
}
