//! A block's LDS, and the detection of races in it.

use super::address::{check_alignment, must_be_multiple, unwritten_atomic_in};
use super::local::Local;
use crate::fault::FaultKind;
use crate::launch::Checks;

/// Waves that accessed the four bytes of a dword of LDS since the barrier before `epoch`. Each byte has 0 for none, a wave's
/// index plus 1, or [`SEVERAL`]. [`ATOMIC`] is added if all accesses were atomic.
#[derive(Clone, Copy, Default)]
struct Accessed {
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

/// Wave that accesses LDS, and the checks to make.
#[derive(Clone, Copy)]
pub(super) struct Accessor<'a> {
    pub(super) wave: u32,
    pub(super) checks: &'a Checks,
}

pub(super) struct Lds {
    local: Local,
    accessed: Vec<Accessed>,
    epoch: u32,
}

impl Lds {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            local: Local::new(bytes),
            accessed: vec![Accessed::default(); bytes.div_ceil(4)],
            epoch: 1,
        }
    }

    pub(super) fn know_all(&mut self) {
        self.local.know_all();
    }

    /// Resets it for a new block.
    pub(super) fn poison(&mut self) {
        self.local.poison();
    }

    /// All waves have met: accesses before and after this do not race.
    pub(super) fn pass_barrier(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.accessed.fill(Accessed::default());
            self.epoch = 1;
        }
    }

    #[inline]
    pub(super) fn load<const N: usize>(
        &mut self,
        by: Accessor<'_>,
        offset: u32,
    ) -> Result<([u8; N], u16), FaultKind> {
        self.access::<N>(by, offset, Access::Read, None)?;
        Ok(self.local.load::<N>(offset as usize))
    }

    #[inline]
    pub(super) fn store<const N: usize>(
        &mut self,
        by: Accessor<'_>,
        offset: u32,
        bytes: [u8; N],
        known: u16,
    ) -> Result<(), FaultKind> {
        self.access::<N>(by, offset, Access::Write, Some(&bytes))?;
        self.local.store::<N>(offset as usize, bytes, known);
        Ok(())
    }

    pub(super) fn update32(
        &mut self,
        by: Accessor<'_>,
        offset: u32,
        mut update: impl FnMut(u32) -> u32,
    ) -> Result<u32, FaultKind> {
        must_be_multiple(u64::from(offset), 4)?;
        self.access::<4>(by, offset, Access::Atomic, None)?;
        let (bytes, known) = self.local.load::<4>(offset as usize);
        if by.checks.uninitialised && known != 0xf {
            return Err(unwritten_atomic_in("LDS", offset));
        }
        let old = u32::from_le_bytes(bytes);
        self.local
            .store::<4>(offset as usize, update(old).to_le_bytes(), known);
        Ok(old)
    }

    pub(super) fn update64(
        &mut self,
        by: Accessor<'_>,
        offset: u32,
        mut update: impl FnMut(u64) -> u64,
    ) -> Result<u64, FaultKind> {
        must_be_multiple(u64::from(offset), 8)?;
        self.access::<8>(by, offset, Access::Atomic, None)?;
        let (bytes, known) = self.local.load::<8>(offset as usize);
        if by.checks.uninitialised && known != 0xff {
            return Err(unwritten_atomic_in("LDS", offset));
        }
        let old = u64::from_le_bytes(bytes);
        self.local
            .store::<8>(offset as usize, update(old).to_le_bytes(), known);
        Ok(old)
    }

    /// Bounds, alignment and races.
    #[inline]
    fn access<const N: usize>(
        &mut self,
        by: Accessor<'_>,
        offset: u32,
        access: Access,
        new: Option<&[u8; N]>,
    ) -> Result<(), FaultKind> {
        let at = offset as usize;
        if at + N > self.local.len() {
            return Err(FaultKind::LdsOverrun {
                offset: u64::from(offset),
                bytes: N as u32,
                size: self.local.len() as u32,
            });
        }
        check_alignment(by.checks, u64::from(offset), N)?;
        if !by.checks.lds_races {
            return Ok(());
        }
        let whole = N.is_multiple_of(4) && at.is_multiple_of(4) && access != Access::Atomic;
        for first in (0..N).step_by(4) {
            if whole && self.record_dword(by.wave, (at + first) / 4, access) {
                continue;
            }
            for byte in first..N.min(first + 4) {
                self.record(by.wave, at + byte, access, new.map(|new| new[byte]))?;
            }
        }
        Ok(())
    }

    /// Records an access to the four bytes of a dword at once. Returns true if all four were accessed alike and no race is
    /// possible. See [`Lds::record`].
    #[inline]
    fn record_dword(&mut self, wave: u32, dword: usize, access: Access) -> bool {
        let mine = [wave as u8 + 1; 4];
        let accessed = &mut self.accessed[dword];
        if accessed.epoch != self.epoch {
            *accessed = Accessed {
                epoch: self.epoch,
                ..Accessed::default()
            };
        }
        let own = |who: [u8; 4]| who == [0; 4] || who == mine;
        if !own(accessed.writers) {
            return false;
        }
        match access {
            Access::Read if own(accessed.readers) => accessed.readers = mine,
            // One other wave or more.
            Access::Read if accessed.readers == [accessed.readers[0]; 4] => accessed.readers = [SEVERAL; 4],
            Access::Write if own(accessed.readers) => accessed.writers = mine,
            _ => return false,
        }
        true
    }

    /// Records an access to a byte, unless it is a race. Two waves may write the same value.
    fn record(&mut self, wave: u32, at: usize, access: Access, new: Option<u8>) -> Result<(), FaultKind> {
        let unchanged = new.is_some_and(|new| self.local.load::<1>(at) == ([new], 1));
        let me = wave as u8 + 1;
        let accessed = &mut self.accessed[at / 4];
        if accessed.epoch != self.epoch {
            *accessed = Accessed {
                epoch: self.epoch,
                ..Accessed::default()
            };
        }
        let (writer, reader) = (accessed.writers[at % 4], accessed.readers[at % 4]);
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
                accessed.readers[at % 4] = one_more(reader, 0);
            }
            Access::Write => {
                if by_others(writer) && !unchanged {
                    return Err(race(writer, true));
                }
                if by_others(reader) && !unchanged {
                    return Err(race(reader, false));
                }
                accessed.writers[at % 4] = one_more(writer, 0);
            }
            Access::Atomic => {
                if by_others(reader) {
                    return Err(race(reader, false));
                }
                if by_others(writer) && writer & ATOMIC == 0 {
                    return Err(race(writer, true));
                }
                accessed.writers[at % 4] = one_more(writer, ATOMIC);
            }
        }
        Ok(())
    }
}
