//! Copies to device memory on a stream other than the owner.

use bytemuck::Pod;
use hipvit_sys::Hip;
use hipvit_sys::hip::hipMemcpyKind;

use crate::error::{Error, Result};
use crate::event::Event;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::memory::pending::Pending;
use crate::memory::pinned::PinnedBuffer;
use crate::status::call;
use crate::stream::Stream;

/// Copies from pinned memory to a buffer on another stream than the buffer's. They overlap with the work of the buffer's stream and with
/// the filling of the next piece. Created by [`DeviceBuffer::uploads_on`].
///
/// The buffer is borrowed until [`finish`](Uploads::finish). The later work of its stream then runs after all copies. Dropping this without
/// `finish` waits for the copies.
///
/// ```no_run
/// # fn main() -> hip_safe::Result<()> {
/// # let device = hip_safe::Runtime::open()?.device(0)?;
/// let (copy, compute) = (device.stream()?, device.stream()?);
/// let mut buffer = compute.allocate::<u8>(2 << 20)?;
/// let mut uploads = buffer.uploads_on(&copy)?;
/// for at in [0, 1 << 20] {
///     let mut piece = device.pinned(1 << 20)?;
///     piece.fill(7); // While the piece before it is copied.
///     uploads.push(at, piece)?;
/// }
/// let pieces = uploads.finish()?.wait()?;
/// assert_eq!(pieces.len(), 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it waits for the copies"]
#[derive(Debug)]
pub struct Uploads<'a, T: Pod + Send + Sync> {
    buffer: &'a mut DeviceBuffer<T>,
    copier: Stream,
    /// Pinned memory of the copies since the last mark.
    sources: Vec<PinnedBuffer<T>>,
    /// Event after the last copy, unless a mark has taken it.
    last: Option<Event>,
    finished: bool,
}

impl<T: Pod + Send + Sync> DeviceBuffer<T> {
    /// Starts copies to the buffer on `copier`, which first waits for the earlier work of the buffer's stream.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if `copier` belongs to another device, or during a capture of either stream; [`Error::Device`] if the driver
    /// fails.
    pub fn uploads_on(&mut self, copier: &Stream) -> Result<Uploads<'_, T>> {
        let stream = self.stream();
        if copier.device() != stream.device() {
            return Err(Error::argument(
                "copier",
                "belongs to a different device than the buffer",
            ));
        }
        for stream in [stream, copier] {
            stream.refuse_capture("an asynchronous copy")?;
        }
        if copier != stream {
            copier.wait(&stream.mark()?)?;
        }
        Ok(Uploads {
            copier: copier.clone(),
            buffer: self,
            sources: Vec::new(),
            last: None,
            finished: false,
        })
    }
}

impl<T: Pod + Send + Sync> Uploads<'_, T> {
    /// Submits a copy of all of `source` to element `at` of the buffer. The next [`mark`](Uploads::mark) or [`finish`](Uploads::finish)
    /// returns `source`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the source does not fit; [`Error::Device`] if the driver fails.
    pub fn push(&mut self, at: usize, source: PinnedBuffer<T>) -> Result<()> {
        let (len, from) = (source.len(), source.as_ptr());
        self.buffer.range(at, len)?;
        self.sources.push(source);
        self.copy(at, len, |copier, hip, target| {
            // SAFETY: the target has as many bytes as the pinned memory. That is in `sources`, so it is neither freed nor accessed before
            // the copy is done.
            unsafe {
                call!(
                    copier.device(),
                    hip.hipMemcpyAsync(
                        target.pointer(),
                        from.cast(),
                        target.bytes(),
                        hipMemcpyKind::hipMemcpyHostToDevice,
                        copier.raw(),
                    )
                )
            }
        })
    }

    pub(super) fn copier(&self) -> &Stream {
        &self.copier
    }

    /// Submits `work` on the copier, which copies to `len` elements of the buffer from `at` on. The copier waits for the buffer's earlier
    /// uses. The buffer's stream waits for the copy before this returns; after an error, dropping `self` waits.
    pub(super) fn copy(
        &mut self,
        at: usize,
        len: usize,
        work: impl FnOnce(&Stream, &Hip, &Operand<'_>) -> Result<()>,
    ) -> Result<()> {
        let range = self.buffer.range(at, len)?;
        let target = self.buffer.writing().part(range)?;
        let copier = &self.copier;
        // No operands: the event before and the wait after lend the buffer to `copier`.
        copier.submit(&[], |hip| work(copier, hip, &target))?;
        // Wait immediately, so that this holds even if `self` is forgotten.
        let event = copier.mark()?;
        self.buffer.stream().wait(&event)?;
        self.last = Some(event);
        Ok(())
    }

    /// Returns the pinned memory of all copies since the last mark.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails.
    pub fn mark(&mut self) -> Result<Pending<Vec<PinnedBuffer<T>>>> {
        let event = match self.last.take() {
            Some(event) => event,
            None => self.copier.mark()?,
        };
        let sources = std::mem::take(&mut self.sources);
        Ok(Pending::new(sources, event, self.copier.clone()))
    }

    /// Makes the buffer's stream wait for all copies. Returns the pinned memory of the copies since the last mark.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] if the driver fails.
    pub fn finish(mut self) -> Result<Pending<Vec<PinnedBuffer<T>>>> {
        let copies = self.mark()?;
        let stream = self.buffer.stream().clone();
        let whole: Operand<'_> = self.buffer.writing();
        stream.submit(&[whole], |_| Ok(()))?;
        self.finished = true;
        Ok(copies)
    }
}

impl<T: Pod + Send + Sync> Drop for Uploads<'_, T> {
    fn drop(&mut self) {
        if !self.finished {
            // The buffer's stream does not wait for the copies, including those before a mark.
            Pending::settle(&self.copier, std::mem::take(&mut self.sources));
        }
    }
}
