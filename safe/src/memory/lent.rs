//! Host memory that the kernels of a stream access in place.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use parking_lot::RwLockWriteGuard;

use crate::address::DeviceAddress;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::block::Block;
use crate::memory::operand::Operand;
use crate::memory::pending::Pending;
use crate::memory::pinned::PinnedBuffer;
use crate::stream::Stream;

/// Host memory that the work of a stream accesses in place, without copies. Created by [`Stream::lend`].
///
/// This is for devices that [share the host's memory](crate::Device::shares_host_memory). Other devices access it over their link.
///
/// The host cannot access the memory in the meantime. It gets it back from [`reclaim`](Lent::reclaim), or reads it with
/// [`host`](Lent::host). A captured graph keeps the memory alive. It can be replayed while the memory is lent to its stream again.
///
/// ```no_run
/// # fn main() -> hip_safe::Result<()> {
/// # let stream = hip_safe::Runtime::open()?.device(0)?.stream()?;
/// let mut memory = stream.device().pinned::<f32>(4)?;
/// memory.fill(1.0);
/// let mut lent = stream.lend(memory)?;
/// stream.fill(lent.writing(), 0)?;
/// let memory = lent.reclaim(&stream.mark()?)?.wait()?;
/// assert_eq!(*memory, [0.0; 4]);
/// # Ok(())
/// # }
/// ```
pub struct Lent<T: Pod + Send + Sync> {
    block: Arc<Block>,
    /// `None` once it was reclaimed.
    memory: Option<PinnedBuffer<T>>,
}

impl Stream {
    /// Lends host memory to the work of this stream.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the memory belongs to another device, or during a capture; [`Error::Device`] if the device cannot access the
    /// memory.
    pub fn lend<T: Pod + Send + Sync>(&self, memory: PinnedBuffer<T>) -> Result<Lent<T>> {
        self.refuse_capture("lending memory")?;
        if memory.device() != self.device() {
            let reason = "belongs to a different device than the stream";
            return Err(Error::argument("memory", reason));
        }
        let address = memory.device_address()?;
        memory.allocation().lend(self.id());
        Ok(Lent {
            block: Block::lent(self, address, memory.allocation().clone()),
            memory: Some(memory),
        })
    }
}

impl<T: Pod + Send + Sync> Lent<T> {
    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.as_ref().map_or(0, PinnedBuffer::bytes)
    }

    /// Returns the address of the first byte on the device.
    #[must_use]
    pub fn address(&self) -> DeviceAddress {
        self.block.address()
    }

    /// Returns the whole memory as an operand to read.
    #[must_use]
    pub fn reading(&self) -> Operand<'_> {
        Operand::new(&self.block, 0..self.bytes(), false)
    }

    /// Returns the whole memory as an operand to read and write.
    #[must_use]
    pub fn writing(&mut self) -> Operand<'_> {
        Operand::new(&self.block, 0..self.bytes(), true)
    }

    /// Waits for `after`, and returns a view of the memory for the host to read. Meanwhile graphs that access the memory cannot be replayed.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `after` is of another stream, or was recorded before the last use of the memory; [`Error::Device`] if the work
    /// failed.
    pub fn host(&self, after: &Event) -> Result<HostView<'_, T>> {
        let Some(memory) = &self.memory else {
            return Err(Error::argument("memory", "was reclaimed"));
        };
        let paused = memory.allocation().pause();
        self.check(after, memory.allocation().last_use())?;
        after.synchronize()?;
        Ok(HostView {
            memory,
            _paused: paused,
        })
    }

    /// Ends the loan. The host gets the memory after `after`, which was recorded on the stream after the last use of the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the event does not meet this condition. The memory is lost then.
    pub fn reclaim(self, after: &Event) -> Result<Pending<PinnedBuffer<T>>> {
        let stream = self.block.stream().clone();
        let memory = self.end(after)?;
        Ok(Pending::new(memory, after.clone(), stream))
    }

    /// Ends several loans of a stream. See [`reclaim`](Lent::reclaim).
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the event was recorded on another stream, or before the last use of the memory. The memory is lost then.
    pub fn reclaim_all(
        lent: Vec<Self>,
        stream: &Stream,
        after: &Event,
    ) -> Result<Pending<Vec<PinnedBuffer<T>>>> {
        let mut all = Pending::new(Vec::with_capacity(lent.len()), after.clone(), stream.clone());
        for lent in lent {
            all.add(lent.end(after)?);
        }
        Ok(all)
    }

    /// Ends the loan. The caller keeps the memory until `after`.
    fn end(mut self, after: &Event) -> Result<PinnedBuffer<T>> {
        let last = self.memory.as_ref().map(|memory| memory.allocation().end_loan());
        self.check(after, last.unwrap_or_default())?;
        let reclaimed = || Error::argument("memory", "was reclaimed");
        self.memory.take().ok_or_else(reclaimed)
    }

    fn check(&self, after: &Event, last: u64) -> Result<()> {
        if after.is_after(self.block.stream().id(), last) {
            return Ok(());
        }
        let reason = "was recorded before the memory's last use, or on another stream";
        Err(Error::argument("event", reason))
    }
}

impl<T: Pod + Send + Sync> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            memory.allocation().end_loan();
            Pending::settle(self.block.stream(), memory);
        }
    }
}

impl<T: Pod + Send + Sync> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent")
            .field("address", &self.address())
            .field("bytes", &self.bytes())
            .field("stream", self.block.stream())
            .finish()
    }
}

/// A view of [lent](Lent) memory for the host. It dereferences to a slice.
pub struct HostView<'a, T> {
    memory: &'a PinnedBuffer<T>,
    _paused: RwLockWriteGuard<'a, ()>,
}

impl<T: Pod> Deref for HostView<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.memory
    }
}

impl<T> fmt::Debug for HostView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostView").field(self.memory).finish()
    }
}
