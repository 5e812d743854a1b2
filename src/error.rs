//! The library's one error type. Every variant names what was at fault: the file, the tensor, the graph node.

use std::path::{Path, PathBuf};

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and where. The text of every variant is one line.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused to read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An image could not be decoded, or is not allowed (see [`crate::image::Limits`]).
    #[error("{name}: {reason}")]
    Image {
        /// The file's path, or what stands for it (`-` for standard input).
        name: String,
        /// The cause.
        reason: String,
    },
    /// A configuration file is missing, is not JSON, or says something that cannot be built.
    #[error("{}: {reason}", file.display())]
    Config {
        /// The configuration file or model directory.
        file: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A weight file as a whole is unusable: cut short, a lying header, an overlapping tensor.
    #[error("{}: {reason}", file.display())]
    Weights {
        /// The weight file.
        file: PathBuf,
        /// The cause.
        reason: String,
    },
    /// One tensor is missing, unexpected, or has the wrong shape or data type.
    #[error("{}: tensor `{tensor}`: {reason}", file.display())]
    Tensor {
        /// The weight file (or the model directory if the tensor is in none).
        file: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
        /// The cause.
        reason: String,
    },
    /// A graph node got operands that its op does not accept.
    #[error("node `{node}`: {reason}")]
    Graph {
        /// The node's name.
        node: String,
        /// The cause.
        reason: String,
    },
    /// An argument of a call contradicts the model or is out of range.
    #[error("{what}: {reason}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// The cause.
        reason: String,
    },
    /// The GPU's libraries, memory or code: see [`crate::hip::Error`].
    #[error(transparent)]
    Hip(#[from] crate::hip::Error),
}

impl Error {
    pub(crate) fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_owned(),
            source,
        }
    }

    pub(crate) fn image(name: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Image {
            name: name.into(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn config(file: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
        Self::Config {
            file: file.as_ref().to_owned(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn weights(file: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
        Self::Weights {
            file: file.as_ref().to_owned(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn tensor(
        file: impl AsRef<Path>,
        tensor: impl Into<String>,
        reason: impl std::fmt::Display,
    ) -> Self {
        Self::Tensor {
            file: file.as_ref().to_owned(),
            tensor: tensor.into(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn graph(node: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Graph {
            node: node.into(),
            reason: reason.to_string(),
        }
    }

    pub(crate) fn argument(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Argument {
            what,
            reason: reason.to_string(),
        }
    }
}
