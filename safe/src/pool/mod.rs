//! Device memory that is used again in the stream's order, so that the hot path neither allocates nor frees.
//!
//! Built on `hipMalloc`: HIP's own stream-ordered allocator has handed out overlapping memory. `cache` does the books.

mod cache;

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hipvit_sys::hip::hipError_t;

use self::cache::Cache;
pub use self::cache::PoolStats;
use super::device::Device;
use super::event::Event;
use super::status::{call, is};
use super::stream::Stream;
use crate::error::{Error, Result};

/// A device's pool.
#[derive(Debug, Default)]
pub(super) struct Pool {
    cache: Mutex<Cache>,
}

impl Pool {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stats(&self) -> PoolStats {
        self.cache().stats()
    }

    /// A block of at least `bytes` for `stream`: one that the stream gave back, else one that no stream uses, else new;
    /// when memory runs out, once more after a trim.
    pub(super) fn allocate(&self, stream: &Stream, bytes: usize) -> Result<Arc<Block>> {
        stream.refuse_capture("an allocation")?;
        let device = stream.device();
        let found = self.cache().take(stream.id(), bytes);
        let address = match found {
            Some(address) => address,
            None => {
                let class = cache::class(bytes).ok_or_else(|| Error::argument("bytes", "too many"))?;
                let address = match malloc(device, class) {
                    Err(error) if is(&error, hipError_t::hipErrorOutOfMemory) => {
                        self.trim(device)?;
                        malloc(device, class)
                    }
                    allocated => allocated,
                }
                .map_err(|error| self.out_of_memory(device, class, error))?;
                self.cache().adopt(address, bytes);
                address
            }
        };
        Ok(Arc::new(Block {
            address,
            stream: stream.clone(),
            last_use: AtomicU64::new(0),
            ready: OnceLock::new(),
            readers: Mutex::default(),
        }))
    }

    fn out_of_memory(&self, device: &Device, bytes: usize, error: Error) -> Error {
        if !is(&error, hipError_t::hipErrorOutOfMemory) {
            return error;
        }
        let stats = self.stats();
        Error::OutOfMemory {
            device: device.name().to_owned(),
            bytes,
            held: stats.held,
            live: stats.live,
        }
    }

    /// Gives unused blocks back to the driver.
    pub(super) fn trim(&self, device: &Device) -> Result<usize> {
        // Unused blocks may still be written by work that was submitted before they were given back.
        device.synchronize()?;
        let hip = device.enter()?;
        let (addresses, bytes) = self.cache().drain();
        let mut result = Ok(bytes);
        for address in addresses {
            // SAFETY: the address is hipMalloc's, the cache has forgotten it, and the device has done its work.
            let freed = unsafe { call!(device, hip.hipFree(address as *mut _)) };
            result = result.and_then(|bytes| freed.map(|()| bytes));
        }
        result
    }

    /// The work of this stream is done, and there will be no more: its unused blocks are anyone's.
    pub(super) fn retire(&self, stream: u64) {
        self.cache().retire(stream);
    }

    pub(super) fn take_unused(&self) -> Vec<u64> {
        self.cache().drain().0
    }
}

fn malloc(device: &Device, bytes: usize) -> Result<u64> {
    let hip = device.enter()?;
    let mut pointer = ptr::null_mut();
    // SAFETY: the call writes one pointer.
    match unsafe { call!(device, hip.hipMalloc(&mut pointer, bytes)) } {
        Ok(()) => Ok(pointer as u64),
        Err(error) => {
            // HIP keeps the error for whoever asks next, and libraries do.
            // SAFETY: takes no arguments.
            let _ = unsafe { hip.hipGetLastError() };
            Err(error)
        }
    }
}

/// A piece of device memory. It goes back to the pool when its last owner, a buffer or a graph, is gone.
#[derive(Debug)]
pub(super) struct Block {
    address: u64,
    /// The stream that orders its use, and whose it is when it is given back.
    stream: Stream,
    last_use: AtomicU64,
    /// Set when the block is frozen: the point from which on every stream may read it.
    ready: OnceLock<Event>,
    /// The streams other than `stream` that have read it.
    readers: Mutex<Vec<Stream>>,
}

impl Block {
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.ready.get().is_some()
    }

    /// Notes the number of the submission that used it last.
    pub(super) fn used(&self, submission: u64) {
        self.last_use.fetch_max(submission, Ordering::AcqRel);
    }

    /// Makes another stream the home of the block, whose work from now on runs after `event`.
    pub(super) fn rehome(&mut self, stream: &Stream, event: &Event) -> Result<()> {
        if stream.device() != self.stream.device() {
            return Err(Error::argument("stream", "is of another device than the buffer"));
        }
        let last = self.last_use.load(Ordering::Acquire);
        if !event.is_after(&self.stream, last) {
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
    pub(super) fn freeze(&self) -> Result<()> {
        if self.ready.get().is_none() {
            let event = self.stream.mark()?;
            self.ready.get_or_init(|| event);
        }
        Ok(())
    }

    /// Lets a stream read the frozen block: its work from now on runs after the block was written.
    pub(super) fn admit_reader(&self, stream: &Stream) -> Result<()> {
        let Some(ready) = self.ready.get() else {
            return Ok(());
        };
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
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

impl Drop for Block {
    fn drop(&mut self) {
        let device = self.stream.device();
        let readers = self.readers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for reader in readers.iter() {
            // The next user of the memory, on the home stream, waits for its readers.
            if let Err(error) = reader.mark().and_then(|event| self.stream.wait(&event)) {
                // Memory that may be in use is not used again.
                device.pool().cache().forget(self.address);
                device.park(Err(error));
                return;
            }
        }
        device.pool().cache().give(self.address, self.stream.id());
    }
}
