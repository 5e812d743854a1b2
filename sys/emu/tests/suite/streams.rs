//! Deferred execution: without a wait there is no result.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use hipvit_sys::hip::{hipError_t, hipEvent_t, hipEventDisableTiming, hipMemcpyKind, hipStreamNonBlocking};

use crate::{Buffer, Pinned, Stream, hip, is, ok, turn};

fn event() -> hipEvent_t {
    let mut event = ptr::null_mut();
    ok(unsafe { hip().hipEventCreate(&mut event) });
    event
}

fn to_host(to: &Pinned, from: &Buffer, stream: &Stream) {
    let kind = hipMemcpyKind::hipMemcpyDeviceToHost;
    ok(unsafe { hip().hipMemcpyAsync(to.0.cast(), from.0, 4 * to.1, kind, stream.0) });
}

fn to_device(to: &Buffer, from: &Pinned, stream: &Stream) {
    let kind = hipMemcpyKind::hipMemcpyHostToDevice;
    ok(unsafe { hip().hipMemcpyAsync(to.0, from.0.cast(), 4 * from.1, kind, stream.0) });
}

#[test]
fn a_result_is_not_there_before_a_wait() {
    let _turn = turn();
    let (stream, buffer, host) = (Stream::new(), Buffer::of(&[1; 65]), Pinned::new(65));
    host.set(7);
    to_host(&host, &buffer, &stream);
    assert_eq!(host.get(), [7; 65], "the copy has not run");
    stream.wait();
    assert_eq!(host.get(), [1; 65]);
}

#[test]
fn a_copy_reads_pinned_memory_when_it_runs() {
    let _turn = turn();
    let (stream, buffer, host) = (Stream::new(), Buffer::new(63), Pinned::new(63));
    host.set(1);
    to_device(&buffer, &host, &stream);
    // There is no wait, so the copy has read nothing yet.
    host.set(2);
    stream.wait();
    assert_eq!(buffer.peek(63), [2; 63]);
}

#[test]
fn a_copy_from_pageable_memory_is_complete_when_the_call_returns() {
    let _turn = turn();
    let (stream, buffer) = (Stream::new(), Buffer::new(64));
    let mut values = vec![1_u32; 64];
    let kind = hipMemcpyKind::hipMemcpyHostToDevice;
    ok(unsafe { hip().hipMemcpyAsync(buffer.0, values.as_ptr().cast(), 256, kind, stream.0) });
    values.fill(2);
    assert_eq!(buffer.peek(64), [1; 64]);
}

#[test]
fn only_events_order_streams() {
    let _turn = turn();
    for ordered in [false, true] {
        let (first, second) = (Stream::new(), Stream::new());
        let (source, copy) = (Buffer::of(&[1; 100]), Buffer::of(&[9; 100]));
        source.fill(100, 2, &first);
        let event = event();
        ok(unsafe { hip().hipEventRecord(event, first.0) });
        if ordered {
            ok(unsafe { hip().hipStreamWaitEvent(second.0, event, 0) });
        }
        let kind = hipMemcpyKind::hipMemcpyDeviceToDevice;
        ok(unsafe { hip().hipMemcpyAsync(copy.0, source.0, 400, kind, second.0) });
        second.wait();
        // Nothing has demanded the fill.
        assert_eq!(copy.peek(100), [if ordered { 2 } else { 1 }; 100]);
        first.wait();
        ok(unsafe { hip().hipEventDestroy(event) });
    }
}

#[test]
fn the_default_stream_synchronises_only_with_blocking_streams() {
    let _turn = turn();
    let buffer = Buffer::of(&[1; 10]);
    let mut blocking = ptr::null_mut();
    ok(unsafe { hip().hipStreamCreate(&mut blocking) });
    ok(unsafe { hip().hipMemsetD32Async(buffer.0, 2, 10, blocking) });
    assert_eq!(buffer.peek(10), [2; 10], "the default stream waited");

    let apart = Stream::new();
    buffer.fill(10, 3, &apart);
    assert_eq!(buffer.peek(10), [2; 10], "the default stream did not wait");
    apart.wait();
    assert_eq!(buffer.peek(10), [3; 10]);

    // Conversely, a blocking stream waits for the default stream.
    ok(unsafe { hip().hipMemsetD32Async(buffer.0, 4, 10, ptr::null_mut()) });
    let copy = Buffer::new(10);
    let kind = hipMemcpyKind::hipMemcpyDeviceToDevice;
    ok(unsafe { hip().hipMemcpyAsync(copy.0, buffer.0, 40, kind, blocking) });
    ok(unsafe { hip().hipStreamSynchronize(blocking) });
    assert_eq!(copy.peek(10), [4; 10]);
    ok(unsafe { hip().hipStreamDestroy(blocking) });
}

