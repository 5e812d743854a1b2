//! The address space that all devices of a process share. Addresses of the device are addresses of the host.
//!
//! Every allocation knows whether it is live, and device memory knows which of its bytes were ever written: a *shadow* of
//! four bits for each dword. Fresh and freed memory is poison, which is NaN in f16, bf16, f32 and f64 and far out of bounds
//! as an index. Freed allocations stay for a while, so that their use is told from other stray accesses.
//!
//! Kernels run on several threads and may race as on a device; therefore every access is made of relaxed atomics.

use std::alloc::{self, Layout};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use crate::fault::{FaultKind, MemoryError};

/// Fresh and freed memory.
pub(crate) const POISON: u32 = 0x7fff_7fff;
/// Bytes before and after each allocation that belong to none.
const REDZONE: usize = 256;
const REDZONE_BYTE: u8 = 0xab;
/// What freed memory is kept, at most, in bytes and in allocations.
const QUARANTINE_BYTES: u64 = 256 << 20;
const QUARANTINE_ALLOCATIONS: usize = 4096;
/// Every byte of a dword was written.
pub(crate) const WRITTEN: u8 = 0xf;

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

/// The address space. A clone is the same space.
#[derive(Clone, Default)]
pub struct Memory(Arc<Inner>);

#[derive(Default)]
struct Inner {
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

    /// Allocates `bytes` (not 0), aligned to `alignment` (a power of two; at least 256 is given), filled with poison and,
    /// if it is a device's, unwritten.
    pub fn allocate(&self, bytes: u64, kind: Kind, alignment: u64) -> Result<u64, MemoryError> {
        let block = Arc::new(Block::new(bytes, kind, alignment)?);
        let begin = block.begin;
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        table.blocks.insert(begin, block);
        Ok(begin)
    }

