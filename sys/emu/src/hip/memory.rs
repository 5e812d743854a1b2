//! Allocations: device, host, managed, pooled.
//!
//! There is one pool per device. `hipFreeAsync` frees memory in stream order.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use gcnrun::{Kind, MemoryError};
use hip_provider::hip::put;
use hipvit_sys::hip::{self, hipDeviceptr_t, hipError_t, hipMemPool_t, hipMemoryAdvise, hipStream_t};

use super::copy::address;
use super::machine::{self, Device, current, device, machine, memory};
use super::stream::{self, Stream};
use super::task::Task;
use super::{capture_mode, hip, queue};
use crate::faults::{Failure, report};

/// Record that the runtime keeps of an allocation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin {
    /// The thread's device at the time.
    pub(super) device: u32,
    pub(super) flags: u32,
    /// The program's own memory, which was registered.
    pub(super) registered: bool,
}

static ORIGINS: Mutex<BTreeMap<u64, Origin>> = Mutex::new(BTreeMap::new());

fn origins() -> std::sync::MutexGuard<'static, BTreeMap<u64, Origin>> {
    ORIGINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The record of the allocation that begins there.
pub(super) fn origin(begin: u64) -> Option<Origin> {
    origins().get(&begin).copied()
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

fn record(device: &Device, address: u64, flags: u32, registered: bool) {
    let origin = Origin {
        device: device.ordinal,
        flags,
        registered,
    };
    origins().insert(address, origin);
}

/// Memory of the thread's device.
fn allocate(size: usize) -> Result<*mut c_void, hipError_t> {
    let device = current()?;
    capture_mode::forbid_waiting()?;
    allocate_on(device, size)
}

fn allocate_on(device: &Device, size: usize) -> Result<*mut c_void, hipError_t> {
    let machine = machine()?;
    if size == 0 {
        return Ok(ptr::null_mut());
    }
    if machine.allocations.fires(machine.settings.faults.allocation) {
        return Err(hipError_t::hipErrorOutOfMemory);
    }
    let (total, bytes) = (machine.settings.memory, size as u64);
    let taken = device
        .used
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&used| used <= total)
        });
    taken.map_err(|_| hipError_t::hipErrorOutOfMemory)?;
    match machine.memory.allocate(bytes, Kind::Device(device.ordinal), 256) {
        Ok(address) => {
            record(device, address, 0, false);
            Ok(pointer(address))
        }
        Err(_) => {
            device.used.fetch_sub(bytes, Ordering::Relaxed);
            Err(hipError_t::hipErrorOutOfMemory)
        }
    }
}

/// Memory of the host or managed.
fn allocate_shared(size: usize, kind: Kind, flags: u32) -> Result<*mut c_void, hipError_t> {
    let device = current()?;
    capture_mode::forbid_waiting()?;
    if size == 0 {
        return Ok(ptr::null_mut());
    }
    let machine = machine()?;
    if machine.allocations.fires(machine.settings.faults.allocation) {
        return Err(hipError_t::hipErrorOutOfMemory);
    }
    let address = machine.memory.allocate(size as u64, kind, 4096);
    let address = address.map_err(|_| hipError_t::hipErrorOutOfMemory)?;
    record(device, address, flags, false);
    Ok(pointer(address))
}

/// Frees the allocation that begins at `address`, if its kind `fits`.
fn release(address: u64, fits: impl Fn(Kind) -> bool) -> Result<(), Failure> {
    let memory = memory()?;
    let found = memory.find(address).filter(|found| found.begin == address);
    let Some(found) = found.filter(|found| fits(found.kind)) else {
        return Err(Failure::from(hipError_t::hipErrorInvalidValue));
    };
    let freed = memory.free(address);
    if matches!(freed, Ok(()) | Err(MemoryError::Overrun { .. })) {
        origins().remove(&address);
        if let Kind::Device(owner) = found.kind
            && let Ok(owner) = device(owner as i32)
        {
            owner.used.fetch_sub(found.len, Ordering::Relaxed);
        }
    }
    freed.map_err(|error| Failure::new(hipError_t::hipErrorInvalidValue, error.to_string()))
}

