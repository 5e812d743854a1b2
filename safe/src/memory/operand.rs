//! Uses of device memory by kernels, copies and libraries.

use std::ops::Range;
use std::sync::Arc;

use crate::address::DeviceAddress;
use crate::error::{Error, Result};
use crate::memory::block::Block;
use crate::stream::Stream;

/// A range of device memory that some work reads, or reads and writes. It borrows its buffer.
///
/// A launch or a library call takes operands of its own stream, or frozen ones.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    block: &'a Arc<Block>,
    address: DeviceAddress,
    bytes: usize,
    writable: bool,
}

impl<'a> Operand<'a> {
    /// Creates an operand. `range` is in bytes from the block's start, and must be within the part that the caller may use.
    pub(crate) fn new(block: &'a Arc<Block>, range: Range<usize>, writable: bool) -> Self {
        Self {
            block,
            address: block.address().offset(range.start),
            bytes: range.len(),
            writable,
        }
    }

    /// Returns the address of the first byte on the device.
    #[must_use]
    pub fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns this range of bytes of the operand.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the range exceeds the operand.
    pub fn part(&self, range: Range<usize>) -> Result<Self> {
        if range.start > range.end || range.end > self.bytes {
            return Err(Error::argument(
                "operand",
                format!("bytes {range:?} of an operand of {} bytes", self.bytes),
            ));
        }
        Ok(Self {
            address: self.address.offset(range.start),
            bytes: range.len(),
            ..*self
        })
    }

    /// Returns true if `bytes` bytes at `address` are within the operand.
    pub(crate) fn contains(&self, address: DeviceAddress, bytes: usize) -> bool {
        address
            .offset_from(self.address)
            .and_then(|start| usize::try_from(start).ok()?.checked_add(bytes))
            .is_some_and(|end| end <= self.bytes)
    }

    pub(crate) fn block(&self) -> &'a Arc<Block> {
        self.block
    }

    pub(crate) fn pointer(&self) -> *mut std::ffi::c_void {
        self.address.as_mut_ptr()
    }

    /// Checks the size, and write access if `written`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the operand has fewer bytes, or is read-only but written.
    pub(crate) fn expect(&self, what: &'static str, bytes: usize, written: bool) -> Result<()> {
        if self.bytes < bytes {
            return Err(Error::argument(
                what,
                format!("has {} bytes where {bytes} are needed", self.bytes),
            ));
        }
        if written && !self.writable {
            return Err(Error::argument(what, "is read-only and would be written"));
        }
        Ok(())
    }

    /// Checks that the size is exactly `bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the size differs.
    pub(crate) fn expect_exactly(&self, what: &'static str, bytes: usize) -> Result<()> {
        if self.bytes == bytes {
            Ok(())
        } else {
            Err(Error::argument(
                what,
                format!("{} bytes into a buffer of {bytes}", self.bytes),
            ))
        }
    }

    /// Ensures that `stream` may use the operand.
    pub(crate) fn admit(&self, stream: &Stream) -> Result<()> {
        if self.block.is_foreign() {
            // A captured graph would use the memory after its library has freed it.
            stream.refuse_capture("memory of another library")?;
        }
        if self.block.is_frozen() {
            return self.block.admit_reader(stream);
        }
        if self.block.stream() != stream && !self.block.is_shared_with(stream) {
            return Err(Error::argument(
                "operand",
                "belongs to a different stream; move it to this stream after an event, or freeze it",
            ));
        }
        Ok(())
    }
}
