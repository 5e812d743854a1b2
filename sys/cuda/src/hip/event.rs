//! Events. The flags that the driver has are the same bits; the others are about AMD's caches and are dropped.

use hipvit_sys::hip::{self, hipEvent_t, hipIpcEventHandle_t, hipStream_t};

use super::{cu, hip};

const KNOWN: u32 = hip::hipEventBlockingSync | hip::hipEventDisableTiming | hip::hipEventInterprocess;

hip! {
    fn hipEventCreate(event: *mut hipEvent_t) {
        cu!(cuEventCreate(event.cast(), hip::hipEventDefault))
    }

    fn hipEventCreateWithFlags(event: *mut hipEvent_t, flags: u32) {
        cu!(cuEventCreate(event.cast(), flags & KNOWN))
    }

    fn hipEventRecord(event: hipEvent_t, stream: hipStream_t) {
        cu!(cuEventRecord(event.cast(), stream.cast()))
    }

    fn hipEventRecordWithFlags(event: hipEvent_t, stream: hipStream_t, flags: u32) {
        cu!(cuEventRecordWithFlags(event.cast(), stream.cast(), flags))
    }

    fn hipEventDestroy(event: hipEvent_t) {
        cu!(cuEventDestroy_v2(event.cast()))
    }

    fn hipEventSynchronize(event: hipEvent_t) {
        cu!(cuEventSynchronize(event.cast()))
    }

    fn hipEventQuery(event: hipEvent_t) {
        cu!(cuEventQuery(event.cast()))
    }

    fn hipEventElapsedTime(milliseconds: *mut f32, start: hipEvent_t, stop: hipEvent_t) {
        cu!(cuEventElapsedTime(milliseconds, start.cast(), stop.cast()))
    }

    fn hipIpcGetEventHandle(handle: *mut hipIpcEventHandle_t, event: hipEvent_t) {
        cu!(cuIpcGetEventHandle(handle.cast(), event.cast()))
    }

    fn hipIpcOpenEventHandle(event: *mut hipEvent_t, handle: hipIpcEventHandle_t) {
        // Both are 64 opaque bytes.
        let handle = std::mem::transmute::<hipIpcEventHandle_t, cudarc::driver::sys::CUipcEventHandle>(handle);
        cu!(cuIpcOpenEventHandle(event.cast(), handle))
    }
}
