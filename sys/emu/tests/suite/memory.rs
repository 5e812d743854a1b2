//! Allocations, and copies within and beyond them.

use std::ptr;

use hipvit_sys::hip::{hipError_t, hipMemcpyKind, hipMemoryType, hipPointerAttribute_t};

use crate::{Buffer, Pinned, Stream, has, hip, is, ok, turn};

#[test]
fn fresh_memory_is_poison() {
    let _turn = turn();
    let buffer = Buffer::new(64);
    let words = buffer.peek(64);
    assert!(
        words.iter().all(|&word| word == words[0] && word != 0),
        "{words:x?}"
    );
}

#[test]
fn rows_are_copied_with_their_pitches() {
    let _turn = turn();
    let (mut at, mut pitch) = (ptr::null_mut(), 0);
    let rows: Vec<u8> = (0..7 * 13).collect();
    let mut back = vec![0xee_u8; 7 * 16];
    unsafe {
        ok(hip().hipMallocPitch(&mut at, &mut pitch, 13, 7));
        assert_eq!(pitch, 256);
        let up = hipMemcpyKind::hipMemcpyHostToDevice;
        ok(hip().hipMemcpy2D(at, pitch, rows.as_ptr().cast(), 13, 13, 7, up));
        let down = hipMemcpyKind::hipMemcpyDeviceToHost;
        ok(hip().hipMemcpy2D(back.as_mut_ptr().cast(), 16, at, pitch, 13, 7, down));
        // A pitch that is smaller than a row.
        is(
            hip().hipMemcpy2D(at, 12, rows.as_ptr().cast(), 13, 13, 7, up),
            hipError_t::hipErrorInvalidPitchValue,
        );
        ok(hip().hipFree(at));
    }
    for (row, wanted) in back.chunks(16).zip(rows.chunks(13)) {
        assert_eq!((&row[..13], &row[13..]), (wanted, &[0xee; 3][..]));
    }
}

#[test]
fn copies_out_of_bounds_are_refused() {
    let _turn = turn();
    let buffer = Buffer::new(16);
    let mut host = [0_u32; 32];
    let down = hipMemcpyKind::hipMemcpyDeviceToHost;
    unsafe {
        let status = hip().hipMemcpy(host.as_mut_ptr().cast(), buffer.0, 65, down);
        is(status, hipError_t::hipErrorInvalidValue);
        is(hip().hipMemset(buffer.0, 0, 65), hipError_t::hipErrorInvalidValue);
        is(
            hip().hipMemset(host.as_mut_ptr().cast(), 0, 4),
            hipError_t::hipErrorInvalidValue,
        );
        is(
            hip().hipMemcpy(buffer.0, host.as_ptr().cast(), 64, down),
            hipError_t::hipErrorInvalidValue,
        );
        is(hip().hipFree(buffer.0.add(4)), hipError_t::hipErrorInvalidValue);
        // The device stays usable.
        ok(hip().hipDeviceSynchronize());
    }
}

#[test]
fn freed_memory_is_not_accessible() {
    let _turn = turn();
    let buffer = Buffer::new(16);
    let at = buffer.0;
    drop(buffer);
    let mut host = [0_u32; 16];
    let down = hipMemcpyKind::hipMemcpyDeviceToHost;
    unsafe {
        is(hip().hipFree(at), hipError_t::hipErrorInvalidValue);
        is(
            hip().hipMemcpy(host.as_mut_ptr().cast(), at, 64, down),
            hipError_t::hipErrorInvalidValue,
        );
    }
}

#[test]
fn a_devices_memory_is_limited() {
    let settings = [("HIP_EMU_MEMORY", "1M")];
    if !has(&settings, "memory::a_devices_memory_is_limited") {
        return;
    }
    let (mut first, mut second, mut free, mut total) = (ptr::null_mut(), ptr::null_mut(), 0, 0);
    unsafe {
        ok(hip().hipMalloc(&mut first, 1 << 19));
        is(
            hip().hipMalloc(&mut second, (1 << 19) + 1),
            hipError_t::hipErrorOutOfMemory,
        );
        assert!(second.is_null());
        ok(hip().hipMemGetInfo(&mut free, &mut total));
        assert_eq!((free, total), (1 << 19, 1 << 20));
        ok(hip().hipFree(first));
        ok(hip().hipMalloc(&mut second, 1 << 20));
        ok(hip().hipFree(second));
        // The host's memory is not the device's.
        ok(hip().hipHostMalloc(&mut first, 2 << 20, 0));
        ok(hip().hipHostFree(first));
    }
}

