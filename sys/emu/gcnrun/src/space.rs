//! What the instructions of a block reach: global memory, the block's LDS, its waves' scratch memory; and the checks.
//!
//! One `Space` serves one thread of the emulator, block after block. [`run`](crate::run) says which wave runs
//! ([`Space::enter`]) and when a barrier was passed ([`Space::pass_barrier`]); [`isa`](crate::isa) loads and stores.
//! A *known* mask has a bit for each byte that was ever written.

use std::sync::Arc;

use crate::fault::FaultKind;
use crate::memory::{Block, Memory, POISON, WRITTEN};
use crate::run::Checks;

/// The upper halves of flat addresses that mean LDS and scratch memory: beyond every address of a host.
pub(crate) const SHARED_APERTURE: u32 = 0x0001_0000;
pub(crate) const PRIVATE_APERTURE: u32 = 0x0002_0000;

/// The buffer descriptor that kernels without flat scratch get for their scratch memory: its first two dwords hold
/// [`PRIVATE_APERTURE`] (as base address), to which the kernel adds the wave's offset, which is 0 here.
pub(crate) const SCRATCH_DESCRIPTOR: [u32; 4] = [0, PRIVATE_APERTURE, u32::MAX, 0x00e8_0000];

/// Where a flat address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Global,
    Lds(u32),
    Scratch(u32),
}

pub(crate) fn aperture(address: u64) -> Place {
    match (address >> 32) as u32 {
        SHARED_APERTURE => Place::Lds(address as u32),
        PRIVATE_APERTURE => Place::Scratch(address as u32),
        _ => Place::Global,
    }
}

pub(crate) struct Space<'a> {
    memory: &'a Memory,
    device: u32,
    checks: Checks,
    /// Where the code object lies: an instruction's address is this more than in the object.
    image: u64,
    recent: [Recent; RECENT],
    /// Which of `recent` was found last: mostly the lanes of an instruction reach one allocation.
    last: usize,
    /// Which of `recent` to replace next.
    next: usize,
    wave: u32,
    lds: Local,
    touches: Vec<Touch>,
    epoch: u32,
    scratch: Local,
    scratch_size: u32,
    lanes: u32,
}

/// How many allocations a thread remembers: most kernels touch fewer.
const RECENT: usize = 8;

/// An allocation that was reached, with its bounds at hand.
#[derive(Default)]
struct Recent {
    begin: u64,
    /// 0 as long as there is no block.
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

/// Who touched the four bytes of a dword of LDS since the barrier before `epoch`: for each byte 0 for nobody, a wave's
/// index plus 1, or [`SEVERAL`]; [`ATOMIC`] is added where they all did so atomically.
#[derive(Clone, Copy, Default)]
struct Touch {
    epoch: u32,
    writers: [u8; 4],
    readers: [u8; 4],
}

const ATOMIC: u8 = 0x80;
const SEVERAL: u8 = 0x7f;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Atomic,
}

