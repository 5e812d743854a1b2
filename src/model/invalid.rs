//! Why values of a model's files are not valid.

/// The reason why sizes, options or the content of a file are not valid. The caller adds the name of the file or tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Invalid(String);

impl From<String> for Invalid {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<&str> for Invalid {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}
