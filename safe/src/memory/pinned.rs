//! Host memory that the device copies from and to on its own.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use bytemuck::Pod;
use hipvit_sys::hip::hipHostMallocDefault;

use crate::device::{Device, numa};
use crate::error::{Error, Result};
use crate::memory::pending::Pending;
use crate::status::call;

/// Page-locked host memory: a slice of `T`, zero at first. Made by [`Device::pinned`].
///
/// A copy takes it by value, so that no other code accesses it meanwhile; see [`DeviceBuffer`](crate::DeviceBuffer).
pub struct PinnedBuffer<T> {
    pointer: NonNull<T>,
    len: usize,
    capacity: usize,
    device: Device,
}

// SAFETY: it owns its memory as a Vec does, and the driver frees it from any thread.
unsafe impl<T: Send> Send for PinnedBuffer<T> {}
// SAFETY: as above; a shared reference only reads.
unsafe impl<T: Sync> Sync for PinnedBuffer<T> {}

impl Device {
    /// Allocates host memory that this device copies from and to on its own, `len` elements, zero. On a host with several NUMA
    /// nodes it is on the device's node.
    ///
    /// # Errors
    ///
    /// The host is out of memory that can be pinned.
    pub fn pinned<T: Pod + Send + Sync>(&self, len: usize) -> Result<PinnedBuffer<T>> {
        PinnedBuffer::new(self, len)
    }

    /// A ring of `count` pinned buffers of `len` elements each.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver has no such memory left.
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
        let hip = device.enter()?;
        // The pages are placed when they are pinned, and stay.
        let _near = device.numa_node().map(numa::NumaNode::prefer);
        let mut pointer = ptr::null_mut();
        // SAFETY: the call writes one pointer.
        unsafe {
            call!(
                device,
                hip.hipHostMalloc(&mut pointer, bytes.max(1), hipHostMallocDefault)
            )
        }?;
        let pointer = NonNull::new(pointer.cast::<T>()).filter(|p| p.is_aligned());
        let pointer = pointer.ok_or_else(|| Error::Device {
            device: device.name().to_owned(),
            call: "hipHostMalloc",
            status: "no address, or one that is not aligned".into(),
            advice: String::new(),
        })?;
        // SAFETY: the memory has `bytes` bytes.
        unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self {
            pointer,
            len,
            capacity: len,
            device: device.clone(),
        })
    }
}

impl<T> PinnedBuffer<T> {
    /// The device that it was made for; others of its runtime copy from and to it too.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of elements that it was made with.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Shortens it to `len` elements. Has no effect if it has fewer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Makes it `len` elements long, at most its [capacity](PinnedBuffer::capacity). Elements that come back have the
    /// values that they had last.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the capacity is less.
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
    /// Splits it into parts of `len` elements each, for several threads to fill. The last part may be shorter.
    /// [`PinnedPart::join`] puts them together again.
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

    /// All of it as one part, for [`PinnedPart::split_off`].
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
        // SAFETY: `len` elements, at most as many as were allocated, aligned, owned by us, initialised when made; Pod, so
        // that whatever bytes the device copied there are values. No copy is under way while someone has the buffer.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }
}

impl<T: Pod> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        let device = &self.device;
        let result = device.select().and_then(|hip| {
            // SAFETY: the address is hipHostMalloc's, freed once; no copy is under way.
            unsafe { call!(device, hip.hipHostFree(self.pointer.as_ptr().cast())) }
        });
        device.park(result);
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

/// A part of a [`PinnedBuffer`] that was [split](PinnedBuffer::split): a slice of its own.
#[derive(Debug)]
pub struct PinnedPart<T> {
    /// The whole buffer. No code accesses the memory through it while it is split.
    buffer: Arc<PinnedBuffer<T>>,
    range: Range<usize>,
}

impl<T: Pod> PinnedPart<T> {
    /// The position of its first element in the buffer.
    #[must_use]
    pub fn start(&self) -> usize {
        self.range.start
    }

    /// Keeps its first `at` elements; the others, if there are any, become a part of their own.
    #[must_use = "dropping it gives up its elements until the parts are joined"]
    pub fn split_off(&mut self, at: usize) -> Self {
        let middle = self.range.end.min(self.range.start.saturating_add(at));
        let end = std::mem::replace(&mut self.range.end, middle);
        Self {
            buffer: self.buffer.clone(),
            range: middle..end,
        }
    }

    /// The buffer that was split, once all its parts are here or dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if another part is in use, or if there is none.
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
        // SAFETY: the range is within the buffer's elements, and each element belongs to one part alone; the buffer, which owns
        // the memory, cannot be reached while there is a part.
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
        // SAFETY: as above, and borrowed mutably.
        unsafe {
            slice::from_raw_parts_mut(
                self.buffer.pointer.as_ptr().add(self.range.start),
                self.range.len(),
            )
        }
    }
}

/// Pinned buffers that are filled, copied from and filled again in turn.
///
/// [`next`](PinnedRing::next) gives one whose copy is done and waits for the oldest copy if there is none;
/// [`submitted`](PinnedRing::submitted) takes it back with its copy.
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

    /// A buffer to fill. It has the contents of its last use.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if all are out; what a copy failed with, and the ring has a buffer less then.
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

    /// Takes a buffer back with the copy that it is in.
    pub fn submitted(&mut self, copy: Pending<PinnedBuffer<T>>) {
        self.under_way.push_back(copy);
    }

    /// Takes a buffer back that is in no copy.
    pub fn give(&mut self, buffer: PinnedBuffer<T>) {
        self.free.push(buffer);
    }

    /// Waits for every copy.
    ///
    /// # Errors
    ///
    /// The first error of any; all are waited for.
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
