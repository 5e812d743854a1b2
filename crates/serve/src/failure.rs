//! Failure of a request: one type for both protocols, which map it to their own form and status.

use std::path::Path;
use std::time::Duration;

use hipvit::error::{Error, ErrorKind};

/// Maximum bytes of a message, including what it repeats of the request. gRPC sends it in a header, and
/// clients refuse headers above 16 KiB.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Failure of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    kind: Kind,
    message: String,
}

/// Kind of failure, which determines the status in HTTP and gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The request is wrong; the message names the tensor or parameter.
    InvalidArgument,
    /// No bearer token, or a wrong one.
    Unauthorized,
    /// A web page of another site sent the request, or the server does not answer to the name in it.
    Forbidden,
    /// The model, version or path does not exist.
    NotFound,
    /// The body is larger than the server accepts.
    TooLarge,
    /// The client sent its request too slowly.
    SlowClient,
    /// The queue or the memory is full; the client may try again after this time.
    Overloaded(Duration),
    /// The deadline passed before there was a result.
    DeadlineExceeded,
    /// The model has no device left, or the server is shutting down.
    Unavailable,
    /// The protocol has the feature, but this server does not support it.
    Unsupported,
    /// The model failed on a valid request.
    Internal,
}

impl Kind {
    /// Returns the label of this kind in metrics.
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
    /// Creates a failure. The end of a long message is cut, because it may repeat what the client sent.
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

    /// Creates a failure for a body that is not valid JSON.
    pub(super) fn json(error: &serde_json::Error) -> Self {
        let text = error.to_string();
        // The server's own reasons begin with a key. A position at the end would read as part of their last
        // sentence.
        let reason = match text.rsplit_once(" at line ") {
            Some((reason, _)) if text.starts_with('`') => reason,
            _ => text.as_str(),
        };
        Self::invalid(format!("the request's JSON: {reason}"))
    }

    /// Creates a failure for a wrong input tensor.
    pub(super) fn input(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::invalid(format!("input `{name}`: {reason}"))
    }

    /// Creates a failure for a wrong request of an output tensor.
    pub(super) fn output(name: &str, reason: impl std::fmt::Display) -> Self {
        Self::invalid(format!("output `{name}`: {reason}"))
    }

    /// Creates a failure from an error in the preparation of a client's image or text.
    pub(super) fn of_content(error: &Error) -> Self {
        let kind = match error.kind() {
            // Clients name no files: a file that cannot be read is the server's.
            ErrorKind::Input if !matches!(error, Error::Image { .. }) => Kind::Internal,
            ErrorKind::Usage | ErrorKind::Input => Kind::InvalidArgument,
            _ => Kind::Internal,
        };
        Self::new(kind, Self::without_paths(error, None))
    }

    /// Creates a failure from an error of the model or of its device. The server, not the client, called it.
    pub(super) fn of_model(error: &Error) -> Self {
        Self::new(Kind::Internal, Self::without_paths(error, None))
    }

    /// Returns the message of an error without the server's absolute paths. Paths in `root` become relative
    /// to it, others are reduced to their last part. The log has the whole error.
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
            // Relative paths and URLs have a character before their slashes.
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

    /// Returns the kind of failure.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the message, which is one line.
    pub fn message(&self) -> &str {
        &self.message
    }
}

#[cfg(test)]
mod tests {
    use hipvit::ImageErrorKind;

    use super::*;

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::invalid(format!("a{}", "é".repeat(MAX_MESSAGE_BYTES)));
        // The message is cut within the limit, after a whole character.
        assert_eq!(failure.message().len(), MAX_MESSAGE_BYTES);
        assert!(failure.message().ends_with("é…"));
        assert_eq!(Failure::invalid("short").message(), "short");
    }

    #[test]
    fn only_faults_of_the_content_are_the_clients() {
        let unsupported = ImageErrorKind::Unsupported;
        let missing = std::io::ErrorKind::NotFound;
        for (error, expected) in [
            (
                Error::image("image 0", unsupported, "is odd"),
                Kind::InvalidArgument,
            ),
            (Error::argument("text", "is odd"), Kind::InvalidArgument),
            (Error::io("a.png", missing.into()), Kind::Internal),
            (Error::config("config.json", "is odd"), Kind::Internal),
            (Error::device("hip:0", "is lost"), Kind::Internal),
            (Error::resource("threads", "there are too many"), Kind::Internal),
            (Error::internal("image", "decoding it panicked"), Kind::Internal),
        ] {
            assert_eq!(Failure::of_content(&error).kind(), expected, "{error}");
            assert_eq!(Failure::of_model(&error).kind(), Kind::Internal, "{error}");
        }
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
