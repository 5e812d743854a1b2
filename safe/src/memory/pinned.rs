//! Host memory for asynchronous copies.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use bytemuck::Pod;

use crate::address::DeviceAddress;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::memory::host_memory::HostMemory;
use crate::memory::pending::Pending;

/// Page-locked host memory: a slice of `T`, initially zero. Created by [`Device::pinned`].
///
/// A copy takes it by value, so that no other code accesses it in the meantime. See [`DeviceBuffer`](crate::DeviceBuffer).
/// [`Stream::lend`](crate::Stream::lend) lets kernels access it in place.
pub struct PinnedBuffer<T> {
    pointer: NonNull<T>,
    len: usize,
    capacity: usize,
    memory: Arc<HostMemory>,
}

// SAFETY: it owns its memory like a Vec, and the driver frees it from any thread.
unsafe impl<T: Send> Send for PinnedBuffer<T> {}
// SAFETY: as above; a shared reference only reads.
unsafe impl<T: Sync> Sync for PinnedBuffer<T> {}

impl Device {
    /// Allocates `len` zeroed elements of host memory for asynchronous copies of this device. On a host with several NUMA nodes, the memory
    /// is on the device's node.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the host has no more memory to pin.
    pub fn pinned<T: Pod + Send + Sync>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::new(self, len)
    }

    /// Allocates a ring of `count` pinned buffers of `len` elements each.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the host has no more memory to pin.
    pub fn pinned_ring<T: Pod + Send + Sync>(&self, count: usize, len: usize) -> Result<PinnedRing<T>> {
        PinnedRing::new(self, count, len)
    }
}

impl<T: Pod + Send + Sync> PinnedBuffer<T> {
    fn new(device: &Device, len: usize) -> Result<Self> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&b| isize::try_from(b).is_ok());
        let bytes = bytes.ok_or_else(|| Error::argument("len", format!("{len} elements are too many")))?;
        let memory = HostMemory::new(device, bytes)?;
        let pointer = memory.pointer().cast::<T>();
        if !pointer.is_aligned() {
            return Err(Error::Device {
                device: device.name().to_owned(),
                call: "hipHostMalloc",
                status: "an address that is not aligned".into(),
                advice: String::new(),
            });
        }
        Ok(Self {
            pointer,
            len,
            capacity: len,
            memory: Arc::new(memory),
        })
    }
}

impl<T> PinnedBuffer<T> {
    /// Returns the device that the memory was allocated for. Other devices of its runtime can copy from and to it too.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.memory.device()
    }

    /// Returns the address at which kernels access the memory while it is [lent](crate::Stream::lend).
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the device cannot access the memory.
    pub fn device_address(&self) -> Result<DeviceAddress> {
        self.memory.device_address()
    }

    pub(crate) fn allocation(&self) -> &Arc<HostMemory> {
        &self.memory
    }

    /// Returns the number of allocated elements.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the size in bytes, without access to the memory.
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Shortens the buffer to `len` elements. Has no effect if it has fewer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Sets the length to `len` elements, at most the [capacity](PinnedBuffer::capacity). Elements that are added again keep their previous
    /// values.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) -> Result<()> {
        if len > self.capacity {
            let reason = format!("{len} elements in pinned memory for {}", self.capacity);
            return Err(Error::argument("len", reason));
        }
        self.len = len;
        Ok(())
    }
}

impl<T: Pod> PinnedBuffer<T> {
    /// Splits the buffer into parts of `len` elements each, for several threads to fill. The last part may be shorter. [`PinnedPart::join`]
    /// reassembles them.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `len` is 0.
    pub fn split(self, len: usize) -> Result<Vec<PinnedPart<T>>> {
        if len == 0 {
            return Err(Error::argument("len", "parts have at least one element"));
        }
        let total = self.len;
        let buffer = Arc::new(self);
        let part = |start| PinnedPart {
            buffer: buffer.clone(),
            range: start..total.min(start + len),
        };
        Ok((0..total).step_by(len).map(part).collect())
    }

    /// Converts the whole buffer to a part, for [`PinnedPart::split_off`].
    #[must_use]
    pub fn into_part(self) -> PinnedPart<T> {
        PinnedPart {
            range: 0..self.len,
            buffer: Arc::new(self),
        }
    }
}

