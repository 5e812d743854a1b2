//! How commands end: outcomes, and errors that are not those of the library.

use std::io;
use std::path::Path;

/// How a command ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All inputs were processed.
    Complete,
    /// Some inputs failed and were reported. The others were processed.
    SomeFailed,
}

impl Outcome {
    /// Returns the outcome of a command in which `failed` inputs failed.
    pub(crate) fn of(failed: usize) -> Self {
        match failed {
            0 => Self::Complete,
            _ => Self::SomeFailed,
        }
    }
}

/// Successful end of a process whose results are reported by rank 0.
#[derive(Debug, thiserror::Error)]
#[error("rank 0 reports the results")]
pub(crate) struct Followed;

/// An error in the usage that clap does not detect. The exit code is 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage<T = &'static str>(pub(crate) T);

/// Converts an I/O error at `path` to the library's error.
pub(crate) fn refused(path: &Path) -> impl Fn(io::Error) -> hipvit::Error {
    move |source| hipvit::Error::Io {
        path: path.to_owned(),
        source,
    }
}