/// Frees memory for a call. Waits for all work of the device that was current when the memory was allocated, as AMD's runtime
/// does, and reports errors. Does not wait for other devices, because their collectives may wait for this thread.
fn free(memory: *mut c_void, fits: impl Fn(Kind) -> bool) -> Result<(), hipError_t> {
    let chosen = machine::chosen()?;
    if memory.is_null() {
        return Ok(());
    }
    capture_mode::forbid_waiting()?;
    let owner = origin(address(memory)).map_or(chosen.ordinal, |origin| origin.device);
    queue::wait(&queue::ends(owner));
    release(address(memory), fits).map_err(|failure| {
        report(chosen.ordinal, "a free", &failure);
        failure.status
    })
}

/// A pool handle is this number plus the device's ordinal.
const POOLS: usize = 0x100;

fn pool(device: &Device) -> hipMemPool_t {
    ptr::without_provenance_mut(POOLS + device.ordinal as usize)
}

fn owner(pool: hipMemPool_t) -> Result<&'static Device, hipError_t> {
    let ordinal = pool
        .addr()
        .checked_sub(POOLS)
        .ok_or(hipError_t::hipErrorInvalidValue)?;
    device(ordinal as i32).map_err(|_| hipError_t::hipErrorInvalidValue)
}

/// Allocates at once, not in stream order: work that uses the memory too early is not detected.
fn allocate_in_order(stream: &Stream, owner: &Device, size: usize) -> Result<*mut c_void, hipError_t> {
    stream.device.alive()?;
    if stream.captured()?.is_some() {
        return Err(hipError_t::hipErrorNotSupported);
    }
    allocate_on(owner, size)
}

