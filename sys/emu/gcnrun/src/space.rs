//! The memory that a block's instructions access, with the checks: global memory, the block's LDS, its waves' scratch memory.
//!
//! One `Space` serves one thread of the emulator, block after block. [`run`](crate::run) says which wave runs
//! ([`Space::enter`]) and when a barrier was passed ([`Space::pass_barrier`]); [`isa`](crate::isa) loads and stores.
//! A *known* mask has a bit for each byte that was ever written.

mod address;
mod lds;
mod local;

use std::sync::Arc;

pub(crate) use address::{PRIVATE_APERTURE, Place, SCRATCH_DESCRIPTOR, SHARED_APERTURE, aperture};
use address::{check_alignment, must_be_multiple, unwritten_atomic};
use lds::{Accessor, Lds};
use local::Local;

use crate::fault::FaultKind;
use crate::launch::Checks;
use crate::memory::{Block, Memory};
use crate::observer::Observer;

pub(crate) struct Space<'a> {
    memory: &'a Memory,
    device: u32,
    checks: Checks,
    /// The address at which the code object is loaded.
    image: u64,
    recent: [Recent; RECENT],
    /// Index in `recent` of the last find: the lanes of an instruction mostly access one allocation.
    last: usize,
    /// Index in `recent` to replace next.
    next: usize,
    wave: u32,
    lds: Lds,
    scratch: Local,
    scratch_size: u32,
    lanes: u32,
    /// Observer of a launch that is watched.
    pub(crate) observer: Option<Observer>,
}

/// Number of allocations that a thread remembers: most kernels access fewer.
const RECENT: usize = 8;

/// A recently accessed allocation, with its bounds.
#[derive(Default)]
struct Recent {
    begin: u64,
    /// 0 if there is no block.
    len: u64,
    block: Option<Arc<Block>>,
}

impl Recent {
    #[inline]
    fn holds(&self, address: u64, bytes: u64) -> bool {
        let offset = address.wrapping_sub(self.begin);
        offset < self.len
            && bytes <= self.len - offset
            && self.block.as_ref().is_some_and(|block| block.is_live())
    }
}

impl<'a> Space<'a> {
    /// Makes the space of blocks with `lds` bytes of LDS and `waves` waves of `lanes` lanes with `scratch` bytes each.
    pub(crate) fn new(
        memory: &'a Memory,
        device: u32,
        checks: Checks,
        image: u64,
        lds: u32,
        (waves, lanes, scratch): (u32, u32, u32),
    ) -> Self {
        let scratch_size = scratch.next_multiple_of(4);
        Self {
            memory,
            device,
            checks,
            image,
            recent: Default::default(),
            last: 0,
            next: 0,
            wave: 0,
            lds: Lds::new(lds as usize),
            scratch: Local::new(waves as usize * lanes as usize * scratch_size as usize),
            scratch_size,
            lanes,
            observer: None,
        }
    }

    /// Makes LDS and scratch memory count as written from the start.
    pub(crate) fn know_all(&mut self) {
        self.lds.know_all();
        self.scratch.know_all();
    }

    /// Resets LDS and scratch memory for a new block.
    pub(crate) fn begin_block(&mut self) {
        self.lds.poison();
        self.scratch.poison();
        self.pass_barrier();
    }

    /// Sets the running wave.
    pub(crate) fn enter(&mut self, wave: u32) {
        self.wave = wave;
        if let Some(observer) = &mut self.observer {
            observer.enter(wave);
        }
    }

    /// All waves of the block have met at a barrier.
    pub(crate) fn pass_barrier(&mut self) {
        self.lds.pass_barrier();
    }

    /// The options of the launch.
    #[inline]
    pub(crate) fn checks(&self) -> &Checks {
        &self.checks
    }

    /// The address at which the code object is loaded.
    #[inline]
    pub(crate) fn image(&self) -> u64 {
        self.image
    }

    /// The allocation that holds `bytes` bytes at `address`, and where in it they are.
    #[inline]
    fn locate(&mut self, address: u64, bytes: u64) -> Result<(&Block, u64), FaultKind> {
        if !self.recent[self.last].holds(address, bytes) {
            self.last = self.find(address, bytes)?;
        }
        let Recent { begin, block, .. } = &self.recent[self.last];
        match block {
            Some(block) => Ok((block, address - begin)),
            None => Err(FaultKind::OutOfBounds {
                address,
                bytes,
                nearest: None,
            }),
        }
    }

