//! One allocation: its bytes, and which of them were ever written.
//!
//! Kernels run on several threads and may race as on a device; therefore every access is made of relaxed atomics.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::allocation::{Allocation, Kind, MemoryError};

/// Contents of fresh memory.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Fresh {
    /// Poison, unwritten.
    #[default]
    Poison,
    /// Zeros that count as written; nothing is tracked.
    Zeros,
    /// Zeros that count as written, until they are marked.
    Clean,
}

/// Fresh and freed memory.
pub(crate) const POISON: u32 = 0x7fff_7fff;
/// Bytes before and after each allocation that belong to none.
const REDZONE: usize = 256;
const REDZONE_BYTE: u8 = 0xab;
/// Every byte of a dword was written.
pub(crate) const WRITTEN: u8 = 0xf;

/// One allocation. Its memory lives as long as anyone holds it.
pub(crate) struct Block {
    pub(super) begin: u64,
    pub(super) len: u64,
    pub(super) kind: Kind,
    live: AtomicBool,
    /// The first byte.
    start: NonNull<u8>,
    /// Four bits for each dword; `None` where every byte counts as written.
    shadow: Option<Box<[AtomicU8]>>,
    /// Layout of the allocation, which begins as many bytes before `start` as its alignment; `None` for memory that is only
    /// registered.
    layout: Option<Layout>,
}

// SAFETY: the memory at `start` is accessed through relaxed atomics alone, and freed when no reference to the block is left.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    pub(super) fn new(bytes: u64, kind: Kind, alignment: u64, fresh: Fresh) -> Result<Self, MemoryError> {
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
        let raw = NonNull::new(unsafe {
            if fresh != Fresh::Poison {
                alloc::alloc_zeroed(layout)
            } else {
                alloc::alloc(layout)
            }
        })
        .ok_or_else(refused)?;
        // SAFETY: `size` exceeds the alignment, and the redzones are in the allocation, before and after the bytes.
        let start = unsafe {
            let start = raw.add(alignment);
            start.sub(REDZONE).write_bytes(REDZONE_BYTE, REDZONE);
            start
                .add(size - alignment - REDZONE)
                .write_bytes(REDZONE_BYTE, REDZONE);
            start
        };
        let shadow = (fresh != Fresh::Zeros && matches!(kind, Kind::Device(_))).then(|| {
            let written = if fresh == Fresh::Clean { WRITTEN } else { 0 };
            let dwords = vec![written; len.div_ceil(4)].into_boxed_slice();
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
        if fresh == Fresh::Poison {
            block.poison();
        }
        Ok(block)
    }

    /// Registered memory of the host, which is not freed with the block.
    pub(super) fn registered(start: NonNull<u8>, bytes: u64) -> Self {
        Self {
            begin: start.as_ptr() as u64,
            len: bytes,
            kind: Kind::Pinned,
            live: AtomicBool::new(true),
            start,
            shadow: None,
            layout: None,
        }
    }

    /// True if it was allocated here, not only registered.
    pub(super) fn is_owned(&self) -> bool {
        self.layout.is_some()
    }

    /// Marks it as freed; whether it was live.
    pub(super) fn retire(&self) -> bool {
        self.live.swap(false, Relaxed)
    }

    pub(super) fn describe(&self) -> Allocation {
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

    pub(super) fn poison(&self) {
        for dword in 0..self.len.div_ceil(4) {
            self.dword(4 * dword).store(POISON, Relaxed);
        }
    }

    /// Requires an allocation, because registered memory has no redzones.
    pub(super) fn redzones_are_intact(&self) -> bool {
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

    /// Updates 64 bits at an offset that is a multiple of eight. See [`Block::update32`].
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

    /// Returns one bit for each of `N` (at most 16) bytes at an offset, set if the byte was written.
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

    /// Records which of `N` bytes at an offset are now written.
    #[inline]
    pub(crate) fn set_known<const N: usize>(&self, offset: u64, known: u16) {
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
            self.set_known_byte(shadow, offset + i, known >> i & 1 == 1);
        }
    }

    #[inline]
    fn set_known_byte(&self, shadow: &[AtomicU8], offset: u64, known: bool) {
        let dword = &shadow[(offset / 4) as usize];
        let bit = 1 << (offset % 4);
        // Another wave may write a neighbouring byte, so the update is atomic; it is rarely needed.
        if (dword.load(Relaxed) & bit != 0) != known {
            if known {
                dword.fetch_or(bit, Relaxed);
            } else {
                dword.fetch_and(!bit, Relaxed);
            }
        }
    }

    pub(super) fn read(&self, offset: u64, bytes: &mut [u8]) {
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

    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
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
                self.set_known_byte(shadow, at, known);
                at += 1;
            }
        }
    }

    pub(super) fn mark_each(&self, offset: u64, written: &[bool]) {
        if let Some(shadow) = &self.shadow {
            for (i, &known) in written.iter().enumerate() {
                self.set_known_byte(shadow, offset + i as u64, known);
            }
        }
    }

    /// Returns the bytes of the range that were written; `None` if all were.
    pub(super) fn written(&self, offset: u64, length: u64) -> Option<Vec<bool>> {
        self.first_unwritten(offset, length)?;
        let shadow = self.shadow.as_ref()?;
        Some(
            (offset..offset + length)
                .map(|at| shadow[(at / 4) as usize].load(Relaxed) >> (at % 4) & 1 == 1)
                .collect(),
        )
    }

    pub(super) fn first_unwritten(&self, offset: u64, length: u64) -> Option<u64> {
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