hip! {
    fn hipMalloc(to: *mut *mut c_void, size: usize) {
        put(to, ptr::null_mut())?;
        put(to, allocate(size)?)
    }

    fn hipExtMallocWithFlags(to: *mut *mut c_void, size: usize, flags: u32) {
        put(to, ptr::null_mut())?;
        let known = [
            hip::hipDeviceMallocDefault, hip::hipDeviceMallocFinegrained, hip::hipDeviceMallocUncached,
            hip::hipDeviceMallocContiguous,
        ];
        if !known.contains(&flags) {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        put(to, allocate(size)?)
    }

    /// The pitch is a multiple of 256 bytes.
    fn hipMallocPitch(to: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) {
        put(to, ptr::null_mut())?;
        let wide = width.checked_next_multiple_of(256).ok_or(hipError_t::hipErrorInvalidValue)?;
        let size = wide.checked_mul(height).ok_or(hipError_t::hipErrorInvalidValue)?;
        put(pitch, wide)?;
        put(to, allocate(size)?)
    }

    fn hipMallocManaged(to: *mut *mut c_void, size: usize, flags: u32) {
        put(to, ptr::null_mut())?;
        put(to, allocate_shared(size, Kind::Managed, flags)?)
    }

    fn hipHostMalloc(to: *mut *mut c_void, size: usize, flags: u32) {
        put(to, ptr::null_mut())?;
        put(to, allocate_shared(size, Kind::Pinned, flags)?)
    }

    fn hipHostAlloc(to: *mut *mut c_void, size: usize, flags: u32) {
        put(to, ptr::null_mut())?;
        put(to, allocate_shared(size, Kind::Pinned, flags)?)
    }

    fn hipFree(memory: *mut c_void) {
        free(memory, |kind| matches!(kind, Kind::Device(_) | Kind::Managed))
    }

    fn hipHostFree(memory: *mut c_void) {
        if origin(address(memory)).is_some_and(|origin| origin.registered) {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        free(memory, |kind| kind == Kind::Pinned)
    }

    fn hipHostRegister(memory: *mut c_void, size: usize, flags: u32) {
        let device = current()?;
        if memory.is_null() || size == 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let registered = machine()?.memory.register(memory.cast(), size as u64);
        let address = registered.map_err(|_| hipError_t::hipErrorHostMemoryAlreadyRegistered)?;
        record(device, address, flags, true);
        Ok(())
    }

    fn hipHostUnregister(memory: *mut c_void) {
        if !origin(address(memory)).is_some_and(|origin| origin.registered) {
            return Err(hipError_t::hipErrorHostMemoryNotRegistered);
        }
        free(memory, |kind| kind == Kind::Pinned)
    }

    /// Host addresses are device addresses.
    fn hipHostGetDevicePointer(to: *mut *mut c_void, host: *mut c_void, flags: u32) {
        if flags != 0 {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        match machine()?.memory.find(address(host)) {
            Some(found) if found.live && found.kind == Kind::Pinned => put(to, host),
            _ => Err(hipError_t::hipErrorInvalidValue),
        }
    }

    fn hipHostGetFlags(flags: *mut u32, host: *mut c_void) {
        let found = machine()?.memory.find(address(host)).filter(|found| found.kind == Kind::Pinned);
        let origin = found.and_then(|found| origin(found.begin));
        put(flags, origin.ok_or(hipError_t::hipErrorInvalidValue)?.flags)
    }

    fn hipMemGetInfo(free: *mut usize, total: *mut usize) {
        let device = current()?;
        let memory = machine()?.settings.memory;
        put(free, device.free(memory) as usize)?;
        put(total, memory as usize)
    }

    fn hipMemPtrGetInfo(memory: *mut c_void, size: *mut usize) {
        match machine()?.memory.find(address(memory)) {
            Some(found) if found.live && found.begin == address(memory) => put(size, found.len as usize),
            _ => Err(hipError_t::hipErrorInvalidValue),
        }
    }

    fn hipMemGetAddressRange(base: *mut hipDeviceptr_t, size: *mut usize, memory: hipDeviceptr_t) {
        match machine()?.memory.find(address(memory)) {
            Some(found) if found.live => {
                put(base, pointer(found.begin))?;
                put(size, found.len as usize)
            }
            _ => Err(hipError_t::hipErrorNotFound),
        }
    }

    /// Managed memory does not migrate.
    fn hipMemPrefetchAsync(memory: *const c_void, _count: usize, to: i32, stream: hipStream_t) {
        if to != -1 {
            device(to)?;
        }
        stream::find(stream)?;
        managed(memory)
    }

    fn hipMemAdvise(memory: *const c_void, _count: usize, _advice: hipMemoryAdvise, _device: i32) {
        managed(memory)
    }

    fn hipMallocAsync(to: *mut *mut c_void, size: usize, stream: hipStream_t) {
        put(to, ptr::null_mut())?;
        let stream = stream::find(stream)?;
        put(to, allocate_in_order(&stream, stream.device, size)?)
    }

    fn hipMallocFromPoolAsync(to: *mut *mut c_void, size: usize, pool: hipMemPool_t, stream: hipStream_t) {
        put(to, ptr::null_mut())?;
        let owner = owner(pool)?;
        put(to, allocate_in_order(&*stream::find(stream)?, owner, size)?)
    }

    fn hipFreeAsync(memory: *mut c_void, stream: hipStream_t) {
        let stream = stream::find(stream)?;
        if memory.is_null() {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        if stream.captured()?.is_some() {
            return Err(hipError_t::hipErrorNotSupported);
        }
        let address = address(memory);
        let found = machine()?.memory.find(address).filter(|found| found.live && found.begin == address);
        if !found.is_some_and(|found| matches!(found.kind, Kind::Device(_))) {
            return Err(hipError_t::hipErrorInvalidValue);
        }
        let free = move |_: &gcnrun::Memory| release(address, |kind| matches!(kind, Kind::Device(_)));
        stream.submit(&Task::Library("hipFreeAsync".into(), Arc::new(free))).map(drop)
    }

    fn hipDeviceGetDefaultMemPool(to: *mut hipMemPool_t, number: i32) {
        put(to, pool(device(number)?))
    }

    fn hipDeviceGetMemPool(to: *mut hipMemPool_t, number: i32) {
        put(to, pool(device(number)?))
    }

    /// The device's own pool is the only one.
    fn hipDeviceSetMemPool(number: i32, pool: hipMemPool_t) {
        if owner(pool)?.ordinal == device(number)?.ordinal {
            Ok(())
        } else {
            Err(hipError_t::hipErrorNotSupported)
        }
    }

    /// No operation: freed memory is not kept.
    fn hipMemPoolTrimTo(pool: hipMemPool_t, _keep: usize) {
        owner(pool).map(drop)
    }
}

fn managed(memory: *const c_void) -> Result<(), hipError_t> {
    match machine()?.memory.find(address(memory)) {
        Some(found) if found.live && found.kind == Kind::Managed => Ok(()),
        _ => Err(hipError_t::hipErrorInvalidValue),
    }
}
