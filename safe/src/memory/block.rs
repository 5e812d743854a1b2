//! Blocks of device memory that are reused in the order of a stream, so that the hot path does not allocate.
//!
//! They come from `hipMalloc`, because HIP's stream-ordered allocator has returned overlapping memory. `pool` does the bookkeeping.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hipvit_sys::hip::{
    hipDeviceMallocUncached, hipError_t, hipHostMallocCoherent, hipHostMallocMapped, hipHostMallocPortable,
};
use parking_lot::{Mutex, RwLockReadGuard};

use crate::address::DeviceAddress;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::host_memory::HostMemory;
use crate::pool::{self, PoolStats};
use crate::status::{call, is, is_not_offered};
use crate::stream::{Resource, Stream};

impl Device {
    /// Returns the statistics of the pool.
    #[must_use]
    pub fn pool_stats(&self) -> PoolStats {
        self.cache().stats()
    }

    /// Waits for the device, and returns the pool's unused blocks to the driver. Returns their bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Device`](crate::Error::Device) if earlier work of the device failed, or if the driver fails to free memory.
    pub fn trim(&self) -> Result<usize> {
        // Work that was submitted before a block was returned may still write to it.
        self.synchronize()?;
        let hip = self.enter()?;
        let (addresses, bytes) = self.cache().drain();
        let mut result = Ok(bytes);
        for address in addresses {
            // SAFETY: the address is from hipMalloc, the cache has forgotten it, and the device has finished its work.
            let freed = unsafe { call!(self, hip.hipFree(address.as_mut_ptr())) };
            result = result.and_then(|bytes| freed.map(|()| bytes));
        }
        result
    }
}

fn out_of_memory(device: &Device, bytes: usize, error: Error) -> Error {
    if !is(&error, hipError_t::hipErrorOutOfMemory) {
        return error;
    }
    let stats = device.pool_stats();
    Error::OutOfMemory {
        device: device.name().to_owned(),
        bytes,
        held: stats.held,
        live: stats.live,
    }
}

fn malloc(device: &Device, bytes: usize) -> Result<DeviceAddress> {
    let hip = device.enter()?;
    let mut pointer = ptr::null_mut();
    // SAFETY: the call writes one pointer.
    match unsafe { call!(device, hip.hipMalloc(&mut pointer, bytes)) } {
        Ok(()) => Ok(DeviceAddress::from_ptr(pointer)),
        Err(error) => {
            // HIP keeps the error for the next call that queries it, as libraries do. SAFETY: no arguments.
            let _ = unsafe { hip.hipGetLastError() };
            Err(error)
        }
    }
}

/// A block of device memory. It returns to the pool when its last owner, a buffer or a graph, is dropped.
#[derive(Debug)]
pub(crate) struct Block {
    address: DeviceAddress,
    /// The stream that orders its use, and that it is returned to.
    stream: Stream,
    last_use: AtomicU64,
    /// Set when the block is frozen: the event after which every stream may read it.
    ready: OnceLock<Event>,
    /// Streams other than `stream` that have used the block: readers of a frozen one, and side streams.
    users: Mutex<Vec<Stream>>,
    origin: Origin,
}

/// Origin of a block, to which it returns.
#[derive(Debug)]
enum Origin {
    Pool,
    /// Device memory shared by the kernels of these streams.
    Uncached(Vec<Stream>),
    /// Host memory shared by the host and the kernels of these streams.
    Mapped(Vec<Stream>),
    /// Memory that another library owns and frees.
    Foreign,
    /// Host memory that kernels access in place while it is lent.
    Lent(Arc<HostMemory>),
}

