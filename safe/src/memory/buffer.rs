//! Device memory with an element type and an owning stream.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use hipvit_sys::hip::hipMemcpyKind;

use crate::address::DeviceAddress;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::block::Block;
use crate::memory::operand::Operand;
use crate::memory::pending::Pending;
use crate::memory::pinned::{PinnedBuffer, PinnedRing};
use crate::status::call;
use crate::stream::Stream;

/// Maximum bytes that a synchronous copy stages at a time.
const STAGE: usize = 4 << 20;

/// `len` elements of `T` in device memory that belong to a stream. The stream orders all work on them, and they return to the pool in its
/// order.
///
/// To use the buffer on another stream, move it there with an event:
///
/// ```no_run
/// # fn main() -> hip_safe::Result<()> {
/// # let device = hip_safe::Runtime::open()?.device(0)?;
/// let (copy, compute) = (device.stream()?, device.stream()?);
/// let buffer = copy.upload(&[1.0f32, 2.0])?;
/// let ready = copy.mark()?;
/// let buffer = buffer.move_to(&compute, &ready)?;
/// assert_eq!(buffer.read()?, [1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
///
/// The original variable cannot be used after the move:
///
/// ```compile_fail,E0382
/// # fn main() -> hip_safe::Result<()> {
/// # let device = hip_safe::Runtime::open()?.device(0)?;
/// # let (copy, compute) = (device.stream()?, device.stream()?);
/// # let buffer = copy.upload(&[1.0f32, 2.0])?;
/// let moved = buffer.move_to(&compute, &copy.mark()?)?;
/// buffer.read()?;
/// # Ok(())
/// # }
/// ```
pub struct DeviceBuffer<T> {
    block: Arc<Block>,
    len: usize,
    element: PhantomData<fn() -> T>,
}

impl Stream {
    /// Allocates device memory for `len` elements, with arbitrary contents.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the device has too little memory; [`Error::Argument`] during a capture of the stream, or if the size
    /// overflows.
    pub fn allocate<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        DeviceBuffer::new(self, len)
    }

    /// Allocates device memory for `len` elements, filled with zeros.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the device has too little memory; [`Error::Argument`] during a capture of the stream, or if the size
    /// overflows.
    pub fn zeroed<T: Pod>(&self, len: usize) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.allocate(len)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// Allocates device memory with a copy of the values, and waits for the copy.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the device has too little memory; [`Error::Device`] if the copy fails.
    pub fn upload<T: Pod + Send + Sync>(&self, values: &[T]) -> Result<DeviceBuffer<T>> {
        let mut buffer = self.allocate(values.len())?;
        buffer.write(values)?;
        Ok(buffer)
    }
}

