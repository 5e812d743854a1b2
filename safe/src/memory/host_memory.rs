//! Page-locked host memory, and the stream that accesses it in place.

use std::ffi::c_void;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hipvit_sys::hip::{hipHostMallocCoherent, hipHostMallocDefault, hipHostMallocMapped};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::address::DeviceAddress;
use crate::device::{Device, numa};
use crate::error::{Error, Result};
use crate::status::call;

/// Value of [`HostMemory::lent_to`] for memory that no stream accesses in place. Streams are numbered from 1.
const NO_STREAM: u64 = 0;

/// An allocation of page-locked host memory. It is freed once neither a buffer nor a captured graph refers to it.
pub(crate) struct HostMemory {
    pointer: NonNull<c_void>,
    device: Device,
    /// Address at which kernels access the memory.
    address: OnceLock<DeviceAddress>,
    /// Number of the stream whose work may access the memory in place.
    lent_to: AtomicU64,
    /// The last submission of that stream that uses the memory.
    last_use: AtomicU64,
    /// Read-locked during the submission of a graph that accesses the memory, write-locked while the host takes it.
    access: RwLock<()>,
}

// SAFETY: it owns its memory like a Vec, and the driver frees it from any thread.
unsafe impl Send for HostMemory {}
// SAFETY: a shared reference does not access the memory.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates `bytes` zeroed bytes, on the device's NUMA node. A device that [shares the host's memory](Device::shares_host_memory) gets
    /// memory that its kernels can access, coherently with the host.
    pub(crate) fn new(device: &Device, bytes: usize) -> Result<Self> {
        let hip = device.enter()?;
        // The pages are placed when they are pinned, and do not move.
        let _near = device.numa_node().map(numa::NumaNode::prefer);
        let flags = if device.shares_host_memory() {
            hipHostMallocMapped | hipHostMallocCoherent
        } else {
            hipHostMallocDefault
        };
        let mut pointer = ptr::null_mut();
        // SAFETY: the call writes one pointer.
        unsafe { call!(device, hip.hipHostMalloc(&mut pointer, bytes.max(1), flags)) }?;
        let pointer = NonNull::new(pointer).ok_or_else(|| Error::Device {
            device: device.name().to_owned(),
            call: "hipHostMalloc",
            status: "no address".into(),
            advice: String::new(),
        })?;
        let memory = Self {
            pointer,
            device: device.clone(),
            address: OnceLock::new(),
            lent_to: AtomicU64::new(NO_STREAM),
            last_use: AtomicU64::new(0),
            access: RwLock::default(),
        };
        // SAFETY: the memory has `bytes` bytes.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        Ok(memory)
    }

    pub(crate) fn pointer(&self) -> NonNull<c_void> {
        self.pointer
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the address at which kernels access the memory.
    pub(crate) fn device_address(&self) -> Result<DeviceAddress> {
        if let Some(address) = self.address.get() {
            return Ok(*address);
        }
        let hip = self.device.enter()?;
        let mut address = ptr::null_mut();
        // SAFETY: the call writes one pointer. The memory is from hipHostMalloc.
        unsafe {
            call!(
                self.device,
                hip.hipHostGetDevicePointer(&mut address, self.pointer.as_ptr(), 0)
            )
        }?;
        Ok(*self.address.get_or_init(|| DeviceAddress::from_ptr(address)))
    }

    /// Allows the work of a stream, including graphs that it captured before, to access the memory.
    pub(crate) fn lend(&self, stream: u64) {
        self.last_use.store(0, Ordering::Release);
        self.lent_to.store(stream, Ordering::Release);
    }

    /// Forbids any stream to access the memory from now on. Returns the last submission that uses it.
    pub(crate) fn end_loan(&self) -> u64 {
        let _alone = self.access.write();
        self.lent_to.store(NO_STREAM, Ordering::Release);
        self.last_use()
    }

    /// Keeps graphs that access the memory from being submitted.
    pub(crate) fn pause(&self) -> RwLockWriteGuard<'_, ()> {
        self.access.write()
    }

    pub(crate) fn last_use(&self) -> u64 {
        self.last_use.load(Ordering::Acquire)
    }

    pub(crate) fn used(&self, submission: u64) {
        self.last_use.fetch_max(submission, Ordering::AcqRel);
    }

    /// Keeps the memory accessible to a stream while the guard is alive.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the memory is not lent to the stream, or if the host reads it.
    pub(crate) fn hold(&self, stream: u64) -> Result<RwLockReadGuard<'_, ()>> {
        // Waiting for this thread's own view would deadlock.
        let guard = self.access.try_read_recursive();
        let guard = guard.ok_or_else(|| Error::argument("graph", "accesses memory that the host reads"))?;
        if self.lent_to.load(Ordering::Acquire) != stream {
            let reason = "accesses host memory that is not lent to its stream";
            return Err(Error::argument("graph", reason));
        }
        Ok(guard)
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let device = &self.device;
        let result = device.select().and_then(|hip| {
            // SAFETY: the address is from hipHostMalloc and freed once; nothing accesses the memory.
            unsafe { call!(device, hip.hipHostFree(self.pointer.as_ptr())) }
        });
        device.park(result);
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostMemory").field(&self.pointer).finish()
    }
}