    /// Returns the index among the recent allocations; a new one replaces the oldest.
    #[inline(never)]
    fn find(&mut self, address: u64, bytes: u64) -> Result<usize, FaultKind> {
        if let Some(slot) = self.recent.iter().position(|recent| recent.holds(address, bytes)) {
            return Ok(slot);
        }
        let block = self.memory.accessible(self.device, address, bytes)?;
        let slot = self.next;
        self.recent[slot] = Recent {
            begin: block.begin(),
            len: block.len(),
            block: Some(block),
        };
        self.next = (slot + 1) % RECENT;
        Ok(slot)
    }

    /// `N` bytes (1, 2, 4, 8, 12 or 16), and which of them were written.
    #[inline]
    pub(crate) fn global_load<const N: usize>(&mut self, address: u64) -> Result<([u8; N], u16), FaultKind> {
        check_alignment(&self.checks, address, N)?;
        let (block, offset) = self.locate(address, N as u64)?;
        Ok((block.load::<N>(offset), block.known::<N>(offset)))
    }

    #[inline]
    pub(crate) fn global_store<const N: usize>(
        &mut self,
        address: u64,
        bytes: [u8; N],
        known: u16,
    ) -> Result<(), FaultKind> {
        check_alignment(&self.checks, address, N)?;
        let (block, offset) = self.locate(address, N as u64)?;
        block.store::<N>(offset, bytes);
        block.set_known::<N>(offset, known);
        Ok(())
    }

    /// Replaces a dword by a function of it, atomically; its old value.
    pub(crate) fn global_update32(
        &mut self,
        address: u64,
        update: impl FnMut(u32) -> u32,
    ) -> Result<u32, FaultKind> {
        must_be_multiple(address, 4)?;
        let uninitialised = self.checks.uninitialised;
        let (block, offset) = self.locate(address, 4)?;
        if uninitialised && block.known::<4>(offset) != 0xf {
            return Err(unwritten_atomic(address));
        }
        Ok(block.update32(offset, update))
    }

