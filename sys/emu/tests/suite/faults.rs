//! Injected faults: each occurs when it should, with the status that a GPU returns.

use std::ffi::{CStr, c_char};
use std::ptr;

use hipvit_sys::hip::{hipError_t, hipMemcpyKind};

use crate::{Buffer, Pinned, Stream, has, hip, is, ok};

/// The library's report of the last fault.
pub(crate) fn last_fault() -> String {
    let path = hipvit_sys::Table::path(hip());
    let library = unsafe { libloading::Library::new(path) }.expect("open already");
    let function = unsafe { library.get::<unsafe extern "C" fn() -> *const c_char>("hip_emu_last_fault") };
    let text = unsafe { function.expect("exported")() };
    assert!(!text.is_null(), "there was no fault");
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[test]
fn the_nth_allocation_fails() {
    if !has(&[("HIP_EMU_FAIL_ALLOC", "2")], "faults::the_nth_allocation_fails") {
        return;
    }
    let mut at = ptr::null_mut();
    unsafe {
        ok(hip().hipMalloc(&mut at, 64));
        is(hip().hipMalloc(&mut at, 64), hipError_t::hipErrorOutOfMemory);
        assert!(at.is_null());
        is(hip().hipGetLastError(), hipError_t::hipErrorOutOfMemory);
        is(hip().hipGetLastError(), hipError_t::hipSuccess);
        ok(hip().hipMalloc(&mut at, 64));
    }
}

#[test]
fn the_nth_copy_fails_when_it_runs_and_the_device_stays_usable() {
    let test = "faults::the_nth_copy_fails_when_it_runs_and_the_device_stays_usable";
    if !has(&[("HIP_EMU_FAIL_COPY", "2")], test) {
        return;
    }
    let (stream, host) = (Stream::new(), Pinned::new(8));
    host.set(3);
    let buffer = Buffer::of(&[1; 8]);
    let up = hipMemcpyKind::hipMemcpyHostToDevice;
    unsafe {
        ok(hip().hipMemcpyAsync(buffer.0, host.0.cast(), 32, up, stream.0));
        is(hip().hipStreamSynchronize(stream.0), hipError_t::hipErrorUnknown);
        ok(hip().hipStreamSynchronize(stream.0));
    }
    assert_eq!(buffer.peek(8), [1; 8]);
    assert!(
        last_fault().contains("injected by HIP_EMU_FAIL_COPY"),
        "{}",
        last_fault()
    );
}

#[test]
fn a_lost_device_returns_errors_until_it_is_reset() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let path = log.path().to_str().expect("UTF-8");
    let settings = [("HIP_EMU_LOSE_DEVICE", "3"), ("HIP_EMU_LOG", path)];
    if !has(
        &settings,
        "faults::a_lost_device_returns_errors_until_it_is_reset",
    ) {
        let report = std::fs::read_to_string(path).expect("the log");
        assert!(
            report.contains("device 0: a fill of 4 bytes: the device is lost"),
            "{report}"
        );
        return;
    }
    let lost = hipError_t::hipErrorLaunchFailure;
    let (stream, buffer) = (Stream::new(), Buffer::new(1));
    buffer.fill(1, 1, &stream);
    buffer.fill(1, 2, &stream);
    let mut at = ptr::null_mut();
    unsafe {
        is(hip().hipMemsetD32Async(buffer.0, 3, 1, stream.0), lost);
        is(hip().hipStreamSynchronize(stream.0), lost);
        is(hip().hipMalloc(&mut at, 64), lost);
        is(hip().hipDeviceSynchronize(), lost);
        // The other device is not affected.
        ok(hip().hipSetDevice(1));
        ok(hip().hipMalloc(&mut at, 64));
        ok(hip().hipSetDevice(0));
        ok(hip().hipDeviceReset());
        ok(hip().hipMalloc(&mut at, 64));
    }
}

#[test]
fn the_random_schedule_is_repeatable_by_its_seed() {
    let test = "faults::the_random_schedule_is_repeatable_by_its_seed";
    for seed in ["1", "2", "3"] {
        let settings = [("HIP_EMU_SCHEDULE", "random"), ("HIP_EMU_SEED", seed)];
        if !has(&settings, test) {
            continue;
        }
        // In any order of the streams, the order within each stream and the event's order hold.
        let streams = [Stream::new(), Stream::new(), Stream::new()];
        let buffers = [1, 2, 3].map(|value| Buffer::of(&[value]));
        let mut event = ptr::null_mut();
        ok(unsafe { hip().hipEventCreate(&mut event) });
        for round in 0..50 {
            for (stream, buffer) in streams.iter().zip(&buffers) {
                buffer.fill(1, round, stream);
            }
            let kind = hipMemcpyKind::hipMemcpyDeviceToDevice;
            unsafe {
                ok(hip().hipEventRecord(event, streams[0].0));
                ok(hip().hipStreamWaitEvent(streams[1].0, event, 0));
                ok(hip().hipMemcpyAsync(buffers[1].0, buffers[0].0, 4, kind, streams[1].0));
                ok(hip().hipEventRecord(event, streams[1].0));
                ok(hip().hipStreamWaitEvent(streams[0].0, event, 0));
            }
            streams[1].wait();
            assert_eq!(buffers[1].peek(1), [round.cast_unsigned()]);
        }
        return;
    }
}