impl<T: Pod> DeviceBuffer<T> {
    fn new(stream: &Stream, len: usize) -> Result<Self> {
        let bytes = len.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| Error::argument("len", format!("{len} elements are too many")))?;
        Ok(Self {
            block: Block::allocate(stream, bytes)?,
            len,
            element: PhantomData,
        })
    }

    /// Returns the memory.
    pub(super) fn into_block(self) -> Arc<Block> {
        self.block
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Returns the address of the first byte on the device.
    #[must_use]
    pub fn address(&self) -> DeviceAddress {
        self.block.address()
    }

    /// Returns the owning stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.block.stream()
    }

    /// Returns the whole buffer as an operand to read.
    #[must_use]
    pub fn reading(&self) -> Operand<'_> {
        Operand::new(&self.block, 0..self.bytes(), false)
    }

    /// Returns the whole buffer as an operand to read and write.
    #[must_use]
    pub fn writing(&mut self) -> Operand<'_> {
        Operand::new(&self.block, 0..self.bytes(), true)
    }

    /// Copies all of `source` to the buffer, starting at element `at`, without waiting. [`Pending::wait`] returns the pinned memory, which
    /// cannot be accessed before:
    ///
    /// ```compile_fail,E0382
    /// # fn main() -> hip_safe::Result<()> {
    /// # let device = hip_safe::Runtime::open()?.device(0)?;
    /// # let stream = device.stream()?;
    /// let mut pinned = device.pinned::<f32>(4)?;
    /// let mut buffer = stream.allocate::<f32>(4)?;
    /// let pending = buffer.upload(0, pinned)?;
    /// pinned[0] = 1.0;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the source does not fit, or during a capture of the stream; [`Error::Device`] if the copy fails.
    pub fn upload(&mut self, at: usize, source: PinnedBuffer<T>) -> Result<Pending<PinnedBuffer<T>>>
    where
        T: Send + Sync,
    {
        let range = self.range(at, source.len())?;
        let operand = Operand::new(&self.block, range, true);
        let stream = self.block.stream();
        stream.submit_with(&[operand], source, |hip, source| {
            // SAFETY: the device memory belongs to the buffer, with as many bytes as the pinned memory has, which `submit_with` keeps until
            // the copy is done.
            unsafe {
                call!(
                    stream.device(),
                    hip.hipMemcpyAsync(
                        operand.pointer(),
                        source.as_ptr().cast(),
                        operand.bytes(),
                        hipMemcpyKind::hipMemcpyHostToDevice,
                        stream.raw(),
                    )
                )
            }
        })
    }

    /// Copies elements from `at` on into all of `target`, without waiting.
    ///
    /// ```compile_fail,E0382
    /// # fn main() -> hip_safe::Result<()> {
    /// # let device = hip_safe::Runtime::open()?.device(0)?;
    /// # let stream = device.stream()?;
    /// let pinned = device.pinned::<f32>(4)?;
    /// let buffer = stream.zeroed::<f32>(4)?;
    /// let pending = buffer.download(0, pinned)?;
    /// println!("{}", pinned[0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the buffer has too few elements; [`Error::Device`] if the copy fails.
    pub fn download(&self, at: usize, target: PinnedBuffer<T>) -> Result<Pending<PinnedBuffer<T>>>
    where
        T: Send + Sync,
    {
        let range = self.range(at, target.len())?;
        let operand = Operand::new(&self.block, range, false);
        let stream = self.block.stream();
        stream.submit_with(&[operand], target, |hip, target| {
            // SAFETY: the pinned memory outlives the copy, as in the upload. No other code can access it, and any bytes are valid.
            unsafe {
                call!(
                    stream.device(),
                    hip.hipMemcpyAsync(
                        target.as_ptr().cast_mut().cast(),
                        operand.pointer(),
                        operand.bytes(),
                        hipMemcpyKind::hipMemcpyDeviceToHost,
                        stream.raw(),
                    )
                )
            }
        })
    }

    /// Copies the values to the start of the buffer, and waits for the copy.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the values exceed the buffer; [`Error::Device`] if the copy fails.
    pub fn write(&mut self, values: &[T]) -> Result<()>
    where
        T: Send + Sync,
    {
        let chunk = chunk::<T>(values.len());
        let mut ring = self.stream().device().pinned_ring(2, chunk)?;
        self.write_through(0, values, &mut ring)?;
        ring.wait()
    }

    /// Copies the values to the buffer, starting at element `at`, in pieces through the buffers of the ring. Only waits for free buffers.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the values exceed the buffer; [`Error::Device`] if a copy fails.
    pub fn write_through(&mut self, at: usize, values: &[T], ring: &mut PinnedRing<T>) -> Result<()>
    where
        T: Send + Sync,
    {
        self.range(at, values.len())?;
        let mut done = 0;
        while done < values.len() {
            let mut pinned = ring.next()?;
            let rest = &values[done..];
            let piece = &rest[..rest.len().min(pinned.capacity())];
            if piece.is_empty() {
                return Err(Error::argument("ring", "its buffers have no capacity"));
            }
            pinned.set_len(piece.len())?;
            pinned.copy_from_slice(piece);
            ring.submitted(self.upload(at + done, pinned)?);
            done += piece.len();
        }
        Ok(())
    }

    /// Copies all elements to the host. Waits for the copy and all earlier work of the stream.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the copy or earlier work of the stream failed.
    pub fn read(&self) -> Result<Vec<T>>
    where
        T: Send + Sync,
    {
        let chunk = chunk::<T>(self.len);
        let mut values = Vec::with_capacity(self.len);
        while values.len() < self.len {
            let take = chunk.min(self.len - values.len());
            let pinned = self.stream().device().pinned(take)?;
            values.extend_from_slice(&self.download(values.len(), pinned)?.wait()?);
        }
        Ok(values)
    }

    /// Sets every byte.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails.
    pub fn fill(&mut self, byte: u8) -> Result<()> {
        fill(&self.writing(), byte)
    }

    /// Sets every byte of the elements `range`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the range exceeds the buffer; [`Error::Device`] if the driver refuses.
    pub fn fill_part(&mut self, range: Range<usize>, byte: u8) -> Result<()> {
        let bytes = self.range(range.start, range.end.saturating_sub(range.start))?;
        fill(&Operand::new(&self.block, bytes, true), byte)
    }

    /// Copies all of `source` on the device. Both must have the same size.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the lengths differ or `source` belongs to another stream; [`Error::Device`] if the driver fails.
    pub fn copy_from(&mut self, source: Operand<'_>) -> Result<()> {
        let stream = self.stream().clone();
        let bytes = self.bytes();
        let target = self.writing();
        source.expect_exactly("source", bytes)?;
        stream.submit(&[target, source], |hip| {
            // SAFETY: both are device memory of this size. They do not overlap, because the target is mutably borrowed.
            unsafe {
                call!(
                    stream.device(),
                    hip.hipMemcpyAsync(
                        target.pointer(),
                        source.pointer(),
                        bytes,
                        hipMemcpyKind::hipMemcpyDeviceToDevice,
                        stream.raw(),
                    )
                )
            }
        })
    }

    /// Moves the buffer to `stream`, whose work then runs after `event`. The event must have been recorded on the buffer's present stream,
    /// after the buffer's last use.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the event does not meet this condition, the stream belongs to another device, or a graph uses the buffer. The
    /// buffer is lost then.
    pub fn move_to(mut self, stream: &Stream, event: &Event) -> Result<Self> {
        let block = Arc::get_mut(&mut self.block)
            .ok_or_else(|| Error::argument("buffer", "is used by a captured graph"))?;
        block.rehome(stream, event)?;
        Ok(self)
    }

    /// Makes the buffer read-only, on any stream of its device.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if a graph uses the buffer; [`Error::Device`] if the driver fails.
    pub fn freeze(mut self) -> Result<Frozen<T>> {
        Arc::get_mut(&mut self.block)
            .ok_or_else(|| Error::argument("buffer", "is used by a captured graph"))?
            .freeze()?;
        Ok(Frozen { buffer: self })
    }

    pub(crate) fn range(&self, at: usize, len: usize) -> Result<Range<usize>> {
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok(at * size_of::<T>()..end * size_of::<T>()),
            _ => Err(Error::argument(
                "buffer",
                format!("{len} elements from {at} on, of {}", self.len),
            )),
        }
    }
}