    /// Updates 64 bits of global memory. See [`Space::global_update32`].
    pub(crate) fn global_update64(
        &mut self,
        address: u64,
        update: impl FnMut(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        must_be_multiple(address, 8)?;
        let uninitialised = self.checks.uninitialised;
        let (block, offset) = self.locate(address, 8)?;
        if uninitialised && block.known::<8>(offset) != 0xff {
            return Err(unwritten_atomic(address));
        }
        Ok(block.update64(offset, update))
    }

    /// Dwords as scalar loads take them; bit i of the result: was dword i written? The hardware drops the two lowest bits of
    /// the address, so that one which is not aligned loads something else.
    pub(crate) fn constant_load(&mut self, address: u64, dwords: &mut [u32]) -> Result<u32, FaultKind> {
        must_be_multiple(address, 4)?;
        let (block, offset) = self.locate(address, 4 * dwords.len() as u64)?;
        let mut known = 0;
        for (i, dword) in dwords.iter_mut().enumerate() {
            let at = offset + 4 * i as u64;
            *dword = u32::from_le_bytes(block.load::<4>(at));
            known |= u32::from(block.known::<4>(at) == 0xf) << i;
        }
        Ok(known)
    }

    /// Returns bytes as scalar loads of less than a dword take them, and true if all were written. The hardware drops the lowest bit of the
    /// address of two bytes.
    pub(crate) fn narrow_constant_load<const N: usize>(
        &mut self,
        address: u64,
    ) -> Result<([u8; N], bool), FaultKind> {
        must_be_multiple(address, N as u32)?;
        let (block, offset) = self.locate(address, N as u64)?;
        Ok((block.load::<N>(offset), block.known::<N>(offset) == (1 << N) - 1))
    }

    #[inline]
    pub(crate) fn lds_load<const N: usize>(&mut self, offset: u32) -> Result<([u8; N], u16), FaultKind> {
        let by = Accessor {
            wave: self.wave,
            checks: &self.checks,
        };
        self.lds.load(by, offset)
    }

    #[inline]
    pub(crate) fn lds_store<const N: usize>(
        &mut self,
        offset: u32,
        bytes: [u8; N],
        known: u16,
    ) -> Result<(), FaultKind> {
        let by = Accessor {
            wave: self.wave,
            checks: &self.checks,
        };
        self.lds.store(by, offset, bytes, known)
    }

    pub(crate) fn lds_update32(
        &mut self,
        offset: u32,
        update: impl FnMut(u32) -> u32,
    ) -> Result<u32, FaultKind> {
        let by = Accessor {
            wave: self.wave,
            checks: &self.checks,
        };
        self.lds.update32(by, offset, update)
    }

    pub(crate) fn lds_update64(
        &mut self,
        offset: u32,
        update: impl FnMut(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        let by = Accessor {
            wave: self.wave,
            checks: &self.checks,
        };
        self.lds.update64(by, offset, update)
    }

    #[inline]
    pub(crate) fn scratch_load<const N: usize>(
        &mut self,
        lane: u32,
        offset: u32,
    ) -> Result<([u8; N], u16), FaultKind> {
        let at = self.scratch_at(lane, offset, N)?;
        Ok(self.scratch.load::<N>(at))
    }

    #[inline]
    pub(crate) fn scratch_store<const N: usize>(
        &mut self,
        lane: u32,
        offset: u32,
        bytes: [u8; N],
        known: u16,
    ) -> Result<(), FaultKind> {
        let at = self.scratch_at(lane, offset, N)?;
        self.scratch.store::<N>(at, bytes, known);
        Ok(())
    }

    #[inline]
    fn scratch_at(&self, lane: u32, offset: u32, bytes: usize) -> Result<usize, FaultKind> {
        if u64::from(offset) + bytes as u64 > u64::from(self.scratch_size) {
            return Err(FaultKind::ScratchOverrun {
                offset: u64::from(offset),
                bytes: bytes as u32,
                size: self.scratch_size,
            });
        }
        check_alignment(&self.checks, u64::from(offset), bytes)?;
        let lane = (self.wave * self.lanes + lane) as usize;
        Ok(lane * self.scratch_size as usize + offset as usize)
    }

    #[inline]
    pub(crate) fn flat_load<const N: usize>(
        &mut self,
        lane: u32,
        address: u64,
    ) -> Result<([u8; N], u16), FaultKind> {
        match aperture(address) {
            Place::Global => self.global_load(address),
            Place::Lds(offset) => self.lds_load(offset),
            Place::Scratch(offset) => self.scratch_load(lane, offset),
        }
    }

    #[inline]
    pub(crate) fn flat_store<const N: usize>(
        &mut self,
        lane: u32,
        address: u64,
        bytes: [u8; N],
        known: u16,
    ) -> Result<(), FaultKind> {
        match aperture(address) {
            Place::Global => self.global_store(address, bytes, known),
            Place::Lds(offset) => self.lds_store(offset, bytes, known),
            Place::Scratch(offset) => self.scratch_store(lane, offset, bytes, known),
        }
    }

    pub(crate) fn flat_update32(
        &mut self,
        lane: u32,
        address: u64,
        mut update: impl FnMut(u32) -> u32,
    ) -> Result<u32, FaultKind> {
        match aperture(address) {
            Place::Global => self.global_update32(address, update),
            Place::Lds(offset) => self.lds_update32(offset, update),
            Place::Scratch(offset) => {
                let (bytes, known) = self.scratch_load::<4>(lane, offset)?;
                let old = u32::from_le_bytes(bytes);
                self.scratch_store(lane, offset, update(old).to_le_bytes(), known)?;
                Ok(old)
            }
        }
    }

    pub(crate) fn flat_update64(
        &mut self,
        lane: u32,
        address: u64,
        mut update: impl FnMut(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        match aperture(address) {
            Place::Global => self.global_update64(address, update),
            Place::Lds(offset) => self.lds_update64(offset, update),
            Place::Scratch(offset) => {
                let (bytes, known) = self.scratch_load::<8>(lane, offset)?;
                let old = u64::from_le_bytes(bytes);
                self.scratch_store(lane, offset, update(old).to_le_bytes(), known)?;
                Ok(old)
            }
        }
    }
}

#[cfg(test)]
mod tests;
