//! Copies and fills.

use std::ffi::c_void;

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype};
use hip_provider::hip::{MemoryKind, copy_target_and_source};
use hipvit_sys::hip::{hipDeviceptr_t, hipError_t, hipMemcpyKind, hipStream_t};

use super::pointer::address;
use super::{cu, hip};

/// Copies in stream order. The direction is passed on to the driver, which does not know host memory that is not
/// registered.
unsafe fn copy_async(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> Result<(), hipError_t> {
    let stream = stream.cast();
    // SAFETY: as the caller's call demands.
    unsafe {
        match kind {
            _ if size == 0 => Ok(()),
            hipMemcpyKind::hipMemcpyHostToDevice => {
                cu!(cuMemcpyHtoDAsync_v2(address(to), from, size, stream))
            }
            hipMemcpyKind::hipMemcpyDeviceToHost => {
                cu!(cuMemcpyDtoHAsync_v2(to, address(from), size, stream))
            }
            hipMemcpyKind::hipMemcpyDeviceToDevice | hipMemcpyKind::hipMemcpyDeviceToDeviceNoCU => {
                cu!(cuMemcpyDtoDAsync_v2(address(to), address(from), size, stream))
            }
            hipMemcpyKind::hipMemcpyHostToHost | hipMemcpyKind::hipMemcpyDefault => {
                cu!(cuMemcpyAsync(address(to), address(from), size, stream))
            }
            _ => Err(hipError_t::hipErrorInvalidMemcpyDirection),
        }
    }
}

unsafe fn copy(
    to: *mut c_void,
    from: *const c_void,
    size: usize,
    kind: hipMemcpyKind,
) -> Result<(), hipError_t> {
    // SAFETY: as the caller's call demands.
    unsafe {
        match kind {
            _ if size == 0 => Ok(()),
            hipMemcpyKind::hipMemcpyHostToDevice => cu!(cuMemcpyHtoD_v2(address(to), from, size)),
            hipMemcpyKind::hipMemcpyDeviceToHost => cu!(cuMemcpyDtoH_v2(to, address(from), size)),
            hipMemcpyKind::hipMemcpyDeviceToDevice | hipMemcpyKind::hipMemcpyDeviceToDeviceNoCU => {
                cu!(cuMemcpyDtoD_v2(address(to), address(from), size))
            }
            hipMemcpyKind::hipMemcpyHostToHost | hipMemcpyKind::hipMemcpyDefault => {
                cu!(cuMemcpy(address(to), address(from), size))
            }
            _ => Err(hipError_t::hipErrorInvalidMemcpyDirection),
        }
    }
}

/// The driver's memory types that a copy of this kind reads and writes.
pub(super) fn memory_types(kind: hipMemcpyKind) -> Result<(CUmemorytype, CUmemorytype), hipError_t> {
    let of_driver = |memory| match memory {
        MemoryKind::Host => CUmemorytype::CU_MEMORYTYPE_HOST,
        MemoryKind::Device => CUmemorytype::CU_MEMORYTYPE_DEVICE,
        MemoryKind::Any => CUmemorytype::CU_MEMORYTYPE_UNIFIED,
    };
    let (target, source) = copy_target_and_source(kind)?;
    Ok((of_driver(source), of_driver(target)))
}

/// Rows of memory, which begin `pitch` bytes apart.
#[derive(Clone, Copy)]
struct Pitched<P> {
    pointer: P,
    pitch: usize,
}

/// The driver's parameters of a two-dimensional copy.
fn rows(
    to: Pitched<*mut c_void>,
    from: Pitched<*const c_void>,
    (width, height): (usize, usize),
    kind: hipMemcpyKind,
) -> Result<CUDA_MEMCPY2D, hipError_t> {
    let (source, target) = memory_types(kind)?;
    Ok(CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: source,
        srcHost: from.pointer,
        srcDevice: address(from.pointer),
        srcArray: std::ptr::null_mut(),
        srcPitch: from.pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: target,
        dstHost: to.pointer,
        dstDevice: address(to.pointer),
        dstArray: std::ptr::null_mut(),
        dstPitch: to.pitch,
        WidthInBytes: width,
        Height: height,
    })
}

/// The byte that C's memset takes from its int.
fn byte(value: i32) -> u8 {
    value.to_le_bytes()[0]
}

hip_provider::export_copies! { hip, copy, copy_async }

hip! {
    fn hipMemcpyWithStream(
        to: *mut c_void, from: *const c_void, size: usize, kind: hipMemcpyKind, stream: hipStream_t,
    ) {
        copy_async(to, from, size, kind, stream)?;
        cu!(cuStreamSynchronize(stream.cast()))
    }

    fn hipMemcpy2D(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: hipMemcpyKind,
    ) {
        cu!(cuMemcpy2DUnaligned_v2(&rows(Pitched { pointer: to, pitch: to_pitch }, Pitched { pointer: from, pitch: from_pitch }, (width, height), kind)?))
    }

    fn hipMemcpy2DAsync(
        to: *mut c_void, to_pitch: usize, from: *const c_void, from_pitch: usize, width: usize, height: usize,
        kind: hipMemcpyKind, stream: hipStream_t,
    ) {
        cu!(cuMemcpy2DAsync_v2(&rows(Pitched { pointer: to, pitch: to_pitch }, Pitched { pointer: from, pitch: from_pitch }, (width, height), kind)?, stream.cast()))
    }

    fn hipMemset(to: *mut c_void, value: i32, size: usize) {
        cu!(cuMemsetD8_v2(address(to), byte(value), size))
    }

    fn hipMemsetAsync(to: *mut c_void, value: i32, size: usize, stream: hipStream_t) {
        cu!(cuMemsetD8Async(address(to), byte(value), size, stream.cast()))
    }

    fn hipMemsetD8(to: hipDeviceptr_t, value: u8, count: usize) {
        cu!(cuMemsetD8_v2(address(to), value, count))
    }

    fn hipMemsetD8Async(to: hipDeviceptr_t, value: u8, count: usize, stream: hipStream_t) {
        cu!(cuMemsetD8Async(address(to), value, count, stream.cast()))
    }

    fn hipMemsetD16(to: hipDeviceptr_t, value: u16, count: usize) {
        cu!(cuMemsetD16_v2(address(to), value, count))
    }

    fn hipMemsetD16Async(to: hipDeviceptr_t, value: u16, count: usize, stream: hipStream_t) {
        cu!(cuMemsetD16Async(address(to), value, count, stream.cast()))
    }

    fn hipMemsetD32(to: hipDeviceptr_t, value: i32, count: usize) {
        cu!(cuMemsetD32_v2(address(to), value.cast_unsigned(), count))
    }

    fn hipMemsetD32Async(to: hipDeviceptr_t, value: i32, count: usize, stream: hipStream_t) {
        cu!(cuMemsetD32Async(address(to), value.cast_unsigned(), count, stream.cast()))
    }

    fn hipMemset2D(to: *mut c_void, pitch: usize, value: i32, width: usize, height: usize) {
        cu!(cuMemsetD2D8_v2(address(to), pitch, byte(value), width, height))
    }

    fn hipMemset2DAsync(to: *mut c_void, pitch: usize, value: i32, width: usize, height: usize, stream: hipStream_t) {
        cu!(cuMemsetD2D8Async(address(to), pitch, byte(value), width, height, stream.cast()))
    }
}
