//! Error type of the crate. Every variant names the file, image or argument that is at fault.

use std::path::{Path, PathBuf};

/// A result whose error is the crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of the crate. The message of every variant is one line.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system could not read a file or directory.
    #[error("{}: {source}", path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A dataset does not have the expected layout.
    #[error("{}: {reason}", path.display())]
    Dataset {
        /// Path of the file or directory.
        path: PathBuf,
        /// Reason, as text.
        reason: String,
    },
    /// An image cannot be decoded or transformed.
    #[error(transparent)]
    Image(#[from] hipvit_image::Error),
    /// An image of a dataset cannot be augmented.
    #[error("{name}: {source}")]
    Prepare {
        /// Name of the image.
        name: String,
        /// Error of the transform.
        source: Box<Error>,
    },
    /// Another process of the run cannot load an image.
    #[error("{text}")]
    Elsewhere {
        /// Error of the other process, with the image's name.
        text: String,
    },
    /// A thread of a loader panicked.
    #[error("a thread that loads images panicked; its message is on standard error")]
    Panicked,
    /// An argument is out of range or contradicts other arguments.
    #[error("{what}: {reason}")]
    Argument {
        /// Name of the argument.
        what: &'static str,
        /// Reason, as text.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_owned(),
            source,
        }
    }

    pub(crate) fn dataset(path: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
        Self::Dataset {
            path: path.as_ref().to_owned(),
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
