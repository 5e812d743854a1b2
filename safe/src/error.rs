//! The error type of the crate. Every variant names its cause: the device, the library or the call.

use std::fmt;
use std::path::{Path, PathBuf};

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of this crate. Every message is one line.
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
    /// An argument of a call is out of range or contradicts another one.
    #[error("{what}: {reason}")]
    Argument {
        /// Name of the argument.
        what: &'static str,
        /// Cause.
        reason: String,
    },
    /// A call of the operating system failed that concerns no file.
    #[error("{call} failed: {source}")]
    System {
        /// Name of the call.
        call: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The arguments do not match the parameters that a kernel's code object declares.
    #[error("kernel `{kernel}`: {}{reason}", Position(parameter))]
    Parameter {
        /// Name of the kernel in the code.
        kernel: String,
        /// Index of the parameter, from 0. `None` if the number of arguments is wrong.
        parameter: Option<usize>,
        /// Reason for the mismatch.
        reason: String,
    },
    /// A library of the GPU's provider cannot be opened, or lacks a function.
    #[error("{reason}{}", Tried(tried))]
    Provider {
        /// The library or function, and what is wrong with it.
        reason: String,
        /// All files that were tried, each with the reason for not opening it. Empty if the error is not about finding a library.
        tried: String,
    },
    /// The GPU does not exist.
    #[error("no GPU {ordinal}: {reason}")]
    NoDevice {
        /// Requested ordinal, from 0.
        ordinal: usize,
        /// The finding, and the library that reported it.
        reason: String,
    },
    /// A call of a GPU library failed.
    #[error("{device}: {call} failed: {status}{}", Advice(advice))]
    Device {
        /// Name of the GPU.
        device: String,
        /// Name of the library's function.
        call: &'static str,
        /// Name of the status that the call returned.
        status: String,
        /// Advice for the user. May be empty.
        advice: String,
    },
    /// A communicator of several GPUs failed: a rank is missing, lost, or has called something else.
    #[error(
        "{device}: rank {rank} of {ranks}: {reason}; the communicator was aborted, and what its stream wrote since is undefined"
    )]
    Communicator {
        /// GPU of this rank.
        device: String,
        /// Number of this rank.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
        /// Reason from RCCL or the watchdog.
        reason: String,
    },
    /// The processes of a run did not find each other, or one of them is lost.
    #[error("rank {rank} of {ranks}: rendezvous at {address}: {reason}")]
    Rendezvous {
        /// Rank of this process.
        rank: usize,
        /// Number of processes.
        ranks: usize,
        /// Address of the rendezvous.
        address: String,
        /// Reason, including the rank that it concerns.
        reason: String,
    },
    /// The GPU's memory does not suffice, even after freeing all cached blocks.
    #[error(
        "{device}: out of memory: {bytes} bytes were asked for, {held} are held by this process, {live} of them in use; take a smaller batch or a narrower dtype"
    )]
    OutOfMemory {
        /// Name of the GPU.
        device: String,
        /// Size of the allocation in bytes.
        bytes: usize,
        /// Bytes that the pool holds.
        held: usize,
        /// Bytes of the pool that are in use.
        live: usize,
    },
    /// A code object cannot run on the GPU.
    #[error(
        "{device}: no code for {arch}: {reason}; build it with HIPVIT_OFFLOAD_ARCHS={arch}, or let hipRTC compile it at run time"
    )]
    NoCode {
        /// Name of the GPU.
        device: String,
        /// Architecture of the GPU.
        arch: String,
        /// Architectures of the code object, or what is wrong with it.
        reason: String,
    },
    /// hipRTC rejected a program.
    #[error("{program}: {reason}")]
    Compile {
        /// Name of the program.
        program: String,
        /// First error of the log.
        reason: String,
        /// Complete log of the compiler.
        log: String,
    },
}

/// Formats the message like [`Display`](fmt::Display), since a `main` that returns a [`Result`] prints its error with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Formats the parameter that an error concerns.
struct Position<'a>(&'a Option<usize>);

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |index| write!(f, "parameter {index}: "))
    }
}

/// Formats the files that were tried, after the reason.
struct Tried<'a>(&'a str);

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, "; tried {}", self.0)
    }
}

/// Formats the advice after the reason.
struct Advice<'a>(&'a str);

impl fmt::Display for Advice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}

impl Error {
    /// Returns the message without the list of library files that were tried, for a line of a log.
    #[must_use]
    pub fn brief(&self) -> String {
        match self {
            Self::Provider { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }

    pub(crate) fn io(path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io {
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// Creates an [`Error::Argument`], for code that checks arguments on behalf of this layer.
    pub fn argument(what: &'static str, reason: impl fmt::Display) -> Self {
        Self::Argument {
            what,
            reason: reason.to_string(),
        }
    }
}