    /// Makes memory that the host allocated reachable from every device, until [`Memory::free`] is told its address. That
    /// does not free it.
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
        table.blocks.insert(
            begin,
            Arc::new(Block {
                begin,
                len: bytes,
                kind: Kind::Pinned,
                live: AtomicBool::new(true),
                start,
                shadow: None,
                layout: None,
            }),
        );
        Ok(begin)
    }

    /// Frees the allocation that begins at `address`. It stays known, poisoned, until much more was freed; memory that was
    /// only registered is the host's own again, which may give it to anyone.
    ///
    /// # Errors
    ///
    /// Nothing begins there, it was freed before, or the host has written beyond it; in the last case it was freed.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        let Some(block) = table.blocks.get(&address).cloned() else {
            return Err(MemoryError::NotAllocated { address });
        };
        if !block.live.swap(false, Relaxed) {
            return Err(MemoryError::DoubleFree { address });
        }
        if block.layout.is_none() {
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

    /// Frees an allocation without quarantine: for what no pointer of the program's can lead to.
    pub(crate) fn release(&self, address: u64) {
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = table.blocks.remove(&address) {
            block.live.store(false, Relaxed);
        }
    }

    /// The allocation that holds `address`, live or lately freed.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<Allocation> {
        let table = self.0.table.read().unwrap_or_else(PoisonError::into_inner);
        let block = table.before(address)?;
        (address - block.begin < block.len).then(|| block.describe())
    }

    /// Allows or forbids `device` to reach the memory of `owner`. At first none is.
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

    /// Copies bytes into the address space; they are written thereafter.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), FaultKind> {
        let block = self.block(address, bytes.len() as u64)?;
        let offset = address - block.begin;
        block.write(offset, bytes);
        block.mark(offset, bytes.len() as u64, true);
        Ok(())
    }

    /// Repeats `pattern` from `address` on, `count` times; the bytes are written thereafter.
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

    /// Copies within the address space (the ranges may overlap). Bytes that were never written are copied as such.
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

    /// The address of the first byte of the range that nothing has written.
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

    /// The live allocation that holds the range, if `device` may reach it.
    pub(crate) fn reach(&self, device: u32, address: u64, length: u64) -> Result<Arc<Block>, FaultKind> {
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

/// One allocation. Its memory lives as long as anyone holds it.
pub(crate) struct Block {
    begin: u64,
    len: u64,
    kind: Kind,
    live: AtomicBool,
    /// The first byte.
    start: NonNull<u8>,
    /// Four bits for each dword; `None` where every byte counts as written.
    shadow: Option<Box<[AtomicU8]>>,
    /// What was allocated, from as many bytes before `start` as it is aligned to; `None` for memory that is only registered.
    layout: Option<Layout>,
}

// SAFETY: the memory at `start` is accessed through relaxed atomics alone, and freed when no reference to the block is left.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: u64, kind: Kind, alignment: u64) -> Result<Self, MemoryError> {
        let refused = || MemoryError::OutOfMemory { bytes };
        let len = usize::try_from(bytes).map_err(|_| refused())?;
        let alignment = usize::try_from(alignment).map_err(|_| refused())?.max(REDZONE);
        let size = len
            .checked_next_multiple_of(4)
            .and_then(|size| size.checked_add(alignment + REDZONE))
            .filter(|_| len > 0)
            .ok_or_else(refused)?;
        let layout = Layout::from_size_align(size, alignment).map_err(|_| refused())?;
        // SAFETY: the layout's size is not 0.
        let raw = NonNull::new(unsafe { alloc::alloc(layout) }).ok_or_else(refused)?;
        // SAFETY: `size` exceeds the alignment, and the redzones lie in the allocation, before and after the bytes.
        let start = unsafe {
            let start = raw.add(alignment);
            start.sub(REDZONE).write_bytes(REDZONE_BYTE, REDZONE);
            start
                .add(size - alignment - REDZONE)
                .write_bytes(REDZONE_BYTE, REDZONE);
            start
        };
        let shadow = matches!(kind, Kind::Device(_)).then(|| {
            let dwords = vec![0_u8; len.div_ceil(4)].into_boxed_slice();
            // SAFETY: an atomic byte has the layout of a byte.
            unsafe { Box::from_raw(Box::into_raw(dwords) as *mut [AtomicU8]) }
        });
        let block = Self {
            begin: start.as_ptr() as u64,
            len: bytes,
            kind,
            live: AtomicBool::new(true),
            start,
            shadow,
            layout: Some(layout),
        };
        block.poison();
        Ok(block)
    }

    fn describe(&self) -> Allocation {
        Allocation {
            begin: self.begin,
            len: self.len,
            kind: self.kind,
            live: self.is_live(),
        }
    }

    #[inline]
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Relaxed)
    }

    fn poison(&self) {
        for dword in 0..self.len.div_ceil(4) {
            self.dword(4 * dword).store(POISON, Relaxed);
        }
    }

    /// Of an allocation; registered memory has none.
    fn redzones_are_intact(&self) -> bool {
        let before = self.start.as_ptr().wrapping_sub(REDZONE);
        let after = self
            .start
            .as_ptr()
            .wrapping_add((self.len as usize).next_multiple_of(4));
        (0..REDZONE).all(|i| {
            // SAFETY: `new` allocated both redzones along with the block.
            unsafe { *before.add(i) == REDZONE_BYTE && *after.add(i) == REDZONE_BYTE }
        })
    }

    /// The dword at an offset that is a multiple of four, in the block (its last dword may be partly padding).
    #[inline]
    fn dword(&self, offset: u64) -> &AtomicU32 {
        debug_assert!((self.begin + offset).is_multiple_of(4) && offset < self.len);
        // SAFETY: callers stay in the block; `start` is aligned to a dword where the offset is asked to be, and an
        // allocation's padding reaches to the end of the last dword.
        unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(offset as usize).cast()) }
    }

    #[inline]
    fn byte(&self, offset: u64) -> &AtomicU8 {
        debug_assert!(offset < self.len);
        // SAFETY: callers stay in the block.
        unsafe { AtomicU8::from_ptr(self.start.as_ptr().add(offset as usize)) }
    }

    #[inline]
    fn half(&self, offset: u64) -> &AtomicU16 {
        // SAFETY: callers stay in the block and ask for even addresses.
        unsafe { AtomicU16::from_ptr(self.start.as_ptr().add(offset as usize).cast()) }
    }

    /// Loads `N` bytes at an offset, in the block.
    #[inline]
    pub(crate) fn load<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        let address = self.begin + offset;
        if N.is_multiple_of(4) && address.is_multiple_of(4) {
            for (i, part) in bytes.chunks_exact_mut(4).enumerate() {
                let value = self.dword(offset + 4 * i as u64).load(Relaxed);
                part.copy_from_slice(&value.to_le_bytes());
            }
        } else if N == 2 && address.is_multiple_of(2) {
            bytes.copy_from_slice(&self.half(offset).load(Relaxed).to_le_bytes());
        } else {
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = self.byte(offset + i as u64).load(Relaxed);
            }
        }
        bytes
    }

    /// Stores `N` bytes at an offset, in the block; leaves the shadow as it is.
    #[inline]
    pub(crate) fn store<const N: usize>(&self, offset: u64, bytes: [u8; N]) {
        let address = self.begin + offset;
        if N.is_multiple_of(4) && address.is_multiple_of(4) {
            for (i, part) in bytes.chunks_exact(4).enumerate() {
                let value = u32::from_le_bytes([part[0], part[1], part[2], part[3]]);
                self.dword(offset + 4 * i as u64).store(value, Relaxed);
            }
        } else if N == 2 && address.is_multiple_of(2) {
            self.half(offset)
                .store(u16::from_le_bytes([bytes[0], bytes[1]]), Relaxed);
        } else {
            for (i, &byte) in bytes.iter().enumerate() {
                self.byte(offset + i as u64).store(byte, Relaxed);
            }
        }
    }

    /// Replaces the dword at an aligned offset by a function of it, atomically; its old value.
    pub(crate) fn update32(&self, offset: u64, mut update: impl FnMut(u32) -> u32) -> u32 {
        let dword = self.dword(offset);
        let mut old = dword.load(Relaxed);
        loop {
            match dword.compare_exchange_weak(old, update(old), Relaxed, Relaxed) {
                Ok(_) => return old,
                Err(now) => old = now,
            }
        }
    }

    /// As [`Block::update32`], of 64 bits at an offset that is a multiple of eight.
    pub(crate) fn update64(&self, offset: u64, mut update: impl FnMut(u64) -> u64) -> u64 {
        debug_assert!((self.begin + offset).is_multiple_of(8) && offset + 8 <= self.len);
        // SAFETY: callers stay in the block and ask for addresses that are multiples of eight.
        let word = unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset as usize).cast()) };
        let mut old = word.load(Relaxed);
        loop {
            match word.compare_exchange_weak(old, update(old), Relaxed, Relaxed) {
                Ok(_) => return old,
                Err(now) => old = now,
            }
        }
    }

    /// Which of `N` (at most 16) bytes at an offset were written, a bit each.
    #[inline]
    pub(crate) fn known<const N: usize>(&self, offset: u64) -> u16 {
        let all = ((1_u32 << N) - 1) as u16;
        let Some(shadow) = &self.shadow else {
            return all;
        };
        let first = (offset / 4) as usize;
        if N.is_multiple_of(4) && offset.is_multiple_of(4) {
            let mut mask = 0;
            for (i, dword) in shadow[first..first + N / 4].iter().enumerate() {
                mask |= u16::from(dword.load(Relaxed)) << (4 * i);
            }
            return mask;
        }
        let mut mask = 0;
        for i in 0..N as u64 {
            let at = offset + i;
            let bit = shadow[(at / 4) as usize].load(Relaxed) >> (at % 4) & 1;
            mask |= u16::from(bit) << i;
        }
        mask
    }

    /// Notes which of `N` bytes at an offset are written from now on.
    #[inline]
    pub(crate) fn note<const N: usize>(&self, offset: u64, known: u16) {
        let Some(shadow) = &self.shadow else {
            return;
        };
        if N.is_multiple_of(4) && offset.is_multiple_of(4) {
            let first = (offset / 4) as usize;
            for (i, dword) in shadow[first..first + N / 4].iter().enumerate() {
                dword.store((known >> (4 * i)) as u8 & WRITTEN, Relaxed);
            }
            return;
        }
        for i in 0..N as u64 {
            self.note_byte(shadow, offset + i, known >> i & 1 == 1);
        }
    }

    #[inline]
    fn note_byte(&self, shadow: &[AtomicU8], offset: u64, known: bool) {
        let dword = &shadow[(offset / 4) as usize];
        let bit = 1 << (offset % 4);
        // A neighbour may belong to another wave, hence the atomic; it is rarely needed.
        if (dword.load(Relaxed) & bit != 0) != known {
            if known {
                dword.fetch_or(bit, Relaxed);
            } else {
                dword.fetch_and(!bit, Relaxed);
            }
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() && !(self.begin + at).is_multiple_of(4) {
            rest[0] = self.byte(at).load(Relaxed);
            rest = &mut rest[1..];
            at += 1;
        }
        let mut dwords = rest.chunks_exact_mut(4);
        for part in &mut dwords {
            part.copy_from_slice(&self.dword(at).load(Relaxed).to_le_bytes());
            at += 4;
        }
        for byte in dwords.into_remainder() {
            *byte = self.byte(at).load(Relaxed);
            at += 1;
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() && !(self.begin + at).is_multiple_of(4) {
            self.byte(at).store(rest[0], Relaxed);
            rest = &rest[1..];
            at += 1;
        }
        let dwords = rest.chunks_exact(4);
        let remainder = dwords.remainder();
        for part in dwords {
            let value = u32::from_le_bytes([part[0], part[1], part[2], part[3]]);
            self.dword(at).store(value, Relaxed);
            at += 4;
        }
        for &byte in remainder {
            self.byte(at).store(byte, Relaxed);
            at += 1;
        }
    }

    pub(crate) fn mark(&self, offset: u64, length: u64, known: bool) {
        let Some(shadow) = &self.shadow else {
            return;
        };
        let end = offset + length;
        let mut at = offset;
        while at < end {
            if at.is_multiple_of(4) && end - at >= 4 {
                shadow[(at / 4) as usize].store(if known { WRITTEN } else { 0 }, Relaxed);
                at += 4;
            } else {
                self.note_byte(shadow, at, known);
                at += 1;
            }
        }
    }

    fn mark_each(&self, offset: u64, written: &[bool]) {
        if let Some(shadow) = &self.shadow {
            for (i, &known) in written.iter().enumerate() {
                self.note_byte(shadow, offset + i as u64, known);
            }
        }
    }

    /// Which bytes of the range were written; `None` if all were.
    fn written(&self, offset: u64, length: u64) -> Option<Vec<bool>> {
        self.first_unwritten(offset, length)?;
        let shadow = self.shadow.as_ref()?;
        Some(
            (offset..offset + length)
                .map(|at| shadow[(at / 4) as usize].load(Relaxed) >> (at % 4) & 1 == 1)
                .collect(),
        )
    }

    fn first_unwritten(&self, offset: u64, length: u64) -> Option<u64> {
        let shadow = self.shadow.as_ref()?;
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let dword = shadow[(at / 4) as usize].load(Relaxed);
            if dword == WRITTEN {
                at = (at / 4 + 1) * 4;
            } else if dword >> (at % 4) & 1 == 0 {
                return Some(at);
            } else {
                at += 1;
            }
        }
        None
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: `new` allocated with this layout, `layout.align()` bytes before `start`.
            unsafe { alloc::dealloc(self.start.as_ptr().sub(layout.align()), layout) };
        }
    }
}

#[cfg(test)]
mod tests;
