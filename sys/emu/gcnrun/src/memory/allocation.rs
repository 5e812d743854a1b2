//! Descriptions of allocations, and errors of allocating and freeing.

use std::fmt;

/// The kind of memory of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The memory of a device: accessible from it, and from others after [`Memory::allow_peer`](crate::Memory::allow_peer). Written bytes are tracked.
    Device(u32),
    /// Page-locked host memory, accessible from every device. The host may write it untracked, so it counts as written.
    Pinned,
    /// Managed memory, accessible from host and devices. Counts as written.
    Managed,
}

/// An allocation as [`Memory::find`](crate::Memory::find) describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The first byte's address.
    pub begin: u64,
    /// The length in bytes.
    pub len: u64,
    /// The kind of memory.
    pub kind: Kind,
    /// True until it is freed.
    pub live: bool,
}

/// Reason for which [`Memory`](crate::Memory) refuses to allocate or free.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryError {
    /// The host is out of memory, or the size or alignment is invalid.
    OutOfMemory {
        /// The requested size.
        bytes: u64,
    },
    /// No allocation begins there.
    NotAllocated {
        /// The address.
        address: u64,
    },
    /// The allocation was freed before.
    DoubleFree {
        /// Address of the first byte.
        address: u64,
    },
    /// The range overlaps an allocation.
    Overlap {
        /// The first byte.
        address: u64,
        /// The bytes.
        bytes: u64,
    },
    /// Host code wrote beyond the allocation (kernels' accesses are checked).
    Overrun {
        /// The allocation's first byte.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// The kind of memory.
        kind: Kind,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { bytes } => write!(f, "out of memory: {bytes} bytes"),
            Self::NotAllocated { address } => write!(f, "no allocation begins at {address:#x}"),
            Self::DoubleFree { address } => {
                write!(f, "the allocation at {address:#x} was freed before")
            }
            Self::Overlap { address, bytes } => {
                write!(f, "the {bytes} bytes at {address:#x} overlap an allocation")
            }
            Self::Overrun { address, bytes, kind } => write!(
                f,
                "host code wrote beyond the {bytes} bytes at {address:#x} ({kind:?})"
            ),
        }
    }
}

impl std::error::Error for MemoryError {}