impl<'a, T: Pod> From<&'a DeviceBuffer<T>> for Operand<'a> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.reading()
    }
}

impl<'a, T: Pod> From<&'a mut DeviceBuffer<T>> for Operand<'a> {
    fn from(buffer: &'a mut DeviceBuffer<T>) -> Self {
        buffer.writing()
    }
}

impl<'a, T: Pod> From<&'a Frozen<T>> for Operand<'a> {
    fn from(buffer: &'a Frozen<T>) -> Self {
        buffer.reading()
    }
}

/// Sets every byte of an operand, on its own stream.
pub(crate) fn fill(operand: &Operand<'_>, byte: u8) -> Result<()> {
    let stream = operand.block().stream().clone();
    operand.expect("buffer", 0, true)?;
    if operand.bytes() == 0 {
        return Ok(());
    }
    stream.submit(&[*operand], |hip| {
        // SAFETY: the device memory belongs to the operand and is writable.
        unsafe {
            call!(
                stream.device(),
                hip.hipMemsetAsync(operand.pointer(), i32::from(byte), operand.bytes(), stream.raw())
            )
        }
    })
}

/// Returns the number of elements that a synchronous copy of `len` elements stages at a time, at least 1.
fn chunk<T>(len: usize) -> usize {
    (STAGE / size_of::<T>().max(1)).clamp(1, len.max(1))
}

impl<T: Pod> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer")
            .field("address", &self.address())
            .field("len", &self.len)
            .field("stream", self.stream())
            .finish()
    }
}

/// A buffer that is read-only from now on, on any stream of its device. Each stream waits for the buffer's last write before its first use.
/// Weights are frozen. Writing to it does not compile:
///
/// ```compile_fail,E0599
/// # fn main() -> hip_safe::Result<()> {
/// # let stream = hip_safe::Runtime::open()?.device(0)?.stream()?;
/// let mut weights = stream.upload(&[1.0f32])?.freeze()?;
/// weights.writing();
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Frozen<T: Pod> {
    buffer: DeviceBuffer<T>,
}

impl<T: Pod> Frozen<T> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Returns true if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// Returns the address of the first byte on the device.
    #[must_use]
    pub fn address(&self) -> DeviceAddress {
        self.buffer.address()
    }

    /// Returns the whole buffer as an operand to read.
    #[must_use]
    pub fn reading(&self) -> Operand<'_> {
        self.buffer.reading()
    }

    /// Copies all elements to the host. Waits for the copy and all earlier work of the stream.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the copy or earlier work of the stream failed.
    pub fn read(&self) -> Result<Vec<T>>
    where
        T: Send + Sync,
    {
        self.buffer.read()
    }
}
