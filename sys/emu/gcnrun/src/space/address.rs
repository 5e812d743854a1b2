//! Kind of memory at an address, and alignment.

use crate::fault::FaultKind;
use crate::launch::Checks;

/// The upper halves of flat addresses of LDS and scratch memory: beyond every host address.
pub(crate) const SHARED_APERTURE: u32 = 0x0001_0000;
pub(crate) const PRIVATE_APERTURE: u32 = 0x0002_0000;

/// The buffer descriptor that kernels without flat scratch get for their scratch memory. Its first two dwords hold
/// [`PRIVATE_APERTURE`] (as base address). The kernel adds the wave's offset, which is 0 here.
pub(crate) const SCRATCH_DESCRIPTOR: [u32; 4] = [0, PRIVATE_APERTURE, u32::MAX, 0x00e8_0000];

/// Memory at a flat address.
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

/// If [`Checks::alignment`] is set, accesses of a dword or more must be aligned to a dword, smaller ones to their size.
#[inline]
pub(super) fn check_alignment(checks: &Checks, address: u64, bytes: usize) -> Result<(), FaultKind> {
    let alignment = bytes.min(4) as u64;
    if checks.alignment && !address.is_multiple_of(alignment) {
        return Err(FaultKind::Misaligned {
            address,
            alignment: alignment as u32,
        });
    }
    Ok(())
}

/// Alignment that the hardware needs in every mode.
#[inline]
pub(super) fn must_be_multiple(address: u64, alignment: u32) -> Result<(), FaultKind> {
    if address.is_multiple_of(u64::from(alignment)) {
        Ok(())
    } else {
        Err(FaultKind::Misaligned { address, alignment })
    }
}

pub(super) fn unwritten_atomic(address: u64) -> FaultKind {
    FaultKind::Uninitialised {
        what: format!("{address:#x}, which an atomic operation reads"),
    }
}

pub(super) fn unwritten_atomic_in(memory: &str, offset: u32) -> FaultKind {
    FaultKind::Uninitialised {
        what: format!("{memory} at {offset}, which an atomic operation reads"),
    }
}