#[test]
fn polling_comes_to_an_end() {
    let _turn = turn();
    let (stream, buffer) = (Stream::new(), Buffer::new(1000));
    buffer.fill(1000, 5, &stream);
    let event = event();
    ok(unsafe { hip().hipEventRecord(event, stream.0) });
    let mut asked = 0;
    while unsafe { hip().hipEventQuery(event) }.unwrap() == hipError_t::hipErrorNotReady {
        asked += 1;
        thread::sleep(Duration::from_micros(50));
    }
    assert!(asked > 0, "nothing had begun");
    assert_eq!(buffer.peek(1000), [5; 1000]);
    is(unsafe { hip().hipStreamQuery(stream.0) }, hipError_t::hipSuccess);
    ok(unsafe { hip().hipEventDestroy(event) });
}

#[test]
fn submitting_to_a_full_queue_waits() {
    let _turn = turn();
    let (stream, buffer, host) = (Stream::new(), Buffer::new(1), Pinned::new(1));
    host.set(0);
    for value in 0..10_000 {
        buffer.fill(1, value, &stream);
        to_host(&host, &buffer, &stream);
    }
    let so_far = host.get()[0];
    assert!(
        (1..9_999).contains(&so_far),
        "{so_far}: some has run, and not all"
    );
    stream.wait();
    assert_eq!(host.get(), [9_999]);
}

#[test]
fn event_times_are_ordered() {
    let _turn = turn();
    let stream = Stream::new();
    let (start, stop, untimed) = (event(), event(), {
        let mut event = ptr::null_mut();
        ok(unsafe { hip().hipEventCreateWithFlags(&mut event, hipEventDisableTiming) });
        event
    });
    let mut elapsed = -1.0;
    unsafe {
        is(
            hip().hipEventElapsedTime(&mut elapsed, start, stop),
            hipError_t::hipErrorInvalidHandle,
        );
        ok(hip().hipEventRecord(start, stream.0));
        ok(hip().hipLaunchHostFunc(stream.0, Some(sleep), ptr::null_mut()));
        ok(hip().hipEventRecord(stop, stream.0));
        ok(hip().hipEventRecord(untimed, stream.0));
        ok(hip().hipEventSynchronize(untimed));
        ok(hip().hipEventElapsedTime(&mut elapsed, start, stop));
        is(
            hip().hipEventElapsedTime(&mut elapsed, start, untimed),
            hipError_t::hipErrorInvalidHandle,
        );
        for event in [start, stop, untimed] {
            ok(hip().hipEventDestroy(event));
        }
    }
    assert!(elapsed >= 10.0, "{elapsed} ms");
}

unsafe extern "C" fn sleep(_: *mut c_void) {
    thread::sleep(Duration::from_millis(10));
}

#[test]
fn host_functions_run_in_order_with_their_argument() {
    let _turn = turn();
    static RAN: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn note(at: *mut c_void) {
        let seen = unsafe { *at.cast::<u32>() };
        RAN.store(seen as usize, Ordering::SeqCst);
    }
    let (stream, buffer, host) = (Stream::new(), Buffer::of(&[42]), Pinned::new(1));
    host.set(0);
    to_host(&host, &buffer, &stream);
    ok(unsafe { hip().hipLaunchHostFunc(stream.0, Some(note), host.0.cast()) });
    assert_eq!(RAN.load(Ordering::SeqCst), 0);
    stream.wait();
    assert_eq!(RAN.load(Ordering::SeqCst), 42);
}

