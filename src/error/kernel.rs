//! Why a kernel or a library does not compute what it is asked for.

use hipvit_graph::op::OpError;

use super::kind::{ErrorKind, REPORT};

/// The reason why a GPU does not compute an op, or why a kernel refuses its arguments.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The op does not accept its operands or attributes.
    #[error(transparent)]
    Op(#[from] OpError),
    /// An extent does not fit the 32 bits of a kernel's argument.
    #[error("an extent of {0} exceeds the 32 bits of a kernel's argument")]
    Extent(usize),
    /// A launch needs more blocks than the device takes.
    #[error("needs {blocks} blocks, and the device takes {most}")]
    Blocks {
        /// Number of blocks of the launch.
        blocks: u64,
        /// Maximum number of blocks of a grid on the device.
        most: u64,
    },
    /// The fused attention kernel does not take heads of this size.
    #[error("has heads of {head_dim} channels; the fused kernel takes 1 to {most}")]
    HeadSize {
        /// Number of channels of a head.
        head_dim: usize,
        /// Maximum number of channels of a head.
        most: usize,
    },
    /// No kernel computes this on the device.
    #[error("{0}")]
    Unsupported(String),
    /// A library of the GPU's provider refuses the call.
    #[error("{0}")]
    Library(String),
    /// The plan, the kernel's code or its arguments contradict each other.
    #[error("{0}. {report}", report = REPORT)]
    Internal(String),
}

impl KernelError {
    /// Returns a [`KernelError::Unsupported`].
    pub(crate) fn unsupported(reason: impl Into<String>) -> Self {
        Self::Unsupported(reason.into())
    }

    /// Returns a [`KernelError::Library`] for an error of the library.
    pub(crate) fn library(error: impl std::fmt::Display) -> Self {
        Self::Library(error.to_string())
    }

    /// Returns a [`KernelError::Internal`].
    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Self::Internal(reason.into())
    }

    /// Returns the layer that the error belongs to.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Op(OpError::Memory(_)) | Self::Internal(_) => ErrorKind::Internal,
            Self::Op(_) => ErrorKind::Model,
            Self::Extent(_)
            | Self::Blocks { .. }
            | Self::HeadSize { .. }
            | Self::Unsupported(_)
            | Self::Library(_) => ErrorKind::Device,
        }
    }
}

/// Converts a reason that concerns the operands.
impl From<String> for KernelError {
    fn from(reason: String) -> Self {
        OpError::from(reason).into()
    }
}

/// Converts a reason that concerns the operands.
impl From<&str> for KernelError {
    fn from(reason: &str) -> Self {
        OpError::from(reason).into()
    }
}

impl From<KernelError> for String {
    fn from(error: KernelError) -> Self {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_says_who_can_correct_it() {
        let memory = OpError::memory("an operand is too short");
        for (error, kind) in [
            (KernelError::from("takes tokens"), ErrorKind::Model),
            (KernelError::Op(memory), ErrorKind::Internal),
            (KernelError::Extent(1 << 32), ErrorKind::Device),
            (KernelError::unsupported("is in FP8"), ErrorKind::Device),
            (KernelError::library("NOT_SUPPORTED"), ErrorKind::Device),
            (KernelError::internal("is not in int8"), ErrorKind::Internal),
        ] {
            assert_eq!(error.kind(), kind, "{error}");
        }
        let text = KernelError::internal("is not in int8").to_string();
        assert!(text.starts_with("is not in int8. This is a bug"), "{text}");
    }
}
