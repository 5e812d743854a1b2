//! Streams. HIP's two special streams, legacy and per thread, have the driver's handles.

use std::ffi::c_void;

use cudarc::driver::sys::CUstreamCallback;
use hipvit_sys::hip::{
    self, hipDevice_t, hipError_t, hipEvent_t, hipHostFn_t, hipStream_t, hipStreamCallback_t,
};

use super::pointer::address;
use super::{cu, hip};

/// HIP waits for the masked bits; the driver has no mask, so only a full one is supported.
fn whole(mask_is_whole: bool) -> Result<(), hipError_t> {
    if mask_is_whole {
        Ok(())
    } else {
        Err(hipError_t::hipErrorNotSupported)
    }
}

hip! {
    fn hipStreamCreate(stream: *mut hipStream_t) {
        cu!(cuStreamCreate(stream.cast(), hip::hipStreamDefault))
    }

    fn hipStreamCreateWithFlags(stream: *mut hipStream_t, flags: u32) {
        cu!(cuStreamCreate(stream.cast(), flags))
    }

    fn hipStreamCreateWithPriority(stream: *mut hipStream_t, flags: u32, priority: i32) {
        cu!(cuStreamCreateWithPriority(stream.cast(), flags, priority))
    }

    fn hipStreamDestroy(stream: hipStream_t) {
        if stream.is_null() {
            return Err(hipError_t::hipErrorInvalidResourceHandle);
        }
        cu!(cuStreamDestroy_v2(stream.cast()))
    }

    fn hipStreamQuery(stream: hipStream_t) {
        cu!(cuStreamQuery(stream.cast()))
    }

    fn hipStreamSynchronize(stream: hipStream_t) {
        cu!(cuStreamSynchronize(stream.cast()))
    }

    fn hipStreamWaitEvent(stream: hipStream_t, event: hipEvent_t, flags: u32) {
        cu!(cuStreamWaitEvent(stream.cast(), event.cast(), flags))
    }

    fn hipStreamGetFlags(stream: hipStream_t, flags: *mut u32) {
        cu!(cuStreamGetFlags(stream.cast(), flags))
    }

    fn hipStreamGetId(stream: hipStream_t, id: *mut u64) {
        cu!(cuStreamGetId(stream.cast(), id))
    }

    fn hipStreamGetPriority(stream: hipStream_t, priority: *mut i32) {
        cu!(cuStreamGetPriority(stream.cast(), priority))
    }

    fn hipStreamGetDevice(stream: hipStream_t, device: *mut hipDevice_t) {
        cu!(cuStreamGetDevice(stream.cast(), device))
    }

    fn hipLaunchHostFunc(stream: hipStream_t, function: hipHostFn_t, data: *mut c_void) {
        cu!(cuLaunchHostFunc(stream.cast(), function, data))
    }

    fn hipStreamAddCallback(stream: hipStream_t, callback: hipStreamCallback_t, data: *mut c_void, flags: u32) {
        // Both have the same C signature: a handle, a status that is an unsigned int, a pointer.
        let callback = std::mem::transmute::<hipStreamCallback_t, CUstreamCallback>(callback);
        cu!(cuStreamAddCallback(stream.cast(), callback, data, flags))
    }

    fn hipStreamWaitValue32(stream: hipStream_t, at: *mut c_void, value: u32, flags: u32, mask: u32) {
        whole(mask == u32::MAX)?;
        cu!(cuStreamWaitValue32_v2(stream.cast(), address(at), value, flags))
    }

    fn hipStreamWaitValue64(stream: hipStream_t, at: *mut c_void, value: u64, flags: u32, mask: u64) {
        whole(mask == u64::MAX)?;
        cu!(cuStreamWaitValue64_v2(stream.cast(), address(at), value, flags))
    }

    fn hipStreamWriteValue32(stream: hipStream_t, at: *mut c_void, value: u32, flags: u32) {
        cu!(cuStreamWriteValue32_v2(stream.cast(), address(at), value, flags))
    }

    fn hipStreamWriteValue64(stream: hipStream_t, at: *mut c_void, value: u64, flags: u32) {
        cu!(cuStreamWriteValue64_v2(stream.cast(), address(at), value, flags))
    }

    fn hipProfilerStart() {
        cu!(cuProfilerStart())
    }

    fn hipProfilerStop() {
        cu!(cuProfilerStop())
    }
}
