//! Errors of loading a code object.

use std::fmt;

use crate::memory::MemoryError;

/// Reason for which a code object cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes are not a code object, or it is damaged.
    NotACodeObject {
        /// The actual contents, or the missing part.
        reason: String,
    },
    /// The emulator does not support its architecture.
    UnknownArch {
        /// The architecture.
        arch: String,
    },
    /// The code object could not be disassembled.
    Disassembly {
        /// Why, and what to install.
        reason: String,
    },
    /// Memory for it could not be allocated.
    Memory(MemoryError),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACodeObject { reason } => write!(f, "not an AMD code object: {reason}"),
            Self::UnknownArch { arch } => write!(f, "gcnrun does not support the architecture {arch}"),
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
