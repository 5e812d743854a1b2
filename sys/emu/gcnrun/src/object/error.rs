//! Why a code object is refused.

use std::fmt;

use crate::memory::MemoryError;

/// Why a code object cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// It is no code object, or a damaged one.
    NotACodeObject {
        /// What it is or lacks.
        reason: String,
    },
    /// The emulator does not know its architecture.
    UnknownArch {
        /// The architecture.
        arch: String,
    },
    /// It could not be disassembled.
    Disassembly {
        /// Why, and what to install.
        reason: String,
    },
    /// There is no memory for it.
    Memory(MemoryError),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACodeObject { reason } => write!(f, "no AMD code object: {reason}"),
            Self::UnknownArch { arch } => write!(f, "{arch} is an architecture that gcnrun lacks"),
            Self::Disassembly { reason } => write!(f, "cannot disassemble: {reason}"),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<MemoryError> for LoadError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

pub(super) fn damaged(reason: impl fmt::Display) -> LoadError {
    LoadError::NotACodeObject {
        reason: reason.to_string(),
    }
}
