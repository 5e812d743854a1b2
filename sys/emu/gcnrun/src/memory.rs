//! The address space that all devices of a process share. Addresses of the device are addresses of the host.
//!
//! Every allocation records whether it is live, and device memory which of its bytes were ever written: a *shadow* of four bits
//! for each dword. Fresh and freed memory is poison, which is NaN in f16, bf16, f32 and f64 and far out of bounds as an index.
//! Freed allocations are quarantined for a while, so that a use after free can be distinguished from other accesses out of
//! bounds.

mod allocation;
mod block;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError, RwLock};

pub use allocation::{Allocation, Kind, MemoryError};
use block::Fresh;
pub(crate) use block::{Block, POISON, WRITTEN};

use crate::fault::FaultKind;

/// Maximum amount of freed memory that is kept, in bytes and in allocations.
const QUARANTINE_BYTES: u64 = 256 << 20;
const QUARANTINE_ALLOCATIONS: usize = 4096;

/// The address space. A clone is the same space.
#[derive(Clone, Default)]
pub struct Memory(Arc<Inner>);

#[derive(Default)]
struct Inner {
    fresh: Fresh,
    table: RwLock<Table>,
    peers: RwLock<BTreeSet<(u32, u32)>>,
}

#[derive(Default)]
struct Table {
    blocks: BTreeMap<u64, Arc<Block>>,
    quarantine: VecDeque<Arc<Block>>,
    quarantined: u64,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.0.table.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Memory")
            .field("allocations", &table.blocks.len())
            .field("quarantined", &table.quarantined)
            .finish()
    }
}

impl Memory {
    /// An address space without allocations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an address space whose fresh memory is zeros and counts as written. It is for launches that only count what they
    /// execute, after others that did not run.
    #[must_use]
    pub fn zeroed() -> Self {
        Self(Arc::new(Inner {
            fresh: Fresh::Zeros,
            ..Inner::default()
        }))
    }

    /// An address space whose fresh memory is zeros and counts as written, so that nothing but what [`Memory::taint`] marks
    /// counts as unwritten.
    #[must_use]
    pub fn clean() -> Self {
        Self(Arc::new(Inner {
            fresh: Fresh::Clean,
            ..Inner::default()
        }))
    }

    /// Allocates `bytes` (not 0), aligned to `alignment` (a power of two; the minimum is 256). The memory is filled with poison
    /// and, if it is a device's, unwritten.
    pub fn allocate(&self, bytes: u64, kind: Kind, alignment: u64) -> Result<u64, MemoryError> {
        let block = Arc::new(Block::new(bytes, kind, alignment, self.0.fresh)?);
        let begin = block.begin;
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        table.blocks.insert(begin, block);
        Ok(begin)
    }

    /// Makes memory that the host allocated reachable from every device, until [`Memory::free`] is called with its
    /// address, which unregisters it and does not free it.
    ///
    /// # Safety
    ///
    /// `bytes` bytes at `address` stay readable and writable until then, and until no kernel that began before runs.
    pub unsafe fn register(&self, address: *mut u8, bytes: u64) -> Result<u64, MemoryError> {
        let start = NonNull::new(address).ok_or(MemoryError::NotAllocated { address: 0 })?;
        let begin = address as u64;
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = table.before(begin + bytes.saturating_sub(1))
            && other.begin + other.len > begin
        {
            return Err(MemoryError::Overlap {
                address: begin,
                bytes,
            });
        }
        table
            .blocks
            .insert(begin, Arc::new(Block::registered(start, bytes)));
        Ok(begin)
    }

