//! What is told of an allocation, and why one is refused.

use std::fmt;

/// Whose memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The memory of a device: reachable from it, and from others after [`Memory::allow_peer`]. Its written bytes are tracked.
    Device(u32),
    /// Page-locked memory of the host, reachable from every device. The host may write it unseen, so it counts as written.
    Pinned,
    /// Managed memory, reachable from everywhere. Counts as written.
    Managed,
}

/// An allocation as [`Memory::find`] describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The first byte's address.
    pub begin: u64,
    /// The length in bytes.
    pub len: u64,
    /// Whose it is.
    pub kind: Kind,
    /// Whether it was not freed.
    pub live: bool,
}

/// What [`Memory`](crate::Memory) refuses to whoever allocates and frees.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// The host has no memory for it, or the size or alignment cannot be.
    OutOfMemory {
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// No allocation begins there.
    NotAllocated {
        /// The address.
        address: u64,
    },
    /// The allocation was freed before.
    DoubleFree {
        /// Its first byte.
        address: u64,
    },
    /// A part of it is an allocation already.
    Overlap {
        /// The first byte.
        address: u64,
        /// The bytes.
        bytes: u64,
    },
    /// Something wrote beyond the allocation, which only code of the host can do: kernels are checked.
    Overrun {
        /// The allocation's first byte.
        address: u64,
        /// Its length in bytes.
        bytes: u64,
        /// Whose it was.
        kind: Kind,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { bytes } => write!(f, "no memory for {bytes} bytes"),
            Self::NotAllocated { address } => write!(f, "no allocation begins at {address:#x}"),
            Self::DoubleFree { address } => {
                write!(f, "the allocation at {address:#x} was freed before")
            }
            Self::Overlap { address, bytes } => write!(
                f,
                "of the {bytes} bytes at {address:#x} some are in an allocation already"
            ),
            Self::Overrun { address, bytes, kind } => write!(
                f,
                "code of the host wrote beyond the {bytes} bytes at {address:#x} ({kind:?})"
            ),
        }
    }
}

impl std::error::Error for MemoryError {}
