//! The library's error type. Every variant names what is at fault: the file, the tensor, the graph node.

mod kernel;
mod kind;

use std::fmt;
use std::path::{Path, PathBuf};

use hipvit_image::ImageErrorKind;

use crate::graph::Node;
use crate::hip;

pub use self::kernel::KernelError;
pub use self::kind::ErrorKind;
use self::kind::REPORT;

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
    /// A graph is not sound at a node or value.
    #[error("node `{node}`: {reason}")]
    Graph {
        /// Name of the node.
        node: String,
        /// Cause.
        reason: String,
    },
    /// A node's op does not accept its operands, or the device has no kernel for it.
    #[error("node `{node}`: {}{source}", On(device))]
    Op {
        /// The node's name.
        node: String,
        /// The op with its attributes.
        op: String,
        /// The GPU, unless the op fails everywhere.
        device: Option<String>,
        /// The cause.
        source: Box<KernelError>,
    },
    /// A GPU failed at a node.
    #[error("node `{node}`: {}{source}", On(device))]
    Step {
        /// The node's name.
        node: String,
        /// The op with its attributes.
        op: String,
        /// The GPU, unless the cause names it.
        device: Option<String>,
        /// The cause.
        source: Box<Self>,
    },
    /// A kernel or a library refuses a call.
    #[error("{call}: {source}")]
    Kernel {
        /// The kernel, or what was to be computed.
        call: &'static str,
        /// The cause.
        source: KernelError,
    },
    /// An ONNX file cannot be loaded: see [`hipvit_onnx::Error`].
    #[error(transparent)]
    Onnx(hipvit_onnx::Error),
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
    Hip(#[from] hip::Error),
    /// A GPU cannot do what the model or an option requires.
    #[error("{device}: {reason}")]
    Device {
        /// The GPU.
        device: String,
        /// The cause.
        reason: String,
    },
    /// Threads, or memory of the host or of another GPU of the model, are not available.
    #[error("{what}: {reason}")]
    Resource {
        /// What is not available.
        what: &'static str,
        /// The cause.
        reason: String,
    },
    /// The library contradicts itself. No input and no argument causes this.
    #[error("{what}: {reason}. {report}", report = REPORT)]
    Internal {
        /// The part of the library.
        what: &'static str,
        /// The contradiction.
        reason: String,
    },
}

/// The device before a cause.
struct On<'a>(&'a Option<String>);

impl fmt::Display for On<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |device| write!(f, "{device}: "))
    }
}

impl From<hipvit_graph::Error> for Error {
    fn from(error: hipvit_graph::Error) -> Self {
        match error {
            hipvit_graph::Error::Graph { node, reason } => Self::Graph { node, reason },
            hipvit_graph::Error::Op { node, op, source } => Self::Op {
                node,
                op,
                device: None,
                source: Box::new(source.into()),
            },
            hipvit_graph::Error::Argument { what, reason } => Self::Argument { what, reason },
            other => Self::graph("graph", other),
        }
    }
}

impl From<hipvit_onnx::Error> for Error {
    fn from(error: hipvit_onnx::Error) -> Self {
        match error {
            hipvit_onnx::Error::Extents { path, names } => {
                let reason = format!(
                    "{} leaves {} of its inputs open. Give each a number with SessionBuilder::extent, or --extent NAME=N",
                    path.display(),
                    names.join(", ")
                );
                Self::argument("extents", reason)
            }
            error => Self::Onnx(error),
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
            hipvit_image::Error::Resource { what, reason } => Self::Resource { what, reason },
            // Future variants, which carry their own message.
            error => Self::Argument {
                what: "image",
                reason: error.to_string(),
            },
        }
    }
}

impl Error {
    /// Returns the layer that the error belongs to.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Argument { .. } => ErrorKind::Usage,
            Self::Io { .. } | Self::Image { .. } | Self::LabelledSet { .. } => ErrorKind::Input,
            Self::Config { .. }
            | Self::Hub { .. }
            | Self::Weights { .. }
            | Self::Tensor { .. }
            | Self::Graph { .. }
            | Self::NonFinite { .. } => ErrorKind::Model,
            Self::Onnx(hipvit_onnx::Error::Io { .. }) => ErrorKind::Input,
            Self::Onnx(_) => ErrorKind::Model,
            Self::Rank { .. } | Self::Device { .. } | Self::Resource { .. } => ErrorKind::Device,
            Self::Hip(error) => match error {
                hip::Error::Argument { .. } => ErrorKind::Usage,
                hip::Error::Io { .. } => ErrorKind::Input,
                hip::Error::Parameter { .. } => ErrorKind::Internal,
                _ => ErrorKind::Device,
            },
            Self::Op { source, .. } => source.kind(),
            Self::Kernel { source, .. } => source.kind(),
            Self::Step { source, .. } => match source.kind() {
                // The library makes the calls of a step, not the caller.
                ErrorKind::Usage => ErrorKind::Internal,
                kind => kind,
            },
            Self::Internal { .. } => ErrorKind::Internal,
        }
    }

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

    /// Returns an [`Error::Weights`] for the weight file `file`.
    pub fn weights(file: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
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

    /// Returns an [`Error::Op`] for a node that the device does not compute.
    pub(crate) fn op(node: &Node, device: Option<&str>, source: KernelError) -> Self {
        Self::Op {
            node: node.name.clone(),
            op: node.op.to_string(),
            device: device.map(str::to_owned),
            source: Box::new(source),
        }
    }

    /// Returns an [`Error::Kernel`] for a kernel, or for what was to be computed.
    pub(crate) fn kernel(call: &'static str, source: KernelError) -> Self {
        Self::Kernel { call, source }
    }

    /// Returns an [`Error::Argument`] for the argument `what`.
    pub fn argument(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Argument {
            what,
            reason: reason.to_string(),
        }
    }

    /// Returns an [`Error::Device`] for the GPU `device`.
    pub fn device(device: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Device {
            device: device.into(),
            reason: reason.to_string(),
        }
    }

    /// Returns an [`Error::Resource`] for `what`, such as threads or memory.
    pub fn resource(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Resource {
            what,
            reason: reason.to_string(),
        }
    }

    /// Returns an [`Error::Internal`] for the part `what` of the library.
    pub fn internal(what: &'static str, reason: impl std::fmt::Display) -> Self {
        Self::Internal {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_not_the_callers_fault() {
        let step = |source: Error| Error::Step {
            node: "blocks.0".into(),
            op: "linear".into(),
            device: Some("GPU 0".into()),
            source: Box::new(source),
        };
        let outside = step(hip::Error::argument("operand", "is too small").into());
        assert_eq!(outside.kind(), ErrorKind::Internal);
        assert_eq!(
            outside.to_string(),
            "node `blocks.0`: GPU 0: operand: is too small"
        );
        let many = step(Error::kernel("add", KernelError::Extent(1 << 32)));
        assert_eq!(many.kind(), ErrorKind::Device);
    }

    #[test]
    fn an_internal_error_says_what_to_do() {
        let error = Error::internal("pipeline", "has no stage");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert_eq!(error.to_string(), format!("pipeline: has no stage. {REPORT}"));
    }
}
