//! Copies and fills, as work of a device.
//!
//! A copy reads its source when it runs. Only copies of pageable host memory, which a GPU cannot access, are complete when
//! the call returns.

use std::slice;

use gcnrun::{Allocation, FaultKind, Kind, Memory};
use hip_provider::hip::{MemoryKind, copy_target_and_source};
use hipvit_sys::hip::{hipError_t, hipMemcpyKind};

use super::machine::{self, memory};
use crate::faults::{Failure, report};

/// A copy of rows between two addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    to: Side,
    from: Side,
    width: usize,
    height: usize,
}

/// One end of a copy.
#[derive(Clone, Copy, Debug)]
struct Side {
    address: u64,
    pitch: usize,
    /// Pageable host memory.
    pageable: bool,
    /// Pinned or managed memory, which the host can access.
    host: bool,
}

/// Rows of memory, which begin `pitch` bytes apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) address: u64,
    pub(super) pitch: usize,
}

impl Rows {
    pub(super) fn new<T>(pointer: *const T, pitch: usize) -> Self {
        Self {
            address: address(pointer),
            pitch,
        }
    }
}

/// A pointer's address.
pub(super) fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// The allocation that holds the bytes; `None` for pageable host memory. An error if they leave it, or if it was freed.
fn known(address: u64, bytes: u64, what: &str) -> Result<Option<Allocation>, hipError_t> {
    let Some(found) = memory()?.find(address) else {
        return Ok(None);
    };
    let wrong = if !found.live {
        "was freed"
    } else if address + bytes > found.begin + found.len {
        "is too small"
    } else {
        return Ok(Some(found));
    };
    // No work was submitted: the device stays usable, as with AMD's runtime.
    let text = format!(
        "{bytes} bytes at {address:#x}: the allocation of {} bytes at {:#x} {wrong}",
        found.len, found.begin
    );
    report(
        machine::chosen()?.ordinal,
        what,
        &Failure::new(hipError_t::hipErrorInvalidValue, text),
    );
    Err(hipError_t::hipErrorInvalidValue)
}

impl Side {
    fn new(
        Rows { address, pitch }: Rows,
        (width, height): (usize, usize),
        kind: MemoryKind,
    ) -> Result<Self, hipError_t> {
        let bytes = (pitch * (height - 1) + width) as u64;
        let known = known(address, bytes, "a copy")?;
        // Pageable host memory cannot be passed as device memory.
        if kind == MemoryKind::Device && known.is_none() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        Ok(Self {
            address,
            pitch,
            pageable: known.is_none(),
            host: known.is_none_or(|found| !matches!(found.kind, Kind::Device(_))),
        })
    }

    fn row(&self, index: usize) -> u64 {
        self.address + (index * self.pitch) as u64
    }
}

impl Copy {
    /// A copy of `size.1` rows of `size.0` bytes, checked against its allocations; `None` if it is empty.
    pub(super) fn new(
        to: Rows,
        from: Rows,
        size: (usize, usize),
        kind: hipMemcpyKind,
    ) -> Result<Option<Self>, hipError_t> {
        let (to_kind, from_kind) = copy_target_and_source(kind)?;
        if size.0 == 0 || size.1 == 0 {
            return Ok(None);
        }
        if to.address == 0 || from.address == 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        if size.1 > 1 && (size.0 > to.pitch || size.0 > from.pitch) {
            return Err(hipError_t::hipErrorInvalidPitchValue);
        }
        Ok(Some(Self {
            to: Side::new(to, size, to_kind)?,
            from: Side::new(from, size, from_kind)?,
            width: size.0,
            height: size.1,
        }))
    }

    pub(super) fn bytes(&self) -> usize {
        self.width * self.height
    }

    /// # Safety
    /// The host memory that it reads or writes is valid, and not accessed otherwise meanwhile.
    pub(super) unsafe fn run(&self, memory: &Memory) -> Result<(), Failure> {
        for row in 0..self.height {
            let (to, from) = (self.to.row(row), self.from.row(row));
            // SAFETY: as the caller says.
            unsafe { self.copy_row(memory, to, from) }?;
        }
        Ok(())
    }

    /// # Safety
    /// The host memory that it reads or writes is valid, and not accessed otherwise meanwhile.
    unsafe fn copy_row(&self, memory: &Memory, to: u64, from: u64) -> Result<(), FaultKind> {
        let pointer = |address: u64| std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        match (self.to.pageable, self.from.pageable) {
            (false, false) => memory.copy(to, from, self.width as u64),
            (false, true) => {
                // SAFETY: the caller's memory, of this many bytes.
                let bytes = unsafe { slice::from_raw_parts(pointer(from), self.width) };
                memory.write(to, bytes)
            }
            (true, false) => {
                // SAFETY: the caller's memory, of this many bytes.
                let bytes = unsafe { slice::from_raw_parts_mut(pointer(to), self.width) };
                memory.read(from, bytes)
            }
            (true, true) => {
                // SAFETY: the caller's memory, of this many bytes on either side, which may overlap.
                unsafe { std::ptr::copy(pointer(from), pointer(to), self.width) };
                Ok(())
            }
        }
    }

    /// True if either side is pageable host memory.
    pub(super) fn is_pageable(&self) -> bool {
        self.to.pageable || self.from.pageable
    }

    /// True if a blocking call has to wait. Copies between devices need no wait, because the host does not see their results.
    pub(super) fn concerns_host(&self) -> bool {
        self.to.host || self.from.host
    }
}

/// A fill of rows with elements of 1, 2 or 4 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    to: u64,
    pitch: usize,
    /// Elements of a row.
    width: usize,
    height: usize,
    element: [u8; 4],
    size: usize,
}

impl Fill {
    /// A fill of `size.1` rows of `size.0` elements of `bytes` bytes with `value`'s lowest; `None` if it is empty.
    pub(super) fn new(
        Rows { address: to, pitch }: Rows,
        size: (usize, usize),
        value: u32,
        bytes: usize,
    ) -> Result<Option<Self>, hipError_t> {
        if !matches!(bytes, 1 | 2 | 4) {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        if size.0 == 0 || size.1 == 0 {
            return Ok(None);
        }
        if size.1 > 1 && size.0 * bytes > pitch {
            return Err(hipError_t::hipErrorInvalidPitchValue);
        }
        let length = (pitch * (size.1 - 1) + size.0 * bytes) as u64;
        known(to, length, "a fill")?.ok_or(hipError_t::hipErrorInvalidValue)?;
        Ok(Some(Self {
            to,
            pitch,
            width: size.0,
            height: size.1,
            element: value.to_le_bytes(),
            size: bytes,
        }))
    }

    /// The first byte's address.
    pub(super) fn address(&self) -> u64 {
        self.to
    }

    pub(super) fn bytes(&self) -> usize {
        self.width * self.height * self.size
    }

    pub(super) fn run(&self, memory: &Memory) -> Result<(), FaultKind> {
        (0..self.height).try_for_each(|row| {
            let to = self.to + (row * self.pitch) as u64;
            memory.fill(to, &self.element[..self.size], self.width as u64)
        })
    }
}