#[test]
fn a_stream_waits_for_a_value_that_another_writes() {
    let _turn = turn();
    let (waiting, writing) = (Stream::new(), Stream::new());
    let (flag, result) = (Buffer::of(&[0]), Buffer::of(&[0]));
    ok(unsafe { hip().hipStreamWaitValue32(waiting.0, flag.0, 3, 1, u32::MAX) });
    result.fill(1, 8, &waiting);
    ok(unsafe { hip().hipStreamWriteValue32(writing.0, flag.0, 3, 0) });
    waiting.wait();
    assert_eq!(result.peek(1), [8]);
}

#[test]
fn a_destroyed_stream_completes_its_work_and_its_handle_is_invalid() {
    let _turn = turn();
    let buffer = Buffer::of(&[1; 4]);
    let stream = Stream::new();
    let handle = stream.0;
    buffer.fill(4, 2, &stream);
    drop(stream);
    ok(unsafe { hip().hipDeviceSynchronize() });
    assert_eq!(buffer.peek(4), [2; 4]);
    is(
        unsafe { hip().hipStreamSynchronize(handle) },
        hipError_t::hipErrorInvalidHandle,
    );
}

#[test]
fn many_threads_share_a_device() {
    let _turn = turn();
    static WRONG: AtomicBool = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..4_i32 {
            scope.spawn(move || {
                let (stream, buffer, host) = (Stream::new(), Buffer::new(257), Pinned::new(257));
                for round in 0..50 {
                    let value = 1000 * thread + round;
                    buffer.fill(257, value, &stream);
                    to_host(&host, &buffer, &stream);
                    stream.wait();
                    WRONG.fetch_or(host.get() != [value.cast_unsigned(); 257], Ordering::SeqCst);
                }
            });
        }
    });
    assert!(!WRONG.load(Ordering::SeqCst));
}

#[test]
fn a_stream_has_a_priority_within_the_devices_range() {
    let (mut least, mut greatest) = (7, 7);
    ok(unsafe { hip().hipDeviceGetStreamPriorityRange(&mut least, &mut greatest) });
    assert!(greatest < least, "a smaller number is a higher priority");
    for (wanted, found) in [
        (greatest, greatest),
        (least, least),
        (least + 5, least),
        (greatest - 5, greatest),
    ] {
        let (mut stream, mut priority, mut flags) = (ptr::null_mut(), 7, 7);
        unsafe {
            ok(hip().hipStreamCreateWithPriority(&mut stream, hipStreamNonBlocking, wanted));
            ok(hip().hipStreamGetPriority(stream, &mut priority));
            ok(hip().hipStreamGetFlags(stream, &mut flags));
            ok(hip().hipStreamDestroy(stream));
        }
        assert_eq!((priority, flags), (found, hipStreamNonBlocking));
    }
}

#[test]
fn a_stream_may_be_restricted_to_some_compute_units() {
    let _turn = turn();
    let (mut stream, mut mask) = (ptr::null_mut(), [7_u32; 11]);
    unsafe {
        // The MI300X has 304 compute units, which take nine and a half words.
        ok(hip().hipExtStreamGetCUMask(ptr::null_mut(), 11, mask.as_mut_ptr()));
        assert_eq!((&mask[..9], &mask[9..]), (&[u32::MAX; 9][..], &[0xffff, 7][..]));
        is(
            hip().hipExtStreamGetCUMask(ptr::null_mut(), 9, mask.as_mut_ptr()),
            hipError_t::hipErrorInvalidValue,
        );
        ok(hip().hipExtStreamCreateWithCUMask(&mut stream, 2, [0xff, 0x8000_0000].as_ptr()));
        ok(hip().hipExtStreamGetCUMask(stream, 10, mask.as_mut_ptr()));
        assert_eq!(mask, [0xff, 0x8000_0000, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
        let buffer = Buffer::new(4);
        ok(hip().hipMemsetD32Async(buffer.0, 3, 4, stream));
        ok(hip().hipStreamSynchronize(stream));
        assert_eq!(buffer.peek(4), [3; 4]);
        ok(hip().hipStreamDestroy(stream));
        is(
            hip().hipExtStreamCreateWithCUMask(&mut stream, 1, [0].as_ptr()),
            hipError_t::hipErrorInvalidValue,
        );
    }
}
