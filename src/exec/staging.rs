//! Host memory for the input of a batch, which several threads can fill.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

use super::threads::HostThreads;
use crate::error::Result;
use crate::hip::{Device, PinnedBuffer, PinnedPart};

/// Host memory for an input, pinned if a GPU copies from it. Dropping it returns pinned memory to its pool.
#[derive(Debug)]
pub struct Staging {
    memory: Memory,
    pool: Option<Arc<HostPool>>,
    /// Threads near the memory.
    threads: HostThreads,
}

#[derive(Debug)]
enum Memory {
    Host(Vec<u8>),
    Pinned(PinnedBuffer<u8>),
    /// Moved into a run.
    Taken,
}

/// The part of a [`Staging`] for one image.
#[derive(Debug)]
pub struct StagingPart {
    memory: PartMemory,
    pool: Option<Arc<HostPool>>,
    threads: HostThreads,
}

#[derive(Debug)]
enum PartMemory {
    Host(Vec<u8>),
    Pinned(PinnedPart<u8>),
}

/// Memory that a [`Staging`] passes to a run.
pub(super) enum Given {
    /// Pinned memory, and the pool to return it to.
    Pinned(PinnedBuffer<u8>, Option<Arc<HostPool>>),
    Host(Vec<u8>),
}

impl Staging {
    /// Wraps memory for an executor that needs no pinned memory.
    pub(super) fn on_host(bytes: Vec<u8>, threads: &HostThreads) -> Self {
        Self {
            memory: Memory::Host(bytes),
            pool: None,
            threads: threads.clone(),
        }
    }

    /// Wraps pinned memory that returns to `pool`.
    pub(super) fn pinned(
        memory: PinnedBuffer<u8>,
        pool: Option<Arc<HostPool>>,
        threads: &HostThreads,
    ) -> Self {
        Self {
            memory: Memory::Pinned(memory),
            pool,
            threads: threads.clone(),
        }
    }

    /// Detaches the memory from its pool: dropping the staging frees it.
    pub(crate) fn detach(&mut self) {
        self.pool = None;
    }

    /// Returns threads near the memory, to fill it.
    pub fn threads(&self) -> &HostThreads {
        &self.threads
    }

    /// Returns the GPU that the memory is near. `None` for memory that is not pinned.
    pub(super) fn device(&self) -> Option<&Device> {
        self.memory().map(PinnedBuffer::device)
    }

    /// Returns the pinned memory. `None` for memory that is not pinned.
    pub(super) fn memory(&self) -> Option<&PinnedBuffer<u8>> {
        match &self.memory {
            Memory::Pinned(memory) => Some(memory),
            Memory::Host(_) | Memory::Taken => None,
        }
    }

    /// Passes the memory to a run.
    pub(super) fn give(mut self) -> Given {
        match std::mem::replace(&mut self.memory, Memory::Taken) {
            Memory::Pinned(memory) => Given::Pinned(memory, self.pool.take()),
            Memory::Host(bytes) => Given::Host(bytes),
            Memory::Taken => Given::Host(Vec::new()),
        }
    }

    /// Splits the memory into images of `each` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) if the size is not a multiple of `each`.
    pub fn split(mut self, each: usize) -> Result<Vec<StagingPart>> {
        let pool = self.pool.take();
        let threads = self.threads.clone();
        let part = |memory| StagingPart {
            memory,
            pool: pool.clone(),
            threads: threads.clone(),
        };
        Ok(match std::mem::replace(&mut self.memory, Memory::Taken) {
            Memory::Host(bytes) => bytes
                .chunks(each)
                .map(|bytes| part(PartMemory::Host(bytes.to_vec())))
                .collect(),
            Memory::Pinned(memory) => {
                let parts = memory.split(each)?.into_iter();
                parts.map(|memory| part(PartMemory::Pinned(memory))).collect()
            }
            Memory::Taken => Vec::new(),
        })
    }

    /// Reassembles the memory from the parts of all images. `None` if there are no parts.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](crate::Error::Argument) if a part is missing.
    pub fn join(parts: Vec<StagingPart>) -> Result<Option<Self>> {
        let (mut bytes, mut pinned) = (Vec::new(), Vec::new());
        let mut home = None;
        for StagingPart {
            memory,
            pool,
            threads,
        } in parts
        {
            match memory {
                PartMemory::Host(part) => bytes.extend_from_slice(&part),
                PartMemory::Pinned(part) => pinned.push(part),
            }
            home = Some((pool, threads));
        }
        let Some((pool, threads)) = home else {
            return Ok(None);
        };
        Ok(Some(Self {
            memory: if pinned.is_empty() {
                Memory::Host(bytes)
            } else {
                Memory::Pinned(PinnedPart::join(pinned)?)
            },
            pool,
            threads,
        }))
    }

    /// Shortens the memory to `bytes` bytes, if it is longer.
    pub fn truncate(&mut self, bytes: usize) {
        match &mut self.memory {
            Memory::Host(memory) => memory.truncate(bytes),
            Memory::Pinned(memory) => memory.truncate(bytes),
            Memory::Taken => {}
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let memory = std::mem::replace(&mut self.memory, Memory::Taken);
        if let (Memory::Pinned(memory), Some(pool)) = (memory, self.pool.take()) {
            pool.keep(memory);
        }
    }
}

impl Deref for Staging {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Host(bytes) => bytes,
            Memory::Pinned(memory) => memory,
            Memory::Taken => &[],
        }
    }
}

impl DerefMut for Staging {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Host(bytes) => bytes,
            Memory::Pinned(memory) => memory,
            Memory::Taken => &mut [],
        }
    }
}

impl Deref for StagingPart {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            PartMemory::Host(bytes) => bytes,
            PartMemory::Pinned(part) => part,
        }
    }
}

impl DerefMut for StagingPart {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            PartMemory::Host(bytes) => bytes,
            PartMemory::Pinned(part) => part,
        }
    }
}

/// Unused pinned memory for whole inputs or results.
#[derive(Debug)]
pub struct HostPool {
    device: Device,
    unused: Mutex<PinnedPool>,
}

impl HostPool {
    pub(super) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            unused: Mutex::default(),
        }
    }

    /// Returns `bytes` bytes of arbitrary contents.
    pub(super) fn take(&self, bytes: usize) -> Result<PinnedBuffer<u8>> {
        // Release the lock before calling the driver.
        let unused = self.unused.lock().reuse(bytes)?;
        match unused {
            Some(buffer) => Ok(buffer),
            None => Ok(self.device.pinned(bytes)?),
        }
    }

    pub(super) fn keep(&self, buffer: PinnedBuffer<u8>) {
        self.unused.lock().keep(buffer);
    }
}

/// Unused pinned buffers.
#[derive(Debug, Default)]
struct PinnedPool(Vec<PinnedBuffer<u8>>);

impl PinnedPool {
    /// Returns an unused buffer of `bytes` bytes. If all are too small, frees one, as the caller makes a larger one.
    fn reuse(&mut self, bytes: usize) -> Result<Option<PinnedBuffer<u8>>> {
        let fits = (0..self.0.len()).filter(|&index| self.0[index].capacity() >= bytes);
        let Some(index) = fits.min_by_key(|&index| self.0[index].capacity()) else {
            self.0.pop();
            return Ok(None);
        };
        let mut buffer = self.0.swap_remove(index);
        buffer.set_len(bytes)?;
        Ok(Some(buffer))
    }

    fn keep(&mut self, buffer: PinnedBuffer<u8>) {
        self.0.push(buffer);
    }
}
