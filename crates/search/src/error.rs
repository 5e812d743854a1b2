//! Error type of the crate. Every variant names the file or argument that is at fault.

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
    /// A file is not an index of embeddings, or does not fit the other files of its directory.
    #[error("{}: {reason}", path.display())]
    Index {
        /// Path of the file or directory.
        path: PathBuf,
        /// Reason, and what to do.
        reason: String,
    },
    /// An argument is out of range, or does not fit the index.
    #[error("{what}: {reason}")]
    Argument {
        /// Name of the argument.
        what: &'static str,
        /// Reason, as text.
        reason: String,
    },
    /// The graph of an approximate search is damaged, stale, or cannot be built.
    #[error("{}: {reason}", path.display())]
    Graph {
        /// Path of the graph.
        path: PathBuf,
        /// Reason, and what to do.
        reason: String,
    },
    /// A GPU failed, or has too little memory.
    #[error(transparent)]
    Device(#[from] hipvit::Error),
}

impl Error {
    pub(crate) fn io(path: impl AsRef<Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().to_owned();
        |source| Self::Io { path, source }
    }

    pub(crate) fn index(path: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
        Self::Index {
            path: path.as_ref().to_owned(),
            reason: reason.to_string(),
        }
    }

    #[cfg(feature = "approximate")]
    pub(crate) fn graph(path: impl AsRef<Path>, reason: impl std::fmt::Display) -> Self {
        Self::Graph {
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
