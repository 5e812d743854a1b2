//! Allocations: device, host, managed, pooled, and shared between processes.

use std::ffi::c_void;

use hipvit_sys::hip::{
    self, hipDeviceptr_t, hipError_t, hipIpcMemHandle_t, hipMemAccessDesc, hipMemAccessFlags, hipMemLocation,
    hipMemPool_t, hipMemPoolAttr, hipMemPoolProps, hipMemoryAdvise, hipStream_t,
};

use super::pointer::address;
use super::{cu, hip};

/// Host memory is always coherent and portable here, and NUMA placement is the user's, so HIP's other flags are met without
/// them. The three flags that the driver has are the same bits.
fn host_flags(flags: u32) -> u32 {
    (flags & 7) | hip::hipHostMallocPortable | hip::hipHostMallocMapped
}

/// Allocates by `allocate`; a null pointer for a size of 0.
///
/// # Safety
/// `to` is null or may be written.
unsafe fn allocate_if_any(
    to: *mut *mut c_void,
    size: usize,
    allocate: impl FnOnce() -> Result<(), hipError_t>,
) -> Result<(), hipError_t> {
    if to.is_null() {
        return Err(hipError_t::hipErrorInvalidValue);
    }
    // SAFETY: as the caller says.
    unsafe { to.write(std::ptr::null_mut()) };
    if size == 0 { Ok(()) } else { allocate() }
}

/// # Safety
/// `to` is null or may be written.
unsafe fn host_alloc(to: *mut *mut c_void, size: usize, flags: u32) -> Result<(), hipError_t> {
    // SAFETY: as the caller says; it is not null when the driver writes to it.
    unsafe { allocate_if_any(to, size, || cu!(cuMemHostAlloc(to, size, host_flags(flags)))) }
}

/// # Safety
/// `to` is null or may be written.
unsafe fn alloc(to: *mut *mut c_void, size: usize) -> Result<(), hipError_t> {
    // SAFETY: as the caller says; it is not null when the driver writes to it.
    unsafe { allocate_if_any(to, size, || cu!(cuMemAlloc_v2(to.cast(), size))) }
}

