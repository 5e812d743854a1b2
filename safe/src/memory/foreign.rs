//! Device memory that another library owns, such as that of a tensor of PyTorch.

use std::ops::Range;

use bytemuck::Pod;
use hipvit_sys::hip::hipMemcpyKind;

use super::uploads::Uploads;
use crate::error::{Error, Result};
use crate::status::call;
use crate::stream::Stream;

/// Device memory that another library owns, which work on one stream may read.
#[derive(Clone, Debug)]
pub struct ForeignMemory {
    stream: Stream,
    address: u64,
    bytes: usize,
}

impl ForeignMemory {
    /// `bytes` bytes at `address` of the stream's device.
    ///
    /// # Safety
    ///
    /// The memory stays allocated until `stream` has done all work that is submitted while this, a clone or a part of it lives.
    /// Until then only work that `stream` already waits for writes to it.
    #[must_use]
    pub unsafe fn new(stream: &Stream, address: u64, bytes: usize) -> Self {
        Self {
            stream: stream.clone(),
            address,
            bytes,
        }
    }

    /// The stream that may read it.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// These bytes of it.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if it is shorter.
    pub fn part(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.bytes {
            let reason = format!("{range:?} of {} bytes", self.bytes);
            return Err(Error::argument("range", reason));
        }
        Ok(Self {
            stream: self.stream.clone(),
            address: self.address + range.start as u64,
            bytes: range.len(),
        })
    }
}

impl<T: Pod + Send + Sync> Uploads<'_, T> {
    /// Submits the copy of all of `source` to element `at` of the buffer, on the stream that may read the source. That stream has
    /// to be the copier.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if it is another's, or does not fit; the driver refuses.
    pub fn push_foreign(&mut self, at: usize, source: &ForeignMemory) -> Result<()> {
        if *self.copier() != source.stream {
            return Err(Error::argument("source", "may be read by another stream"));
        }
        if !source.bytes.is_multiple_of(size_of::<T>().max(1)) {
            let reason = format!("{} bytes are not a multiple of the element size", source.bytes);
            return Err(Error::argument("source", reason));
        }
        self.copy(at, source.bytes / size_of::<T>().max(1), |copier, hip, target| {
            // SAFETY: the target is the buffer's, of the source's length; the source is as the caller of `ForeignMemory::new` has said, and
            // `copier` is the stream that it said it of.
            unsafe {
                call!(
                    copier.device(),
                    hip.hipMemcpyAsync(
                        target.pointer(),
                        source.address as *const std::ffi::c_void,
                        target.bytes(),
                        hipMemcpyKind::hipMemcpyDeviceToDevice,
                        copier.raw(),
                    )
                )
            }
        })
    }
}