#[test]
fn pointer_attributes() {
    let _turn = turn();
    let (buffer, pinned) = (Buffer::new(8), Pinned::new(8));
    let mut own = vec![0_u64; 1024];
    let about = |pointer: *const std::ffi::c_void| {
        let mut attributes = hipPointerAttribute_t::default();
        ok(unsafe { hip().hipPointerGetAttributes(&mut attributes, pointer) });
        attributes
    };
    let device = about(unsafe { buffer.0.add(20) });
    assert_eq!(
        (device.type_, device.device),
        (hipMemoryType::hipMemoryTypeDevice, 0)
    );
    assert!(device.hostPointer.is_null());
    assert_eq!(about(pinned.0.cast()).type_, hipMemoryType::hipMemoryTypeHost);

    let at = own.as_mut_ptr().cast();
    assert_eq!(about(at).type_, hipMemoryType::hipMemoryTypeUnregistered);
    unsafe {
        ok(hip().hipHostRegister(at, 8192, 0));
        assert_eq!(about(at).type_, hipMemoryType::hipMemoryTypeHost);
        is(
            hip().hipHostRegister(at, 8192, 0),
            hipError_t::hipErrorHostMemoryAlreadyRegistered,
        );
        ok(hip().hipHostUnregister(at));
        is(
            hip().hipHostUnregister(at),
            hipError_t::hipErrorHostMemoryNotRegistered,
        );
    }
    assert_eq!(about(at).type_, hipMemoryType::hipMemoryTypeUnregistered);
    assert!(
        own.iter().all(|&word| word == 0),
        "the program's memory is left as it is"
    );
    // Unregistered, it is pageable memory again, whatever it holds.
    own.fill(7 | 7 << 32);
    let kind = hipMemcpyKind::hipMemcpyHostToDevice;
    ok(unsafe { hip().hipMemcpy(buffer.0, own.as_ptr().cast(), 32, kind) });
    assert_eq!(buffer.peek(8), [7; 8]);
}

#[test]
fn memory_can_be_freed_in_order_of_a_stream() {
    let _turn = turn();
    let (stream, host) = (Stream::new(), Pinned::new(32));
    let mut at = ptr::null_mut();
    unsafe {
        ok(hip().hipMallocAsync(&mut at, 128, stream.0));
        ok(hip().hipMemsetD32Async(at, 6, 32, stream.0));
        let down = hipMemcpyKind::hipMemcpyDeviceToHost;
        ok(hip().hipMemcpyAsync(host.0.cast(), at, 128, down, stream.0));
        ok(hip().hipFreeAsync(at, stream.0));
        stream.wait();
        is(hip().hipFree(at), hipError_t::hipErrorInvalidValue);
    }
    assert_eq!(host.get(), [6; 32]);
}

#[test]
fn two_devices_copy_between_them() {
    let _turn = turn();
    let here = Buffer::of(&[3; 65]);
    let (mut can, mut status) = (0, [hipError_t::hipSuccess; 2]);
    unsafe {
        ok(hip().hipDeviceCanAccessPeer(&mut can, 0, 1));
        assert_eq!(can, 1);
        ok(hip().hipSetDevice(1));
        let there = Buffer::new(65);
        ok(hip().hipMemcpyPeer(there.0, 1, here.0, 0, 260));
        assert_eq!(there.peek(65), [3; 65]);
        for status in &mut status {
            *status = hip().hipDeviceEnablePeerAccess(0, 0).expect("exported");
        }
        ok(hip().hipDeviceDisablePeerAccess(0));
        drop(there);
        ok(hip().hipSetDevice(0));
    }
    assert_eq!(
        status,
        [
            hipError_t::hipSuccess,
            hipError_t::hipErrorPeerAccessAlreadyEnabled
        ]
    );
}
