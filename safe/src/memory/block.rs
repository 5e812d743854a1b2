//! Device memory that is used again in the stream's order, so that the hot path neither allocates nor frees.
//!
//! Built on `hipMalloc`: HIP's own stream-ordered allocator has handed out overlapping memory. `cache` does the books.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hipvit_sys::hip::{
    hipDeviceMallocUncached, hipError_t, hipHostMallocCoherent, hipHostMallocMapped, hipHostMallocPortable,
};
use parking_lot::Mutex;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::cache::{self, PoolStats};
use crate::status::{call, is, is_not_offered};
use crate::stream::{Resource, Stream};

impl Device {
    /// Returns the pool's figures.
    #[must_use]
    pub fn pool_stats(&self) -> PoolStats {
        self.cache().stats()
    }

    /// Gives the pool's unused blocks back to the driver; waits for the device. Returns the bytes.
    ///
    /// # Errors
    ///
    /// What the device's work failed with, or the driver refuses to free.
    pub fn trim(&self) -> Result<usize> {
        // Unused blocks may still be written by work that was submitted before they were given back.
        self.synchronize()?;
        let hip = self.enter()?;
        let (addresses, bytes) = self.cache().drain();
        let mut result = Ok(bytes);
        for address in addresses {
            // SAFETY: the address is hipMalloc's, the cache has forgotten it, and the device has done its work.
            let freed = unsafe { call!(self, hip.hipFree(address as *mut _)) };
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

fn malloc(device: &Device, bytes: usize) -> Result<u64> {
    let hip = device.enter()?;
    let mut pointer = ptr::null_mut();
    // SAFETY: the call writes one pointer.
    match unsafe { call!(device, hip.hipMalloc(&mut pointer, bytes)) } {
        Ok(()) => Ok(pointer as u64),
        Err(error) => {
            // HIP keeps the error for the next call that asks, and libraries ask. SAFETY: takes no arguments.
            let _ = unsafe { hip.hipGetLastError() };
            Err(error)
        }
    }
}

/// A piece of device memory. It goes back to the pool when its last owner, a buffer or a graph, is gone.
#[derive(Debug)]
pub(crate) struct Block {
    address: u64,
    /// The stream that orders its use, and whose it is when it is given back.
    stream: Stream,
    last_use: AtomicU64,
    /// Set when the block is frozen: the point from which on every stream may read it.
    ready: OnceLock<Event>,
    /// The streams other than `stream` that have read it.
    readers: Mutex<Vec<Stream>>,
    origin: Origin,
}

/// Origin of a block, to which it returns.
#[derive(Debug)]
enum Origin {
    Pool,
    /// Device memory that the kernels of these streams share.
    Uncached(Vec<Stream>),
    /// Host memory that the kernels of these streams and the host share.
    Mapped(Vec<Stream>),
}

impl Block {
    /// Allocates a block of at least `bytes` for `stream`: one that the stream gave back, else one that no stream uses, else a
    /// new one. If memory runs out, it trims the pool and tries once more.
    pub(crate) fn allocate(stream: &Stream, bytes: usize) -> Result<Arc<Self>> {
        stream.refuse_capture("an allocation")?;
        let device = stream.device();
        let found = device.cache().take(stream.id(), bytes);
        let address = match found {
            Some(address) => address,
            None => {
                let class = cache::class(bytes).ok_or_else(|| Error::argument("bytes", "too many"))?;
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
        Ok(Arc::new(Self {
            address,
            stream: stream.clone(),
            last_use: AtomicU64::new(0),
            ready: OnceLock::new(),
            readers: Mutex::default(),
            origin: Origin::Pool,
        }))
    }

    /// Device memory for work of all `sharers`, in no order; uncached, unless no such memory is offered.
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
            Ok(()) => pointer as u64,
            Err(error) if is_not_offered(&error) => {
                // HIP keeps the error for the next call that asks, and libraries ask. SAFETY: takes no arguments.
                let _ = unsafe { hip.hipGetLastError() };
                malloc(device, bytes).map_err(|error| out_of_memory(device, bytes, error))?
            }
            Err(error) => return Err(out_of_memory(device, bytes, error)),
        };
        Ok(Self::shared(stream, address, Origin::Uncached(sharers.to_vec())))
    }

    /// Host memory, zero, for work of all `sharers` and the host, in no order.
    pub(crate) fn mapped(stream: &Stream, bytes: usize, sharers: &[Stream]) -> Result<Arc<Self>> {
        stream.refuse_capture("an allocation")?;
        let device = stream.device();
        let hip = device.enter()?;
        let flags = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;
        let mut pointer = ptr::null_mut();
        // SAFETY: the call writes one pointer, to memory of this many bytes.
        unsafe {
            call!(device, hip.hipHostMalloc(&mut pointer, bytes, flags))?;
            pointer.cast::<u8>().write_bytes(0, bytes);
        }
        let address = pointer as u64;
        Ok(Self::shared(stream, address, Origin::Mapped(sharers.to_vec())))
    }

    fn shared(stream: &Stream, address: u64, origin: Origin) -> Arc<Self> {
        Arc::new(Self {
            address,
            stream: stream.clone(),
            last_use: AtomicU64::new(0),
            ready: OnceLock::new(),
            readers: Mutex::default(),
            origin,
        })
    }

    /// True if work of `stream` may use it at any time.
    pub(crate) fn is_shared_with(&self, stream: &Stream) -> bool {
        match &self.origin {
            Origin::Pool => false,
            Origin::Uncached(sharers) | Origin::Mapped(sharers) => {
                sharers.iter().any(|sharer| sharer.device() == stream.device())
            }
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.ready.get().is_some()
    }

    /// Makes another stream the home of the block, whose work from now on runs after `event`.
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
        self.stream = stream.clone();
        self.last_use.store(0, Ordering::Release);
        Ok(())
    }

    /// From now on the block is only read, by any stream.
    pub(crate) fn freeze(&self) -> Result<()> {
        if self.ready.get().is_none() {
            let event = self.stream.mark()?;
            self.ready.get_or_init(|| event);
        }
        Ok(())
    }

    /// Lets a stream read the frozen block: its work from now on runs after the block was written.
    pub(crate) fn admit_reader(&self, stream: &Stream) -> Result<()> {
        let Some(ready) = self.ready.get() else {
            return Ok(());
        };
        let mut readers = self.readers.lock();
        if *stream != self.stream && !readers.contains(stream) {
            stream.refuse_capture("a frozen buffer's first use on a stream")?;
            stream.wait(ready)?;
            // A stream that only this list holds gets no more work; dropping it waits for what it had.
            readers.retain(|reader| !reader.is_last());
            readers.push(stream.clone());
        }
        Ok(())
    }
}

impl Resource for Block {
    fn used(&self, submission: u64) {
        self.last_use.fetch_max(submission, Ordering::AcqRel);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let device = self.stream.device();
        if let Origin::Uncached(sharers) | Origin::Mapped(sharers) = &self.origin {
            // SAFETY: the handles live.
            let finish = |sharer: &Stream| unsafe {
                let hip = sharer.device().select()?;
                call!(sharer.device(), hip.hipStreamSynchronize(sharer.raw()))
            };
            sharers.iter().for_each(|sharer| device.park(finish(sharer)));
            let free = |hip: &hipvit_sys::Hip| {
                let pointer = self.address as *mut std::ffi::c_void;
                // SAFETY: the address is of an allocation of this kind, and the work that used it is done.
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
        let readers = self.readers.get_mut();
        for reader in readers.iter() {
            // The next user of the memory, on the home stream, waits for its readers.
            if let Err(error) = reader.mark().and_then(|event| self.stream.wait(&event)) {
                // Memory that may be in use is not used again.
                device.cache().forget(self.address);
                device.park(Err(error));
                return;
            }
        }
        device.cache().give(self.address, self.stream.id());
    }
}
