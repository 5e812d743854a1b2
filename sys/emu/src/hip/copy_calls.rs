//! HIP's functions for copies and fills.

use std::ffi::c_void;

use gcnrun::{Kind, Memory};
use hipvit_sys::hip::{hipDeviceptr_t, hipError_t, hipMemcpyKind, hipStream_t};

use super::copy::{Copy, Fill, Rows, address};
use super::machine::{self, machine, memory};
use super::stream::{self, Stream};
use super::task::Task;
use super::{capture_mode, hip, queue};
use crate::faults::Failure;

/// Submits a copy. `waits` says whether the call returns only when the copy is complete.
fn submit(stream: &Stream, copy: Option<Copy>, waits: bool) -> Result<(), hipError_t> {
    let Some(copy) = copy else {
        return stream.device.alive();
    };
    if waits {
        capture_mode::forbid_waiting()?;
    }
    let machine = machine()?;
    if machine.copies.fires(machine.settings.faults.copy) {
        let failure = Failure::new(hipError_t::hipErrorUnknown, "injected by HIP_EMU_FAIL_COPY");
        let device = stream.device;
        let fail = move |_: &Memory| {
            device.fail_once("a copy", &failure);
            Ok(())
        };
        stream.submit(&Task::Library("a copy".into(), std::sync::Arc::new(fail)))?;
    } else {
        let point = stream.submit(&Task::Copy(copy))?;
        if let Some(point) = point
            && copy.is_pageable()
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
    Copy::new(Rows::new(to, size), Rows::new(from, size), (size, 1), kind)
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

/// A fill on a stream; without a stream, on the default stream, and the call waits if the host can access the memory.
fn fill(fill: Option<Fill>, stream: Option<hipStream_t>) -> Result<(), hipError_t> {
    let handle = stream.unwrap_or(std::ptr::null_mut());
    let found = stream::find(handle)?;
    let Some(task) = fill else {
        return found.device.alive();
    };
    found.submit(&Task::Fill(task))?;
    let visible = memory()?
        .find(task.address())
        .is_some_and(|target| !matches!(target.kind, Kind::Device(_)));
    if stream.is_none() && visible {
        found.synchronize()
    } else {
        Ok(())
    }
}

fn elements(to: u64, count: usize, value: u32, bytes: usize) -> Result<Option<Fill>, hipError_t> {
    Fill::new(
        Rows {
            address: to,
            pitch: count * bytes,
        },
        (count, 1),
        value,
        bytes,
    )
}

hip_provider::export_copies! { hip, copy, copy_async }

hip! {
    fn hipMemcpyWithStream(
        to: *mut c_void, from: *const c_void, size: usize, kind: hipMemcpyKind, stream: hipStream_t,
    ) {
        submit(&*stream::find(stream)?, row(to, from, size, kind)?, true)
    }

    fn hipMemcpy2D(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: hipMemcpyKind,
    ) {
        let copy = Copy::new(Rows::new(to, to_pitch), Rows::new(from, from_pitch), (width, height), kind)?;
        submit(&*stream::find(std::ptr::null_mut())?, copy, true)
    }

    fn hipMemcpy2DAsync(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: hipMemcpyKind, stream: hipStream_t,
    ) {
        let copy = Copy::new(Rows::new(to, to_pitch), Rows::new(from, from_pitch), (width, height), kind)?;
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
        fill(Fill::new(Rows::new(to, pitch), (width, height), value.cast_unsigned(), 1)?, None)
    }

    fn hipMemset2DAsync(to: *mut c_void, pitch: usize, value: i32, width: usize, height: usize, stream: hipStream_t) {
        fill(Fill::new(Rows::new(to, pitch), (width, height), value.cast_unsigned(), 1)?, Some(stream))
    }
}
