//! The layer that an error belongs to.

/// The layer that an [`Error`](super::Error) belongs to, which says who can correct it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The caller's argument, option or order of calls is wrong.
    Usage,
    /// An image, a labelled set or a file cannot be read or used.
    Input,
    /// The model's files or its graph are incomplete, damaged or not supported.
    Model,
    /// A GPU, its libraries, or the threads and memory of the host failed or do not suffice.
    Device,
    /// The library has a bug. The caller cannot correct it.
    Internal,
}

/// What to do about an internal error.
pub(crate) const REPORT: &str =
    "This is a bug in hipvit: report it with this message, the model and the options";
