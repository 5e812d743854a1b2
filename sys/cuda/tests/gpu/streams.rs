//! Streams, events and functions of the host in a stream.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use hipvit_sys::hip::{hipError_t, hipStreamNonBlocking};

use crate::Outcome;
use crate::device::{Gpu, is, ok};

#[test]
fn streams_and_events() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let bytes = 256 << 20;
    let memory = gpu.upload(&vec![0_u8; bytes])?;
    let (mut stream, mut start, mut stop) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let mut milliseconds = 0.0;
    // SAFETY: the handles live from their creation to their destruction here, and nothing is destroyed before the stop
    // event was waited for; the memory has this many bytes and outlives them.
    unsafe {
        ok(hip.hipStreamCreateWithFlags(&mut stream, hipStreamNonBlocking))?;
        ok(hip.hipEventCreate(&mut start))?;
        ok(hip.hipEventCreate(&mut stop))?;
        ok(hip.hipMemsetAsync(memory.at, 1, bytes, stream))?;
        ok(hip.hipEventRecord(start, stream))?;
        ok(hip.hipMemsetAsync(memory.at, 2, bytes, stream))?;
        ok(hip.hipEventRecord(stop, stream))?;
        ok(hip.hipStreamWaitEvent(ptr::null_mut(), stop, 0))?;
        ok(hip.hipEventSynchronize(stop))?;
        ok(hip.hipEventQuery(stop))?;
        ok(hip.hipEventElapsedTime(&mut milliseconds, start, stop))?;
        ok(hip.hipEventDestroy(start))?;
        ok(hip.hipEventDestroy(stop))?;
        ok(hip.hipStreamDestroy(stream))?;
    }
    println!(
        "256 MiB filled in {milliseconds:.3} ms, {:.2} TB/s",
        bytes as f32 / milliseconds / 1e9
    );
    if milliseconds <= 0.0 || milliseconds >= 1000.0 {
        return Err(format!("{milliseconds} ms"));
    }
    Ok(())
}

#[test]
fn streams_have_priorities() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let hip = gpu.hip()?;
    let (mut least, mut greatest) = (0, 0);
    // SAFETY: the call writes two ints.
    ok(unsafe { hip.hipDeviceGetStreamPriorityRange(&mut least, &mut greatest) })?;
    println!("priorities from {least} to {greatest}");
    // A lower number is a higher priority.
    if greatest > least {
        return Err(format!("priorities from {least} to {greatest}"));
    }
    // The second is out of the range, and limited to it.
    for (wanted, expected) in [(greatest, greatest), (greatest - 100, greatest), (least, least)] {
        let (mut stream, mut priority) = (ptr::null_mut(), i32::MAX);
        // SAFETY: the stream lives until it is destroyed here; the call between writes one int.
        unsafe {
            ok(hip.hipStreamCreateWithPriority(&mut stream, hipStreamNonBlocking, wanted))?;
            ok(hip.hipStreamGetPriority(stream, &mut priority))?;
            ok(hip.hipStreamDestroy(stream))?;
        }
        if priority != expected {
            return Err(format!("priority {priority} for {wanted}"));
        }
    }
    Ok(())
}

#[test]
fn masks_of_compute_units_are_amds() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    if !gpu.is_nvidia() {
        println!("skipped: not an NVIDIA device");
        return Ok(());
    }
    let mut stream = ptr::null_mut();
    // SAFETY: the call would write one handle, and reads one number.
    let created = unsafe { gpu.hip()?.hipExtStreamCreateWithCUMask(&mut stream, 1, &1) };
    is(created, hipError_t::hipErrorNotSupported)
}

#[test]
fn host_function() -> Outcome {
    static CALLED: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn call(data: *mut c_void) {
        CALLED.store(data.addr() as u32, Ordering::SeqCst);
    }
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    // SAFETY: the function follows no pointer: its data is a number.
    ok(unsafe {
        gpu.hip()?
            .hipLaunchHostFunc(ptr::null_mut(), Some(call), ptr::without_provenance_mut(77))
    })?;
    gpu.synchronize()?;
    match CALLED.load(Ordering::SeqCst) {
        77 => Ok(()),
        other => Err(format!("the argument is {other}")),
    }
}
