//! Memory of one thread of the emulator: a block's LDS, its waves' scratch memory.

use crate::memory::{POISON, WRITTEN};

/// Memory of one thread, with its shadow. Callers check the bounds.
pub(super) struct Local {
    bytes: Vec<u8>,
    /// Four bits for each dword.
    known: Vec<u8>,
    /// True if nothing was stored since the last poisoning.
    clean: bool,
    /// State of poisoned bytes: unwritten, or written.
    fresh: u8,
}

impl Local {
    pub(super) fn new(len: usize) -> Self {
        let mut local = Self {
            bytes: vec![0; len],
            known: vec![0; len.div_ceil(4)],
            clean: false,
            fresh: 0,
        };
        local.poison();
        local
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Makes all of it count as written, now and after each poisoning.
    pub(super) fn know_all(&mut self) {
        self.fresh = WRITTEN;
        self.known.fill(WRITTEN);
    }

    pub(super) fn poison(&mut self) {
        if self.clean {
            return;
        }
        for (byte, poison) in self.bytes.iter_mut().zip(POISON.to_le_bytes().iter().cycle()) {
            *byte = *poison;
        }
        self.known.fill(self.fresh);
        self.clean = true;
    }

    #[inline]
    pub(super) fn load<const N: usize>(&self, at: usize) -> ([u8; N], u16) {
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
    pub(super) fn store<const N: usize>(&mut self, at: usize, bytes: [u8; N], known: u16) {
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