impl<T: Pod> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `len` elements, at most as many as were allocated, aligned, owned and initialised. They are Pod, so any bytes from the
        // device are valid. No copy is running while code has the buffer.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and mutably borrowed.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

impl<T> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer")
            .field("pointer", &self.pointer)
            .field("len", &self.len)
            .finish()
    }
}

/// A part of a [`PinnedBuffer`] that was [split](PinnedBuffer::split). It dereferences to a slice.
#[derive(Debug)]
pub struct PinnedPart<T> {
    /// The whole buffer. No code accesses the memory through it while it is split.
    buffer: Arc<PinnedBuffer<T>>,
    range: Range<usize>,
}

impl<T: Pod> PinnedPart<T> {
    /// Returns the index of the first element in the buffer.
    #[must_use]
    pub fn start(&self) -> usize {
        self.range.start
    }

    /// Keeps the first `at` elements, and returns the others as a new part.
    #[must_use = "dropping it gives up its elements until the parts are joined"]
    pub fn split_off(&mut self, at: usize) -> Self {
        let middle = self.range.end.min(self.range.start.saturating_add(at));
        let end = std::mem::replace(&mut self.range.end, middle);
        Self {
            buffer: self.buffer.clone(),
            range: middle..end,
        }
    }

    /// Reassembles the buffer, once all its parts are given or dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if another part is in use, or if no part is given.
    pub fn join(parts: Vec<Self>) -> Result<PinnedBuffer<T>> {
        let mut parts = parts.into_iter();
        let last = parts.next_back();
        let buffer = last.map(|part| part.buffer);
        drop(parts);
        buffer
            .and_then(Arc::into_inner)
            .ok_or_else(|| Error::argument("parts", "some of the buffer's are missing"))
    }
}

impl<T: Pod> Deref for PinnedPart<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the range is within the buffer's elements, and each element belongs to one part only. The buffer, which owns the memory,
        // is inaccessible while a part exists.
        unsafe {
            slice::from_raw_parts(
                self.buffer.pointer.as_ptr().add(self.range.start),
                self.range.len(),
            )
        }
    }
}

impl<T: Pod> DerefMut for PinnedPart<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and mutably borrowed.
        unsafe {
            slice::from_raw_parts_mut(
                self.buffer.pointer.as_ptr().add(self.range.start),
                self.range.len(),
            )
        }
    }
}

/// A ring of pinned buffers that are filled and copied in turn.
///
/// [`next`](PinnedRing::next) returns a buffer whose copy is done, and waits for the oldest copy if there is none.
/// [`submitted`](PinnedRing::submitted) takes the buffer back with its next copy.
#[derive(Debug)]
pub struct PinnedRing<T: Pod + Send + Sync> {
    free: Vec<PinnedBuffer<T>>,
    under_way: VecDeque<Pending<PinnedBuffer<T>>>,
}

impl<T: Pod + Send + Sync> PinnedRing<T> {
    fn new(device: &Device, count: usize, len: usize) -> Result<Self> {
        Ok(Self {
            free: (0..count).map(|_| device.pinned(len)).collect::<Result<_>>()?,
            under_way: VecDeque::new(),
        })
    }

    /// Returns a buffer to fill. It has the contents of its last use.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if all buffers are taken. The error of a failed copy; the ring has one buffer less then.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator would lend, and cannot fail so"
    )]
    pub fn next(&mut self) -> Result<PinnedBuffer<T>> {
        if let Some(buffer) = self.free.pop() {
            return Ok(buffer);
        }
        match self.under_way.pop_front() {
            Some(oldest) => oldest.wait(),
            None => Err(Error::argument("ring", "all buffers are in use")),
        }
    }

    /// Takes a buffer back, with its running copy.
    pub fn submitted(&mut self, copy: Pending<PinnedBuffer<T>>) {
        self.under_way.push_back(copy);
    }

    /// Takes a buffer back that has no running copy.
    pub fn give(&mut self, buffer: PinnedBuffer<T>) {
        self.free.push(buffer);
    }

    /// Waits for all copies.
    ///
    /// # Errors
    ///
    /// The first error of a copy. All copies are waited for in any case.
    pub fn wait(&mut self) -> Result<()> {
        let mut result = Ok(());
        while let Some(copy) = self.under_way.pop_front() {
            match copy.wait() {
                Ok(buffer) => self.free.push(buffer),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }
}