impl<'a> Space<'a> {
    /// For blocks with `lds` bytes of LDS and `waves` waves of `lanes` lanes with `scratch` bytes each.
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
            lds: Local::new(lds as usize),
            touches: vec![Touch::default(); (lds as usize).div_ceil(4)],
            epoch: 1,
            scratch: Local::new(waves as usize * lanes as usize * scratch_size as usize),
            scratch_size,
            lanes,
        }
    }

    /// LDS and scratch memory as a new block finds them.
    pub(crate) fn begin_block(&mut self) {
        self.lds.poison();
        self.scratch.poison();
        self.pass_barrier();
    }

    /// From now on `wave` runs.
    pub(crate) fn enter(&mut self, wave: u32) {
        self.wave = wave;
    }

    /// All waves have met: what was done before and what is done from now on do not race.
    pub(crate) fn pass_barrier(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.touches.fill(Touch::default());
            self.epoch = 1;
        }
    }

    /// The options of the launch.
    #[inline]
    pub(crate) fn checks(&self) -> &Checks {
        &self.checks
    }

    /// What to add to an address in the code object for the address of the loaded one.
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

    /// Which of the recent allocations it is; a new one replaces the oldest.
    #[inline(never)]
    fn find(&mut self, address: u64, bytes: u64) -> Result<usize, FaultKind> {
        if let Some(slot) = self.recent.iter().position(|recent| recent.holds(address, bytes)) {
            return Ok(slot);
        }
        let block = self.memory.reach(self.device, address, bytes)?;
        let slot = self.next;
        self.recent[slot] = Recent {
            begin: block.begin(),
            len: block.len(),
            block: Some(block),
        };
        self.next = (slot + 1) % RECENT;
        Ok(slot)
    }

    /// Where asked for: every access of a dword or more is to be aligned to a dword, a smaller one to its size.
    #[inline]
    fn check_alignment(&self, address: u64, bytes: usize) -> Result<(), FaultKind> {
        let alignment = bytes.min(4) as u64;
        if self.checks.alignment && !address.is_multiple_of(alignment) {
            return Err(FaultKind::Misaligned {
                address,
                alignment: alignment as u32,
            });
        }
        Ok(())
    }

    /// `N` bytes (1, 2, 4, 8, 12 or 16), and which of them were written.
    #[inline]
    pub(crate) fn global_load<const N: usize>(&mut self, address: u64) -> Result<([u8; N], u16), FaultKind> {
        self.check_alignment(address, N)?;
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
        self.check_alignment(address, N)?;
        let (block, offset) = self.locate(address, N as u64)?;
        block.store::<N>(offset, bytes);
        block.note::<N>(offset, known);
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

    /// As [`Space::global_update32`], of 64 bits.
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

    #[inline]
    pub(crate) fn lds_load<const N: usize>(&mut self, offset: u32) -> Result<([u8; N], u16), FaultKind> {
        self.lds_access::<N>(offset, Access::Read, None)?;
        Ok(self.lds.load::<N>(offset as usize))
    }

    #[inline]
    pub(crate) fn lds_store<const N: usize>(
        &mut self,
        offset: u32,
        bytes: [u8; N],
        known: u16,
    ) -> Result<(), FaultKind> {
        self.lds_access::<N>(offset, Access::Write, Some(&bytes))?;
        self.lds.store::<N>(offset as usize, bytes, known);
        Ok(())
    }

    pub(crate) fn lds_update32(
        &mut self,
        offset: u32,
        mut update: impl FnMut(u32) -> u32,
    ) -> Result<u32, FaultKind> {
        must_be_multiple(u64::from(offset), 4)?;
        self.lds_access::<4>(offset, Access::Atomic, None)?;
        let (bytes, known) = self.lds.load::<4>(offset as usize);
        if self.checks.uninitialised && known != 0xf {
            return Err(unwritten_atomic_in("LDS", offset));
        }
        let old = u32::from_le_bytes(bytes);
        self.lds
            .store::<4>(offset as usize, update(old).to_le_bytes(), known);
        Ok(old)
    }

    pub(crate) fn lds_update64(
        &mut self,
        offset: u32,
        mut update: impl FnMut(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        must_be_multiple(u64::from(offset), 8)?;
        self.lds_access::<8>(offset, Access::Atomic, None)?;
        let (bytes, known) = self.lds.load::<8>(offset as usize);
        if self.checks.uninitialised && known != 0xff {
            return Err(unwritten_atomic_in("LDS", offset));
        }
        let old = u64::from_le_bytes(bytes);
        self.lds
            .store::<8>(offset as usize, update(old).to_le_bytes(), known);
        Ok(old)
    }

    /// Bounds, alignment and races.
    #[inline]
    fn lds_access<const N: usize>(
        &mut self,
        offset: u32,
        access: Access,
        new: Option<&[u8; N]>,
    ) -> Result<(), FaultKind> {
        let at = offset as usize;
        if at + N > self.lds.len() {
            return Err(FaultKind::LdsOverrun {
                offset: u64::from(offset),
                bytes: N as u32,
                size: self.lds.len() as u32,
            });
        }
        self.check_alignment(u64::from(offset), N)?;
        if !self.checks.lds_races {
            return Ok(());
        }
        let whole = N.is_multiple_of(4) && at.is_multiple_of(4) && access != Access::Atomic;
        for first in (0..N).step_by(4) {
            if whole && self.touch_dword((at + first) / 4, access) {
                continue;
            }
            for byte in first..N.min(first + 4) {
                self.touch(at + byte, access, new.map(|new| new[byte]))?;
            }
        }
        Ok(())
    }

    /// As [`Space::touch`] for the four bytes of a dword at once, where they were all touched alike and no race is possible;
    /// whether that is so.
    #[inline]
    fn touch_dword(&mut self, dword: usize, access: Access) -> bool {
        let mine = [self.wave as u8 + 1; 4];
        let touch = &mut self.touches[dword];
        if touch.epoch != self.epoch {
            *touch = Touch {
                epoch: self.epoch,
                ..Touch::default()
            };
        }
        let own = |who: [u8; 4]| who == [0; 4] || who == mine;
        if !own(touch.writers) {
            return false;
        }
        match access {
            Access::Read if own(touch.readers) => touch.readers = mine,
            // One other wave or more.
            Access::Read if touch.readers == [touch.readers[0]; 4] => touch.readers = [SEVERAL; 4],
            Access::Write if own(touch.readers) => touch.writers = mine,
            _ => return false,
        }
        true
    }

    /// Notes that the wave touches a byte of LDS, unless that is a race. Two waves may write the same value.
    fn touch(&mut self, at: usize, access: Access, new: Option<u8>) -> Result<(), FaultKind> {
        let unchanged = new.is_some_and(|new| self.lds.load::<1>(at) == ([new], 1));
        let me = self.wave as u8 + 1;
        let touch = &mut self.touches[at / 4];
        if touch.epoch != self.epoch {
            *touch = Touch {
                epoch: self.epoch,
                ..Touch::default()
            };
        }
        let (writer, reader) = (touch.writers[at % 4], touch.readers[at % 4]);
        let by_others = |who: u8| who != 0 && who & !ATOMIC != me;
        let race = |who: u8, wrote: bool| FaultKind::LdsRace {
            offset: at as u32,
            other: (who & !ATOMIC != SEVERAL).then(|| u32::from(who & !ATOMIC) - 1),
            other_wrote: wrote,
        };
        let one_more = |who: u8, bits: u8| match who & !ATOMIC {
            0 => me | bits,
            same if same == me => me | bits & who,
            _ => SEVERAL | bits & who,
        };
        match access {
            Access::Read => {
                if by_others(writer) {
                    return Err(race(writer, true));
                }
                touch.readers[at % 4] = one_more(reader, 0);
            }
            Access::Write => {
                if by_others(writer) && !unchanged {
                    return Err(race(writer, true));
                }
                if by_others(reader) && !unchanged {
                    return Err(race(reader, false));
                }
                touch.writers[at % 4] = one_more(writer, 0);
            }
            Access::Atomic => {
                if by_others(reader) {
                    return Err(race(reader, false));
                }
                if by_others(writer) && writer & ATOMIC == 0 {
                    return Err(race(writer, true));
                }
                touch.writers[at % 4] = one_more(writer, ATOMIC);
            }
        }
        Ok(())
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
        self.check_alignment(u64::from(offset), bytes)?;
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

/// What the hardware refuses whatever the mode.
fn must_be_multiple(address: u64, alignment: u32) -> Result<(), FaultKind> {
    if address.is_multiple_of(u64::from(alignment)) {
        Ok(())
    } else {
        Err(FaultKind::Misaligned { address, alignment })
    }
}

fn unwritten_atomic(address: u64) -> FaultKind {
    FaultKind::Uninitialised {
        what: format!("{address:#x}, which an atomic operation reads"),
    }
}

fn unwritten_atomic_in(memory: &str, offset: u32) -> FaultKind {
    FaultKind::Uninitialised {
        what: format!("{memory} at {offset}, which an atomic operation reads"),
    }
}

/// Memory that one thread alone sees, with its shadow. Whoever asks has checked the bounds.
struct Local {
    bytes: Vec<u8>,
    /// Four bits for each dword.
    known: Vec<u8>,
    /// Whether nothing was stored since the last poisoning.
    clean: bool,
}

impl Local {
    fn new(len: usize) -> Self {
        let mut local = Self {
            bytes: vec![0; len],
            known: vec![0; len.div_ceil(4)],
            clean: false,
        };
        local.poison();
        local
    }

    #[inline]
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn poison(&mut self) {
        if self.clean {
            return;
        }
        for (byte, poison) in self.bytes.iter_mut().zip(POISON.to_le_bytes().iter().cycle()) {
            *byte = *poison;
        }
        self.known.fill(0);
        self.clean = true;
    }

    #[inline]
    fn load<const N: usize>(&self, at: usize) -> ([u8; N], u16) {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.bytes[at..at + N]);
        let mut known = 0;
        if N.is_multiple_of(4) && at.is_multiple_of(4) {
            for (i, dword) in self.known[at / 4..at / 4 + N / 4].iter().enumerate() {
                known |= u16::from(*dword) << (4 * i);
            }
        } else {
            for i in 0..N {
                known |= u16::from(self.known[(at + i) / 4] >> ((at + i) % 4) & 1) << i;
            }
        }
        (bytes, known)
    }

    #[inline]
    fn store<const N: usize>(&mut self, at: usize, bytes: [u8; N], known: u16) {
        self.clean = false;
        self.bytes[at..at + N].copy_from_slice(&bytes);
        if N.is_multiple_of(4) && at.is_multiple_of(4) {
            for (i, dword) in self.known[at / 4..at / 4 + N / 4].iter_mut().enumerate() {
                *dword = (known >> (4 * i)) as u8 & WRITTEN;
            }
        } else {
            for i in 0..N {
                let bit = 1 << ((at + i) % 4);
                let dword = &mut self.known[(at + i) / 4];
                *dword = *dword & !bit | if known >> i & 1 == 1 { bit } else { 0 };
            }
        }
    }
}

#[cfg(test)]
mod tests;