hip! {
    fn hipMalloc(to: *mut *mut c_void, size: usize) {
        alloc(to, size)
    }

    /// Fine-grained, uncached and contiguous memory are AMD's only.
    fn hipExtMallocWithFlags(to: *mut *mut c_void, size: usize, flags: u32) {
        if flags != hip::hipDeviceMallocDefault {
            return Err(hipError_t::hipErrorNotSupported);
        }
        alloc(to, size)
    }

    fn hipFree(memory: *mut c_void) {
        if memory.is_null() { Ok(()) } else { cu!(cuMemFree_v2(address(memory))) }
    }

    fn hipMallocPitch(to: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) {
        // 16 bytes: the largest element of a coalesced access, as CUDA's runtime uses.
        cu!(cuMemAllocPitch_v2(to.cast(), pitch, width, height, 16))
    }

    fn hipHostMalloc(to: *mut *mut c_void, size: usize, flags: u32) {
        host_alloc(to, size, flags)
    }

    fn hipHostAlloc(to: *mut *mut c_void, size: usize, flags: u32) {
        host_alloc(to, size, flags)
    }

    fn hipHostFree(memory: *mut c_void) {
        if memory.is_null() { Ok(()) } else { cu!(cuMemFreeHost(memory)) }
    }

    fn hipHostGetDevicePointer(to: *mut *mut c_void, memory: *mut c_void, flags: u32) {
        cu!(cuMemHostGetDevicePointer_v2(to.cast(), memory, flags))
    }

    fn hipHostGetFlags(flags: *mut u32, memory: *mut c_void) {
        cu!(cuMemHostGetFlags(flags, memory))
    }

    fn hipHostRegister(memory: *mut c_void, size: usize, flags: u32) {
        cu!(cuMemHostRegister_v2(memory, size, flags & 15))
    }

    fn hipHostUnregister(memory: *mut c_void) {
        cu!(cuMemHostUnregister(memory))
    }

    fn hipMallocManaged(to: *mut *mut c_void, size: usize, flags: u32) {
        cu!(cuMemAllocManaged(to.cast(), size, flags))
    }

    fn hipMemPrefetchAsync(memory: *const c_void, count: usize, device: i32, stream: hipStream_t) {
        cu!(cuMemPrefetchAsync(address(memory), count, device, stream.cast()))
    }

    /// Coarse-grained memory is AMD's only.
    fn hipMemAdvise(memory: *const c_void, count: usize, advice: hipMemoryAdvise, device: i32) {
        if advice.0 >= hipMemoryAdvise::hipMemAdviseSetCoarseGrain.0 {
            return Err(hipError_t::hipErrorNotSupported);
        }
        cu!(cuMemAdvise(address(memory), count, advice.0, device))
    }

    fn hipMemGetInfo(free: *mut usize, total: *mut usize) {
        cu!(cuMemGetInfo_v2(free, total))
    }

    fn hipMemPtrGetInfo(memory: *mut c_void, size: *mut usize) {
        let mut base = 0;
        cu!(cuMemGetAddressRange_v2(&mut base, size, address(memory)))
    }

    fn hipMemGetAddressRange(base: *mut hipDeviceptr_t, size: *mut usize, memory: hipDeviceptr_t) {
        cu!(cuMemGetAddressRange_v2(base.cast(), size, address(memory)))
    }

    fn hipMallocAsync(to: *mut *mut c_void, size: usize, stream: hipStream_t) {
        cu!(cuMemAllocAsync(to.cast(), size, stream.cast()))
    }

    fn hipMallocFromPoolAsync(to: *mut *mut c_void, size: usize, pool: hipMemPool_t, stream: hipStream_t) {
        cu!(cuMemAllocFromPoolAsync(to.cast(), size, pool.cast(), stream.cast()))
    }

    fn hipFreeAsync(memory: *mut c_void, stream: hipStream_t) {
        cu!(cuMemFreeAsync(address(memory), stream.cast()))
    }

    fn hipMemPoolCreate(pool: *mut hipMemPool_t, properties: *const hipMemPoolProps) {
        cu!(cuMemPoolCreate(pool.cast(), properties.cast()))
    }

    fn hipMemPoolDestroy(pool: hipMemPool_t) {
        cu!(cuMemPoolDestroy(pool.cast()))
    }

    fn hipMemPoolTrimTo(pool: hipMemPool_t, keep: usize) {
        cu!(cuMemPoolTrimTo(pool.cast(), keep))
    }

    fn hipMemPoolSetAttribute(pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void) {
        cu!(cuMemPoolSetAttribute(pool.cast(), attribute.0, value))
    }

    fn hipMemPoolGetAttribute(pool: hipMemPool_t, attribute: hipMemPoolAttr, value: *mut c_void) {
        cu!(cuMemPoolGetAttribute(pool.cast(), attribute.0, value))
    }

    fn hipMemPoolSetAccess(pool: hipMemPool_t, accesses: *const hipMemAccessDesc, count: usize) {
        cu!(cuMemPoolSetAccess(pool.cast(), accesses.cast(), count))
    }

    fn hipMemPoolGetAccess(flags: *mut hipMemAccessFlags, pool: hipMemPool_t, location: *mut hipMemLocation) {
        cu!(cuMemPoolGetAccess(flags.cast(), pool.cast(), location.cast()))
    }

    fn hipIpcGetMemHandle(handle: *mut hipIpcMemHandle_t, memory: *mut c_void) {
        cu!(cuIpcGetMemHandle(handle.cast(), address(memory)))
    }

    fn hipIpcOpenMemHandle(to: *mut *mut c_void, handle: hipIpcMemHandle_t, flags: u32) {
        // Both are 64 opaque bytes.
        let handle = std::mem::transmute::<hipIpcMemHandle_t, cudarc::driver::sys::CUipcMemHandle>(handle);
        cu!(cuIpcOpenMemHandle_v2(to.cast(), handle, flags))
    }

    fn hipIpcCloseMemHandle(memory: *mut c_void) {
        cu!(cuIpcCloseMemHandle(address(memory)))
    }
}

/// Structures passed through to the driver have the same layout.
const _: () = {
    use cudarc::driver::sys;
    assert!(size_of::<hipMemPoolProps>() == size_of::<sys::CUmemPoolProps>());
    assert!(size_of::<hipMemAccessDesc>() == size_of::<sys::CUmemAccessDesc>());
    assert!(size_of::<hipMemLocation>() == size_of::<sys::CUmemLocation>());
};