impl Block {
    /// Allocates a block of at least `bytes` bytes for `stream`. Prefers a block that the stream returned, then an unused block of no
    /// stream, then a new one. If memory runs out, trims the pool and retries once.
    pub(crate) fn allocate(stream: &Stream, bytes: usize) -> Result<Arc<Self>> {
        stream.refuse_capture("an allocation")?;
        let device = stream.device();
        let found = device.cache().take(stream.id(), bytes);
        let address = match found {
            Some(address) => address,
            None => {
                let class = pool::class(bytes).ok_or_else(|| Error::argument("bytes", "too many"))?;
                let address = match malloc(device, class) {
                    Err(error) if is(&error, hipError_t::hipErrorOutOfMemory) => {
                        device.trim()?;
                        malloc(device, class)
                    }
                    allocated => allocated,
                }
                .map_err(|error| out_of_memory(device, class, error))?;
                device.cache().adopt(address, bytes);
                address
            }
        };
        Ok(Self::with_origin(stream, address, Origin::Pool))
    }

    /// Allocates device memory for unordered work of all `sharers`. It is uncached, if such memory is available.
    pub(crate) fn uncached(stream: &Stream, bytes: usize, sharers: &[Stream]) -> Result<Arc<Self>> {
        stream.refuse_capture("an allocation")?;
        let device = stream.device();
        let hip = device.enter()?;
        let mut pointer = ptr::null_mut();
        // SAFETY: the call writes one pointer.
        let allocated = unsafe {
            call!(
                device,
                hip.hipExtMallocWithFlags(&mut pointer, bytes, hipDeviceMallocUncached)
            )
        };
        let address = match allocated {
            Ok(()) => DeviceAddress::from_ptr(pointer),
            Err(error) if is_not_offered(&error) => {
                // HIP keeps the error for the next call that queries it, as libraries do. SAFETY: no arguments.
                let _ = unsafe { hip.hipGetLastError() };
                malloc(device, bytes).map_err(|error| out_of_memory(device, bytes, error))?
            }
            Err(error) => return Err(out_of_memory(device, bytes, error)),
        };
        Ok(Self::with_origin(
            stream,
            address,
            Origin::Uncached(sharers.to_vec()),
        ))
    }

    /// Allocates zeroed host memory for unordered work of all `sharers` and of the host.
    pub(crate) fn mapped(stream: &Stream, bytes: usize, sharers: &[Stream]) -> Result<Arc<Self>> {
        stream.refuse_capture("an allocation")?;
        let device = stream.device();
        let hip = device.enter()?;
        let flags = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;
        let mut pointer = ptr::null_mut();
        // SAFETY: the call writes one pointer to memory of this many bytes.
        unsafe {
            call!(device, hip.hipHostMalloc(&mut pointer, bytes, flags))?;
            pointer.cast::<u8>().write_bytes(0, bytes);
        }
        let address = DeviceAddress::from_ptr(pointer);
        Ok(Self::with_origin(
            stream,
            address,
            Origin::Mapped(sharers.to_vec()),
        ))
    }

    /// Wraps memory that another library owns, for work of `stream`. The library frees it.
    pub(crate) fn foreign(stream: &Stream, address: DeviceAddress) -> Arc<Self> {
        Self::with_origin(stream, address, Origin::Foreign)
    }

    /// Wraps host memory that is lent to `stream`.
    pub(crate) fn lent(stream: &Stream, address: DeviceAddress, memory: Arc<HostMemory>) -> Arc<Self> {
        Self::with_origin(stream, address, Origin::Lent(memory))
    }

    fn with_origin(stream: &Stream, address: DeviceAddress, origin: Origin) -> Arc<Self> {
        Arc::new(Self {
            address,
            stream: stream.clone(),
            last_use: AtomicU64::new(0),
            ready: OnceLock::new(),
            users: Mutex::default(),
            origin,
        })
    }

    /// Returns true if work of `stream` may use the block at any time.
    pub(crate) fn is_shared_with(&self, stream: &Stream) -> bool {
        match &self.origin {
            Origin::Pool | Origin::Foreign | Origin::Lent(_) => false,
            Origin::Uncached(sharers) | Origin::Mapped(sharers) => {
                sharers.iter().any(|sharer| sharer.device() == stream.device())
            }
        }
    }

