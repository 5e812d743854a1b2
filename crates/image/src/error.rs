//! The crate's error type. Every variant names what is at fault.

use std::path::{Path, PathBuf};

/// A result with the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What failed, and why. The message of every variant is one line.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused to read a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An image cannot be decoded or used.
    #[error("{name}: {reason}")]
    Image {
        /// The file's path, or a name for it (`-` for standard input).
        name: String,
        /// What kind of failure it is.
        kind: ImageErrorKind,
        /// The cause.
        reason: String,
    },
    /// A configuration of preprocessing is invalid or not supported.
    #[error("{}: {reason}", file.display())]
    Config {
        /// The configuration file.
        file: PathBuf,
        /// The cause.
        reason: String,
    },
    /// An argument is out of range or does not fit the others.
    #[error("{what}: {reason}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// The cause.
        reason: String,
    },
}

/// Why an image cannot be decoded or used. A file that cannot be read is an [`Error::Io`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ImageErrorKind {
    /// It is in no supported format, or uses a variant of its format that is not supported.
    Unsupported,
    /// It ends before all of its pixels are there. Not every format's decoder can tell this from damage.
    Truncated,
    /// It is damaged.
    Damaged,
    /// It has more pixels than its [`Limits`](crate::Limits) allow, or than memory can hold.
    TooLarge,
    /// It decodes, but its sides cannot be brought to the model's size.
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
