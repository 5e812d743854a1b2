//! What is wrong with an input tensor.

/// The reason why the type, the shape or the elements of an input tensor are wrong. The caller adds the tensor's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TensorError(String);

impl From<String> for TensorError {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<&str> for TensorError {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}
