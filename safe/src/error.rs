//! The crate's one error type. Every variant names what was at fault: the device, the library, the call.

use std::fmt;
use std::path::{Path, PathBuf};

/// The crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of this crate. The text of every variant is one line.
#[non_exhaustive]
#[derive(thiserror::Error)]
pub enum Error {
    /// The operating system refused to read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// An argument of a call is out of range or contradicts another.
    #[error("{what}: {reason}")]
    Argument {
        /// The argument.
        what: &'static str,
        /// The cause.
        reason: String,
    },
    /// The operating system refused a call that concerns no file.
    #[error("{call} failed: {source}")]
    System {
        /// The call.
        call: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The arguments do not match the parameters that a kernel's code object states.
    #[error("kernel `{kernel}`: {}{reason}", Position(parameter))]
    Parameter {
        /// The kernel's name in the code.
        kernel: String,
        /// Index of the parameter, from 0; `None` if their number is wrong.
        parameter: Option<usize>,
        /// Reason for the mismatch.
        reason: String,
    },
    /// A library of the GPU's provider cannot be opened, or lacks a function.
    #[error("{reason}{}", Tried(tried))]
    Provider {
        /// The library or the function, and what is wrong with it.
        reason: String,
        /// Every file that was tried, and why it was not opened; empty if the error is not about finding a library.
        tried: String,
    },
    /// There is no such GPU.
    #[error("no GPU {ordinal}: {reason}")]
    NoDevice {
        /// The number that was asked for, from 0.
        ordinal: usize,
        /// The unexpected finding, and the library in which it was found.
        reason: String,
    },
    /// A call into one of the GPU's libraries failed.
    #[error("{device}: {call} failed: {status}{}", Advice(advice))]
    Device {
        /// The GPU.
        device: String,
        /// The library's function.
        call: &'static str,
        /// Name of the status that the call returned.
        status: String,
        /// Advice on the remedy; may be empty.
        advice: String,
    },
    /// A communicator of several GPUs has failed: a rank is missing or lost, or has called something else.
    #[error(
        "{device}: rank {rank} of {ranks}: {reason}; the communicator was aborted, and what its stream wrote since is undefined"
    )]
    Communicator {
        /// This rank's GPU.
        device: String,
        /// This rank.
        rank: usize,
        /// Number of ranks.
        ranks: usize,
        /// Reason that RCCL or the watchdog found.
        reason: String,
    },
    /// The processes of a run did not find each other, or one of them is lost.
    #[error("rank {rank} of {ranks}: rendezvous at {address}: {reason}")]
    Rendezvous {
        /// This process's rank.
        rank: usize,
        /// Number of processes.
        ranks: usize,
        /// Address of the rendezvous.
        address: String,
        /// Reason, and the rank that it concerns.
        reason: String,
    },
    /// The GPU's memory does not suffice, even with every cached block given back.
    #[error(
        "{device}: out of memory: {bytes} bytes were asked for, {held} are held by this process, {live} of them in use; take a smaller batch or a narrower dtype"
    )]
    OutOfMemory {
        /// The GPU.
        device: String,
        /// The size of the allocation.
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
        /// The GPU.
        device: String,
        /// Architecture of the GPU.
        arch: String,
        /// Architectures of the code object, or the fault in it.
        reason: String,
    },
    /// hipRTC rejected a program.
    #[error("{program}: {reason}")]
    Compile {
        /// The program's name.
        program: String,
        /// The first error of the log.
        reason: String,
        /// All that the compiler said.
        log: String,
    },
}

/// Writes the message, as [`Display`](fmt::Display) does. A `main` that returns a [`Result`] prints its error with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The parameter that an error concerns.
struct Position<'a>(&'a Option<usize>);

impl fmt::Display for Position<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |index| write!(f, "parameter {index}: "))
    }
}

/// The files that were tried, after the reason.
struct Tried<'a>(&'a str);

impl fmt::Display for Tried<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, "; tried {}", self.0)
    }
}

/// Advice that follows the reason.
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

    /// An [`Error::Argument`], for code that checks arguments on behalf of this layer.
    pub fn argument(what: &'static str, reason: impl fmt::Display) -> Self {
        Self::Argument {
            what,
            reason: reason.to_string(),
        }
    }
}