    pub(crate) fn address(&self) -> DeviceAddress {
        self.address
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns true if another library owns the memory.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.origin, Origin::Foreign)
    }

    /// Returns true if it is host memory that is lent to a stream.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.origin, Origin::Lent(_))
    }

    /// Returns true if the memory is from the device's pool.
    pub(crate) fn is_pooled(&self) -> bool {
        matches!(self.origin, Origin::Pool)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.ready.get().is_some()
    }

    /// Makes another stream the owner of the block. Its work then runs after `event`.
    pub(crate) fn rehome(&mut self, stream: &Stream, event: &Event) -> Result<()> {
        if stream.device() != self.stream.device() {
            return Err(Error::argument(
                "stream",
                "belongs to a different device than the buffer",
            ));
        }
        let last = self.last_use.load(Ordering::Acquire);
        if !event.is_after(self.stream.id(), last) {
            return Err(Error::argument(
                "event",
                "was recorded before the buffer's last use, or on another stream than the buffer's",
            ));
        }
        stream.wait(event)?;
        for user in self.users.get_mut().drain(..) {
            stream.wait(&user.mark()?)?;
        }
        self.stream = stream.clone();
        self.last_use.store(0, Ordering::Release);
        Ok(())
    }

    /// Makes the block read-only, for any stream, from now on.
    pub(crate) fn freeze(&self) -> Result<()> {
        if self.ready.get().is_none() {
            for user in self.users.lock().iter() {
                self.stream.wait(&user.mark()?)?;
            }
            let event = self.stream.mark()?;
            self.ready.get_or_init(|| event);
        }
        Ok(())
    }

    /// Admits a stream as a reader of the frozen block. Its work then runs after the block's last write.
    pub(crate) fn admit_reader(&self, stream: &Stream) -> Result<()> {
        let Some(ready) = self.ready.get() else {
            return Ok(());
        };
        let mut users = self.users.lock();
        if *stream != self.stream && !users.contains(stream) {
            stream.refuse_capture("a frozen buffer's first use on a stream")?;
            stream.wait(ready)?;
            // A stream that only this list holds gets no more work. Dropping it waits for its work.
            users.retain(|user| !user.is_last());
            users.push(stream.clone());
        }
        Ok(())
    }

    /// Records that a side stream uses the block. The next owner of the memory waits for it.
    pub(crate) fn add_user(&self, side: &Stream) {
        let mut users = self.users.lock();
        if !users.contains(side) {
            users.push(side.clone());
        }
    }
}

impl Resource for Block {
    fn used(&self, submission: u64) {
        self.last_use.fetch_max(submission, Ordering::AcqRel);
        if let Origin::Lent(memory) = &self.origin {
            memory.used(submission);
        }
    }

    fn hold(&self) -> Result<Option<RwLockReadGuard<'_, ()>>> {
        match &self.origin {
            Origin::Lent(memory) => memory.hold(self.stream.id()).map(Some),
            _ => Ok(None),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.is_foreign() || self.is_lent() {
            return;
        }
        let device = self.stream.device();
        if let Origin::Uncached(sharers) | Origin::Mapped(sharers) = &self.origin {
            // SAFETY: the handles are alive.
            let finish = |sharer: &Stream| unsafe {
                let hip = sharer.device().select()?;
                call!(sharer.device(), hip.hipStreamSynchronize(sharer.raw()))
            };
            sharers.iter().for_each(|sharer| device.park(finish(sharer)));
            let free = |hip: &hipvit_sys::Hip| {
                let pointer = self.address.as_mut_ptr();
                // SAFETY: the address is of an allocation of this kind, and the work that used it has finished.
                unsafe {
                    match self.origin {
                        Origin::Mapped(_) => call!(device, hip.hipHostFree(pointer)),
                        _ => call!(device, hip.hipFree(pointer)),
                    }
                }
            };
            device.park(device.select().and_then(free));
            return;
        }
        let users = self.users.get_mut();
        for user in users.iter() {
            // The next user of the memory, on the owning stream, waits for the other streams.
            if let Err(error) = user.mark().and_then(|event| self.stream.wait(&event)) {
                // Do not reuse memory that may still be in use.
                device.cache().forget(self.address);
                device.park(Err(error));
                return;
            }
        }
        device.cache().give(self.address, self.stream.id());
    }
}
