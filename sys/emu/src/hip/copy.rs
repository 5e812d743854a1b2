//! Copies and fills.
//!
//! A copy reads its source when it runs. Only memory of the host that the runtime does not know, which a GPU could not
//! reach by itself, is different: such a call is over when the copy is.

use std::ffi::c_void;
use std::slice;

use gcnrun::{Allocation, FaultKind, Kind, Memory};
use hipvit_sys::hip::{hipDeviceptr_t, hipError_t, hipMemcpyKind, hipStream_t};

use super::machine::{self, machine, memory};
use super::stream::{self, Stream};
use super::task::Task;
use super::{hip, queue};
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
    /// Memory of the host that the runtime does not know.
    pageable: bool,
    /// Memory that the host, too, can look at.
    host: bool,
}

/// A pointer as the number that memory takes.
pub(super) fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

/// Where a piece of known memory is, if it is one: an error if the bytes leave it, or if it was freed.
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
    // No kernel is to blame and nothing ran: the device goes on, as AMD's does.
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
        address: u64,
        pitch: usize,
        (width, height): (usize, usize),
        device: Option<bool>,
    ) -> Result<Self, hipError_t> {
        let bytes = (pitch * (height - 1) + width) as u64;
        let known = known(address, bytes, "a copy")?;
        // Memory that the runtime does not know is the host's, and cannot be called a device's.
        if device == Some(true) && known.is_none() {
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
    /// A copy of `size.1` rows of `size.0` bytes, checked against the allocations that it touches; `None` if it is empty.
    pub(super) fn new(
        (to, to_pitch): (u64, usize),
        (from, from_pitch): (u64, usize),
        size: (usize, usize),
        kind: hipMemcpyKind,
    ) -> Result<Option<Self>, hipError_t> {
        let (to_device, from_device) = match kind {
            hipMemcpyKind::hipMemcpyHostToHost => (Some(false), Some(false)),
            hipMemcpyKind::hipMemcpyHostToDevice => (Some(true), Some(false)),
            hipMemcpyKind::hipMemcpyDeviceToHost => (Some(false), Some(true)),
            hipMemcpyKind::hipMemcpyDeviceToDevice | hipMemcpyKind::hipMemcpyDeviceToDeviceNoCU => {
                (Some(true), Some(true))
            }
            hipMemcpyKind::hipMemcpyDefault => (None, None),
            _ => return Err(hipError_t::hipErrorInvalidMemcpyDirection),
        };
        if size.0 == 0 || size.1 == 0 {
            return Ok(None);
        }
        if to == 0 || from == 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        if size.1 > 1 && (size.0 > to_pitch || size.0 > from_pitch) {
            return Err(hipError_t::hipErrorInvalidPitchValue);
        }
        Ok(Some(Self {
            to: Side::new(to, to_pitch, size, to_device)?,
            from: Side::new(from, from_pitch, size, from_device)?,
            width: size.0,
            height: size.1,
        }))
    }

    pub(super) fn bytes(&self) -> usize {
        self.width * self.height
    }

    /// # Safety
    /// What it touches of the host's memory is there, and nobody else uses it.
    pub(super) unsafe fn run(&self, memory: &Memory) -> Result<(), Failure> {
        for row in 0..self.height {
            let (to, from) = (self.to.row(row), self.from.row(row));
            // SAFETY: as the caller says.
            unsafe { self.copy_row(memory, to, from) }?;
        }
        Ok(())
    }

    /// # Safety
    /// As for `run`.
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

    /// Whether a call that waits has to: between devices it need not, as nobody on the host sees the difference.
    fn concerns_host(&self) -> bool {
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
        (to, pitch): (u64, usize),
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

/// Submits a copy. `waits` says whether the call is over only when the copy is.
pub(super) fn submit(stream: &Stream, copy: Option<Copy>, waits: bool) -> Result<(), hipError_t> {
    let Some(copy) = copy else {
        return stream.device.alive();
    };
    if waits {
        super::capture::forbid_waiting()?;
    }
    let machine = machine()?;
    if machine.copies.due(machine.settings.fail_copy) {
        let failure = Failure::new(hipError_t::hipErrorUnknown, "fails, as was asked for");
        let device = stream.device;
        let fail = move |_: &Memory| {
            device.fail_once("a copy", &failure);
            Ok(())
        };
        stream.submit(&Task::Library("a copy".into(), std::sync::Arc::new(fail)))?;
    } else {
        let point = stream.submit(&Task::Copy(copy))?;
        if let Some(point) = point
            && (copy.to.pageable || copy.from.pageable)
        {
            queue::wait(&[point]);
            return stream.device.outcome();
        }
    }
    if waits && copy.concerns_host() {
        stream.synchronize()
    } else {
        Ok(())
    }
}

fn row(
    to: *const c_void,
    from: *const c_void,
    size: usize,
    kind: hipMemcpyKind,
) -> Result<Option<Copy>, hipError_t> {
    Copy::new((address(to), size), (address(from), size), (size, 1), kind)
}

fn copy(to: *const c_void, from: *const c_void, size: usize, kind: hipMemcpyKind) -> Result<(), hipError_t> {
    let null = stream::find(std::ptr::null_mut())?;
    submit(&null, row(to, from, size, kind)?, true)
}

fn copy_async(
    to: *const c_void,
    from: *const c_void,
    size: usize,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> Result<(), hipError_t> {
    submit(&*stream::find(stream)?, row(to, from, size, kind)?, false)
}

/// A fill on a stream; without one on the default stream, for which the call waits if the host can see it.
fn fill(fill: Option<Fill>, stream: Option<hipStream_t>) -> Result<(), hipError_t> {
    let handle = stream.unwrap_or(std::ptr::null_mut());
    let found = stream::find(handle)?;
    let Some(task) = fill else {
        return found.device.alive();
    };
    found.submit(&Task::Fill(task))?;
    let visible = memory()?
        .find(task.to)
        .is_some_and(|target| !matches!(target.kind, Kind::Device(_)));
    if stream.is_none() && visible {
        found.synchronize()
    } else {
        Ok(())
    }
}

fn elements(to: u64, count: usize, value: u32, bytes: usize) -> Result<Option<Fill>, hipError_t> {
    Fill::new((to, count * bytes), (count, 1), value, bytes)
}

hip! {
    fn hipMemcpy(to: *mut c_void, from: *const c_void, size: usize, kind: hipMemcpyKind) {
        copy(to, from, size, kind)
    }

    fn hipMemcpyAsync(to: *mut c_void, from: *const c_void, size: usize, kind: hipMemcpyKind, stream: hipStream_t) {
        copy_async(to, from, size, kind, stream)
    }

    fn hipMemcpyWithStream(
        to: *mut c_void, from: *const c_void, size: usize, kind: hipMemcpyKind, stream: hipStream_t,
    ) {
        submit(&*stream::find(stream)?, row(to, from, size, kind)?, true)
    }

    fn hipMemcpyHtoD(to: hipDeviceptr_t, from: *const c_void, size: usize) {
        copy(to, from, size, hipMemcpyKind::hipMemcpyHostToDevice)
    }

    fn hipMemcpyDtoH(to: *mut c_void, from: hipDeviceptr_t, size: usize) {
        copy(to, from, size, hipMemcpyKind::hipMemcpyDeviceToHost)
    }

    fn hipMemcpyDtoD(to: hipDeviceptr_t, from: hipDeviceptr_t, size: usize) {
        copy(to, from, size, hipMemcpyKind::hipMemcpyDeviceToDevice)
    }

    fn hipMemcpyHtoDAsync(to: hipDeviceptr_t, from: *const c_void, size: usize, stream: hipStream_t) {
        copy_async(to, from, size, hipMemcpyKind::hipMemcpyHostToDevice, stream)
    }

    fn hipMemcpyDtoHAsync(to: *mut c_void, from: hipDeviceptr_t, size: usize, stream: hipStream_t) {
        copy_async(to, from, size, hipMemcpyKind::hipMemcpyDeviceToHost, stream)
    }

    fn hipMemcpyDtoDAsync(to: hipDeviceptr_t, from: hipDeviceptr_t, size: usize, stream: hipStream_t) {
        copy_async(to, from, size, hipMemcpyKind::hipMemcpyDeviceToDevice, stream)
    }

    fn hipMemcpy2D(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: hipMemcpyKind,
    ) {
        let copy = Copy::new((address(to), to_pitch), (address(from), from_pitch), (width, height), kind)?;
        submit(&*stream::find(std::ptr::null_mut())?, copy, true)
    }

    fn hipMemcpy2DAsync(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: hipMemcpyKind, stream: hipStream_t,
    ) {
        let copy = Copy::new((address(to), to_pitch), (address(from), from_pitch), (width, height), kind)?;
        submit(&*stream::find(stream)?, copy, false)
    }

    fn hipMemcpyPeer(to: *mut c_void, to_device: i32, from: *const c_void, from_device: i32, size: usize) {
        machine::device(to_device)?;
        machine::device(from_device)?;
        copy(to, from, size, hipMemcpyKind::hipMemcpyDeviceToDevice)
    }

    fn hipMemcpyPeerAsync(
        to: *mut c_void, to_device: i32, from: *const c_void, from_device: i32, size: usize, stream: hipStream_t,
    ) {
        machine::device(to_device)?;
        machine::device(from_device)?;
        copy_async(to, from, size, hipMemcpyKind::hipMemcpyDeviceToDevice, stream)
    }

    fn hipMemset(to: *mut c_void, value: i32, size: usize) {
        fill(elements(address(to), size, value.cast_unsigned(), 1)?, None)
    }

    fn hipMemsetAsync(to: *mut c_void, value: i32, size: usize, stream: hipStream_t) {
        fill(elements(address(to), size, value.cast_unsigned(), 1)?, Some(stream))
    }

    fn hipMemsetD8(to: hipDeviceptr_t, value: u8, count: usize) {
        fill(elements(address(to), count, value.into(), 1)?, None)
    }

    fn hipMemsetD8Async(to: hipDeviceptr_t, value: u8, count: usize, stream: hipStream_t) {
        fill(elements(address(to), count, value.into(), 1)?, Some(stream))
    }

    fn hipMemsetD16(to: hipDeviceptr_t, value: u16, count: usize) {
        fill(elements(address(to), count, value.into(), 2)?, None)
    }

    fn hipMemsetD16Async(to: hipDeviceptr_t, value: u16, count: usize, stream: hipStream_t) {
        fill(elements(address(to), count, value.into(), 2)?, Some(stream))
    }

    fn hipMemsetD32(to: hipDeviceptr_t, value: i32, count: usize) {
        fill(elements(address(to), count, value.cast_unsigned(), 4)?, None)
    }

    fn hipMemsetD32Async(to: hipDeviceptr_t, value: i32, count: usize, stream: hipStream_t) {
        fill(elements(address(to), count, value.cast_unsigned(), 4)?, Some(stream))
    }

    fn hipMemset2D(to: *mut c_void, pitch: usize, value: i32, width: usize, height: usize) {
        fill(Fill::new((address(to), pitch), (width, height), value.cast_unsigned(), 1)?, None)
    }

    fn hipMemset2DAsync(to: *mut c_void, pitch: usize, value: i32, width: usize, height: usize, stream: hipStream_t) {
        fill(Fill::new((address(to), pitch), (width, height), value.cast_unsigned(), 1)?, Some(stream))
    }
}
