//! The library's error type. Every variant names what is at fault: the file, the tensor, the graph node.

use std::fmt;
use std::path::{Path, PathBuf};

use hipvit_image::ImageErrorKind;

/// A result with the library's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of this library. The message of every variant is one line.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum Error {
    /// The operating system failed to read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// An image cannot be decoded or used.
    #[error("{name}: {reason}")]
    Image {
        /// Path of the file, or a name (`-` for standard input).
        name: String,
        /// Kind of failure.
        kind: ImageErrorKind,
        /// Cause.
        reason: String,
    },
    /// A labelled dataset does not have the expected layout.
    #[error("{}: {reason}", path.display())]
    LabelledSet {
        /// Directory or file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// A configuration file is missing, is not JSON, or describes a model that is not supported.
    #[error("{}: {reason}", file.display())]
    Config {
        /// Configuration file or model directory.
        file: PathBuf,
        /// Cause.
        reason: String,
    },
    /// A model of the Hugging Face hub is missing from the local cache, incomplete, or unusable.
    #[error("{model}: {reason}")]
    Hub {
        /// Name of the model on the hub, with the revision if one was given.
        model: String,
        /// Cause. If a download helps, with its command.
        reason: String,
    },
    /// A weight file as a whole is unusable: truncated, with an invalid header, or with overlapping tensors.
    #[error("{}: {reason}", file.display())]
    Weights {
        /// Weight file.
        file: PathBuf,
        /// Cause.
        reason: String,
    },
    /// A tensor is missing, unexpected, or has the wrong shape or dtype.
    #[error("{}: tensor `{tensor}`: {reason}", file.display())]
    Tensor {
        /// Weight file, or the model directory if no file has the tensor.
        file: PathBuf,
        /// Name of the tensor in the file.
        tensor: String,
        /// Cause.
        reason: String,
    },
    /// A graph node has operands that its op rejects, or it cannot run.
    #[error("node `{node}`: {reason}")]
    Graph {
        /// Name of the node.
        node: String,
        /// Cause.
        reason: String,
    },
    /// Results are NaN or infinite. Only for a [strict](crate::SessionBuilder::strict) session.
    #[error("{image}: {results}")]
    NonFinite {
        /// Name of the image, or `image N`, counted from 0.
        image: String,
        /// Affected results.
        results: crate::non_finite::NonFinite,
    },
    /// An argument is out of range, or does not fit the model or the device.
    #[error("{what}: {reason}")]
    Argument {
        /// Name of the argument.
        what: &'static str,
        /// Cause.
        reason: String,
    },
    /// A GPU of a divided model failed, and the others were stopped.
    #[error(
        "rank {rank} of {ranks}, {device}: {reason}; the model's other GPUs were stopped: load it again, without this one if it \
         is lost"
    )]
    Rank {
        /// Index of the failed GPU among those of the model, from 0.
        rank: usize,
        /// Number of the model's GPUs.
        ranks: usize,
        /// Name of the GPU.
        device: String,
        /// The cause.
        reason: String,
    },
    /// The GPU's libraries, memory or code: see [`crate::hip::Error`].
    #[error(transparent)]
    Hip(#[from] crate::hip::Error),
}

impl From<hipvit_graph::Error> for Error {
    fn from(error: hipvit_graph::Error) -> Self {
        match error {
            hipvit_graph::Error::Graph { node, reason } => Self::Graph { node, reason },
            hipvit_graph::Error::Op { node, source, .. } => Self::graph(node, source),
            hipvit_graph::Error::Argument { what, reason } => Self::Argument { what, reason },
            other => Self::graph("graph", other),
        }
    }
}

/// Writes the message, as [`Display`](fmt::Display) does. A `main` that returns a [`Result`] prints its error with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<hipvit_image::Error> for Error {
    fn from(error: hipvit_image::Error) -> Self {
        match error {
            hipvit_image::Error::Io { path, source } => Self::Io { path, source },
            hipvit_image::Error::Image { name, kind, reason } => Self::Image { name, kind, reason },
            hipvit_image::Error::Config { file, reason } => Self::Config { file, reason },
            hipvit_image::Error::Argument { what, reason } => Self::Argument { what, reason },
            // Future variants, which carry their own message.
            error => Self::Argument {
                what: "image",
                reason: error.to_string(),
            },
        }
    }
}

impl Error {
    /// Returns the message without the list of library files that were tried, for a line of a log.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Hip(error) => error.brief(),
            other => other.to_string(),
        }
    }

    /// Returns an [`Error::Io`] for the file or directory `path`.
    pub fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// Returns an [`Error::Image`] for the image `name`.
    pub fn image(name: impl Into<String>, kind: ImageErrorKind, reason: impl std::fmt::Display) -> Self {
        Self::Image {
            name: name.into(),
            kind,
            reason: reason.to_string(),
        }
    }

    /// Returns an [`Error::Config`] for the configuration file or model directory `file`.
    pub fn config(file: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
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

    /// Returns an [`Error::Tensor`] for a tensor of the weight file `file`.
    pub fn tensor(file: impl AsRef<Path>, tensor: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Tensor {
            file: file.as_ref().to_owned(),
            tensor: tensor.into(),
            reason: reason.to_string(),
        }
    }

    /// Returns an [`Error::Graph`] for the node `node`.
    pub fn graph(node: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Graph {
            node: node.into(),
            reason: reason.to_string(),
        }
    }

    /// Returns an [`Error::Argument`] for the argument `what`.
    pub fn argument(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Argument {
            what,
            reason: reason.to_string(),
        }
    }
}

/// The value of the argument `what` that `text` names.
///
/// # Errors
///
/// [`Error::Argument`] with all names.
pub(crate) fn named<T: Copy>(what: &'static str, text: &str, values: &[(&str, T)]) -> Result<T> {
    let value = values.iter().find(|(name, _)| *name == text);
    value.map(|&(_, value)| value).ok_or_else(|| {
        let names: Vec<&str> = values.iter().map(|&(name, _)| name).collect();
        Error::argument(what, format_args!("`{text}` is not one of {}", names.join(", ")))
    })
}
