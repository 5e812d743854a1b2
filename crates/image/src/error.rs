//! Error type of the crate. Every variant names the file, image or argument that is at fault.

use std::path::{Path, PathBuf};

/// A result whose error is the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the crate. The message of every variant is one line.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system could not read a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// An image cannot be decoded or used.
    #[error("{name}: {reason}")]
    Image {
        /// Path of the file, or a name for it (`-` for standard input).
        name: String,
        /// Kind of failure.
        kind: ImageErrorKind,
        /// Reason, as text.
        reason: String,
    },
    /// A configuration of preprocessing is invalid or not supported.
    #[error("{}: {reason}", file.display())]
    Config {
        /// Path of the configuration file.
        file: PathBuf,
        /// Reason, as text.
        reason: String,
    },
    /// An argument is out of range or contradicts other arguments.
    #[error("{what}: {reason}")]
    Argument {
        /// Name of the argument.
        what: &'static str,
        /// Reason, as text.
        reason: String,
    },
    /// The operating system refused threads.
    #[error("{what}: {reason}")]
    Resource {
        /// Kind of resource.
        what: &'static str,
        /// Reason, as text.
        reason: String,
    },
}

/// Kinds of failure of an image. A file that cannot be read is an [`Error::Io`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageErrorKind {
    /// The image is in no supported format, or uses an unsupported variant of its format.
    Unsupported,
    /// The file ends before all pixels are present. Not every format's decoder can distinguish this from damage.
    Truncated,
    /// The file is damaged.
    Damaged,
    /// The image has more pixels than its [`Limits`](crate::Limits) allow, or than fit into memory.
    TooLarge,
    /// The image can be decoded, but its sides cannot be scaled to the model's size.
    Size,
}

impl Error {
    pub(crate) fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_owned(),
            source,
        }
    }

    pub(crate) fn image(
        name: impl Into<String>,
        kind: ImageErrorKind,
        reason: impl std::fmt::Display,
    ) -> Self {
        Self::Image {
            name: name.into(),
            kind,
            reason: reason.to_string(),
        }
    }

    pub(crate) fn config(file: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
        Self::Config {
            file: file.as_ref().to_owned(),
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