    /// Frees the allocation that begins at `address`. It is poisoned and quarantined until much more was freed; memory that
    /// was only registered is no longer tracked.
    ///
    /// # Errors
    ///
    /// Nothing begins there, it was freed before, or the host has written beyond it; in the last case it was freed.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(block) = table.blocks.get(&address).cloned() else {
            return Err(MemoryError::NotAllocated { address });
        };
        if !block.retire() {
            return Err(MemoryError::DoubleFree { address });
        }
        if !block.is_owned() {
            table.blocks.remove(&address);
            return Ok(());
        }
        let intact = block.redzones_are_intact();
        let (bytes, kind) = (block.len, block.kind);
        block.poison();
        table.quarantined += bytes;
        table.quarantine.push_back(block);
        while table.quarantined > QUARANTINE_BYTES || table.quarantine.len() > QUARANTINE_ALLOCATIONS {
            let Some(oldest) = table.quarantine.pop_front() else {
                break;
            };
            table.quarantined -= oldest.len;
            table.blocks.remove(&oldest.begin);
        }
        if intact {
            Ok(())
        } else {
            Err(MemoryError::Overrun { address, bytes, kind })
        }
    }

    /// Frees an allocation without quarantine, for one whose address no program has.
    pub(crate) fn release(&self, address: u64) {
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = table.blocks.remove(&address) {
            block.retire();
        }
    }

    /// The allocation that holds `address`, live or quarantined.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<Allocation> {
        let table = self.0.table.read().unwrap_or_else(PoisonError::into_inner);
        let block = table.before(address)?;
        (address - block.begin < block.len).then(|| block.describe())
    }

    /// Allows or forbids `device` to access the memory of `owner`. By default it is forbidden.
    pub fn allow_peer(&self, device: u32, owner: u32, allowed: bool) {
        let mut peers = self.0.peers.write().unwrap_or_else(PoisonError::into_inner);
        if allowed {
            peers.insert((device, owner));
        } else {
            peers.remove(&(device, owner));
        }
    }

    /// Copies bytes from the address space, written or not.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), FaultKind> {
        let block = self.block(address, bytes.len() as u64)?;
        block.read(address - block.begin, bytes);
        Ok(())
    }

    /// Copies bytes into the address space; they then count as written.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), FaultKind> {
        let block = self.block(address, bytes.len() as u64)?;
        let offset = address - block.begin;
        block.write(offset, bytes);
        block.mark(offset, bytes.len() as u64, true);
        Ok(())
    }

    /// Repeats `pattern` from `address` on, `count` times; the bytes then count as written.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), FaultKind> {
        let length = (pattern.len() as u64).saturating_mul(count);
        let block = self.block(address, length)?;
        let offset = address - block.begin;
        // In pieces, so that a fill of gigabytes needs no second buffer of that size.
        let piece = pattern.repeat((count as usize).min(65536 / pattern.len().max(1) + 1));
        let mut done = 0;
        while done < length {
            let step = (piece.len() as u64).min(length - done);
            block.write(offset + done, &piece[..step as usize]);
            done += step;
        }
        block.mark(offset, length, true);
        Ok(())
    }

    /// Copies within the address space (the ranges may overlap). Copies of unwritten bytes count as unwritten.
    pub fn copy(&self, to: u64, from: u64, length: u64) -> Result<(), FaultKind> {
        let source = self.block(from, length)?;
        let destination = self.block(to, length)?;
        let (source_offset, offset) = (from - source.begin, to - destination.begin);
        let mut bytes = vec![0; length as usize];
        source.read(source_offset, &mut bytes);
        let written = source.written(source_offset, length);
        destination.write(offset, &bytes);
        match written {
            None => destination.mark(offset, length, true),
            Some(written) => destination.mark_each(offset, &written),
        }
        Ok(())
    }

    /// Marks bytes of device memory for [`Program::taint`](crate::Program::taint): they count as unwritten until something
    /// else is written there. For a space that was made by [`Memory::clean`], where nothing else does.
    ///
    /// # Errors
    ///
    /// They are not in a live allocation.
    pub fn taint(&self, address: u64, length: u64) -> Result<(), FaultKind> {
        let block = self.block(address, length)?;
        block.mark(address - block.begin, length, false);
        Ok(())
    }

    /// Returns the bytes of the range that are unwritten, or marked; `None` if none is.
    ///
    /// # Errors
    ///
    /// They are not in a live allocation.
    pub fn unwritten(&self, address: u64, length: u64) -> Result<Option<Vec<bool>>, FaultKind> {
        let block = self.block(address, length)?;
        let mut bytes = block.written(address - block.begin, length);
        bytes
            .iter_mut()
            .flatten()
            .for_each(|written| *written = !*written);
        Ok(bytes)
    }

    /// The address of the first unwritten byte of the range.
    pub fn first_unwritten(&self, address: u64, length: u64) -> Result<Option<u64>, FaultKind> {
        let block = self.block(address, length)?;
        Ok(block
            .first_unwritten(address - block.begin, length)
            .map(|offset| block.begin + offset))
    }

    /// The live allocation that holds the range.
    fn block(&self, address: u64, length: u64) -> Result<Arc<Block>, FaultKind> {
        let table = self.0.table.read().unwrap_or_else(PoisonError::into_inner);
        let Some(block) = table.before(address) else {
            return Err(FaultKind::OutOfBounds {
                address,
                bytes: length,
                nearest: None,
            });
        };
        let offset = address - block.begin;
        if offset > block.len || length > block.len - offset || (offset == block.len && length > 0) {
            return Err(FaultKind::OutOfBounds {
                address,
                bytes: length,
                nearest: Some((block.begin, block.len)),
            });
        }
        if !block.is_live() {
            return Err(FaultKind::UseAfterFree {
                address,
                allocation: (block.begin, block.len),
            });
        }
        Ok(Arc::clone(block))
    }

    /// The live allocation that holds the range, if `device` may access it.
    pub(crate) fn accessible(&self, device: u32, address: u64, length: u64) -> Result<Arc<Block>, FaultKind> {
        let block = self.block(address, length)?;
        if let Kind::Device(owner) = block.kind
            && owner != device
        {
            let peers = self.0.peers.read().unwrap_or_else(PoisonError::into_inner);
            if !peers.contains(&(device, owner)) {
                return Err(FaultKind::NoPeerAccess { address, owner });
            }
        }
        Ok(block)
    }
}

impl Table {
    /// The allocation that begins last at or before the address.
    fn before(&self, address: u64) -> Option<&Arc<Block>> {
        self.blocks.range(..=address).next_back().map(|(_, block)| block)
    }
}

#[cfg(test)]
mod tests;
