//! Device memory that another library owns, such as that of a PyTorch tensor.

use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use hipvit_sys::hip::hipMemcpyKind;

use super::block::Block;
use super::buffer::DeviceBuffer;
use super::operand::Operand;
use super::uploads::Uploads;
use crate::address::DeviceAddress;
use crate::error::{Error, Result};
use crate::status::call;
use crate::stream::Stream;

/// Device memory that another library owns, and that work of one stream may use. Or a buffer of this library, several parts of which runs
/// take as inputs.
#[derive(Clone, Debug)]
pub struct ForeignMemory {
    block: Arc<Block>,
    range: Range<usize>,
}

impl ForeignMemory {
    /// Wraps `bytes` bytes at `address` of the stream's device.
    ///
    /// # Safety
    ///
    /// The memory must stay allocated until `stream` has done all work that is submitted while the result, a clone or a part of it is
    /// alive. Until then, only work that `stream` already waits for may write to it. If [`writing`](Self::writing) is called, other
    /// work must not read it either.
    #[must_use]
    pub unsafe fn new(stream: &Stream, address: DeviceAddress, bytes: usize) -> Self {
        Self {
            block: Block::foreign(stream, address),
            range: 0..bytes,
        }
    }

    /// Returns the stream that may use the memory.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.block.stream()
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Returns the memory as an operand to read.
    #[must_use]
    pub fn reading(&self) -> Operand<'_> {
        Operand::new(&self.block, self.range.clone(), false)
    }

    /// Returns the memory as an operand to read and write.
    #[must_use]
    pub fn writing(&mut self) -> Operand<'_> {
        Operand::new(&self.block, self.range.clone(), true)
    }

    /// Returns this range of bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the range exceeds the memory.
    pub fn part(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.bytes() {
            let reason = format!("{range:?} of {} bytes", self.bytes());
            return Err(Error::argument("range", reason));
        }
        let first = self.range.start;
        Ok(Self {
            block: self.block.clone(),
            range: first + range.start..first + range.end,
        })
    }
}

/// Shares a buffer. It returns to the pool with the last clone or part of the result.
impl<T: Pod> From<DeviceBuffer<T>> for ForeignMemory {
    fn from(buffer: DeviceBuffer<T>) -> Self {
        let range = 0..buffer.bytes();
        Self {
            block: buffer.into_block(),
            range,
        }
    }
}

impl<T: Pod + Send + Sync> Uploads<'_, T> {
    /// Submits a copy of all of `source` to element `at` of the buffer. The copier must be the stream that may read the source.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the copier is another stream, or if the source does not fit; [`Error::Device`] if the driver fails.
    pub fn push_foreign(&mut self, at: usize, source: &ForeignMemory) -> Result<()> {
        if self.copier() != source.stream() {
            return Err(Error::argument("source", "may be read by another stream"));
        }
        let (bytes, operand) = (source.bytes(), source.reading());
        if !bytes.is_multiple_of(size_of::<T>().max(1)) {
            let reason = format!("{bytes} bytes are not a multiple of the element size");
            return Err(Error::argument("source", reason));
        }
        self.copy(at, bytes / size_of::<T>().max(1), |copier, hip, target| {
            // SAFETY: the target belongs to the buffer and has the source's length. The caller of `ForeignMemory::new` guaranteed the
            // source for this stream, which is `copier`.
            unsafe {
                call!(
                    copier.device(),
                    hip.hipMemcpyAsync(
                        target.pointer(),
                        operand.pointer(),
                        target.bytes(),
                        hipMemcpyKind::hipMemcpyDeviceToDevice,
                        copier.raw(),
                    )
                )
            }
        })
    }
}
