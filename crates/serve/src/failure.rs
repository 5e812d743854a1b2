//! Why a request failed: one type for both protocols, which give it their own form and status.

use std::path::Path;
use std::time::Duration;

use hipvit::error::Error;

/// Maximum bytes of a message, with what it repeats of the request. gRPC sends it in a header, and clients refuse headers above 16 KiB.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    kind: Kind,
    message: String,
}

/// What kind of failure it is: the statuses of HTTP and gRPC follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The request is wrong; the message names the tensor or parameter.
    InvalidArgument,
    /// No bearer token, or a wrong one.
    Unauthorized,
    /// A web page of another site sent the request, or the server does not answer to the name in it.
    Forbidden,
    /// There is no such model, version or path.
    NotFound,
    /// The body is larger than the server accepts.
    TooLarge,
    /// The client sent its request too slowly.
    SlowClient,
    /// There is no queue space or memory for it now; the client may try again after this time.
    Overloaded(Duration),
    /// The deadline passed before there was a result.
    DeadlineExceeded,
    /// The model has no device left, or the server is shutting down.
    Unavailable,
    /// The protocol has it, this server does not.
    Unsupported,
    /// The model failed on a valid request.
    Internal,
}

impl Kind {
    /// The label of this kind in metrics.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::TooLarge => "too_large",
            Self::SlowClient => "slow_client",
            Self::Overloaded(_) => "overloaded",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Unavailable => "unavailable",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
        }
    }
}

impl Failure {
    /// A failure with a message, which may repeat what the client sent: its end is cut where it is too long.
    pub(super) fn new(kind: Kind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES - '…'.len_utf8()));
            message.push('…');
        }
        Self { kind, message }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidArgument, message)
    }

    /// A body that is not the JSON of a request.
    pub(super) fn json(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        // The server's own reasons begin with a key. A position after their last sentence would read as part of it.
        let reason = match text.rsplit_once(" at line ") {
            Some((reason, _)) if text.starts_with('`') => reason,
            _ => text.as_str(),
        };
        Self::invalid(format!("the request's JSON: {reason}"))
    }

    /// A wrong input tensor.
    pub(super) fn input(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::invalid(format!("input `{name}`: {reason}"))
    }

    /// A wrong request for an output tensor.
    pub(super) fn output(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::invalid(format!("output `{name}`: {reason}"))
    }

    /// What a client's image or argument failed with, or the model.
    pub(super) fn of(error: &Error) -> Self {
        let kind = match error {
            Error::Image { .. } | Error::Argument { .. } => Kind::InvalidArgument,
            _ => Kind::Internal,
        };
        Self::new(kind, Self::without_paths(error, None))
    }

    /// Returns what an error says, without the absolute paths of the server: those in `root` are given relative to it, others by their
    /// last part. The log has the whole error.
    pub(super) fn without_paths(error: &Error, root: Option<&Path>) -> String {
        let mut text = error.to_string();
        if let Some(root) = root.and_then(Path::to_str).map(|root| root.trim_end_matches('/'))
            && !root.is_empty()
        {
            text = text.replace(&format!("{root}/"), "").replace(root, ".");
        }
        let mut shown = String::with_capacity(text.len());
        let mut rest = text.as_str();
        let mut before = ' ';
        while let Some(first) = rest.chars().next() {
            let length = rest.find(|c: char| c.is_whitespace() || "`'\"()[],;".contains(c));
            // Relative paths and URLs have something before their slashes.
            let is_url = before == ':' && rest.starts_with("//");
            if first == '/' && !before.is_alphanumeric() && !"/.~".contains(before) && !is_url {
                let (path, after) = rest.split_at(length.unwrap_or(rest.len()));
                let path = path.trim_end_matches('/');
                shown.push_str(path.rsplit('/').next().unwrap_or(path));
                rest = after;
                before = 'x';
            } else {
                shown.push(first);
                rest = &rest[first.len_utf8()..];
                before = first;
            }
        }
        shown
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What went wrong, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::invalid(format!("a{}", "é".repeat(MAX_MESSAGE_BYTES)));
        // Within the limit, after a whole character.
        assert_eq!(failure.message().len(), MAX_MESSAGE_BYTES);
        assert!(failure.message().ends_with("é…"));
        assert_eq!(Failure::invalid("short").message(), "short");
    }

    #[test]
    fn clients_see_no_absolute_path() {
        let config = |file: &str, reason: &str| Error::config(Path::new(file), reason.to_owned());
        let root = Path::new("/srv/our models");
        for (error, expected) in [
            (
                config("/srv/our models/vit/config.json", "is no JSON"),
                "vit/config.json: is no JSON",
            ),
            (config("/srv/our models", "is no directory"), ".: is no directory"),
            (
                config(
                    "/etc/x.json",
                    "see `/root/.cache/a b`, HOME=/root or /opt/rocm/lib/libhip.so: no",
                ),
                "x.json: see `a b`, HOME=root or libhip.so: no",
            ),
            (
                config("vit/config.json", "https://host/a/b and 1/2 or image/png, ~/x"),
                "vit/config.json: https://host/a/b and 1/2 or image/png, ~/x",
            ),
        ] {
            let shown = Failure::without_paths(&error, Some(root));
            assert_eq!(shown, expected);
        }
    }
}
