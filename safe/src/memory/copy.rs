//! Copies of rows that are not contiguous, and filling of memory.

use hipvit_sys::hip::hipMemcpyKind;

use crate::error::{Error, Result};
use crate::memory::buffer;
use crate::memory::operand::Operand;
use crate::status::call;
use crate::stream::Stream;

impl Stream {
    /// Sets every byte of a target.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the target is read-only; [`Error::Device`] if the driver fails.
    pub fn fill(&self, target: Operand<'_>, byte: u8) -> Result<()> {
        target.expect("target", target.bytes(), true)?;
        buffer::fill(&target, byte)
    }

    /// Copies `rows` rows of `row_bytes` bytes each on the device. Each operand has a stride: the bytes from the start of one row to the
    /// next.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if a stride is shorter than a row, the rows exceed an operand, or the target is read-only;
    /// [`Error::Device`] if the driver refuses.
    pub fn copy_rows(
        &self,
        (target, target_stride): (Operand<'_>, usize),
        (source, source_stride): (Operand<'_>, usize),
        row_bytes: usize,
        rows: usize,
    ) -> Result<()> {
        if rows == 0 || row_bytes == 0 {
            return Ok(());
        }
        let bytes = |stride: usize| {
            if stride >= row_bytes {
                stride.checked_mul(rows - 1)?.checked_add(row_bytes)
            } else {
                None
            }
        };
        let outside = || {
            Error::argument(
                "rows",
                format!("{rows} of {row_bytes} bytes do not fit the stride"),
            )
        };
        target.expect("target", bytes(target_stride).ok_or_else(outside)?, true)?;
        source.expect("source", bytes(source_stride).ok_or_else(outside)?, false)?;
        self.submit(&[target, source], |hip| {
            // SAFETY: `expect` ensured that all rows are within the operands, which this stream orders.
            unsafe {
                call!(
                    self.device(),
                    hip.hipMemcpy2DAsync(
                        target.pointer(),
                        target_stride,
                        source.pointer(),
                        source_stride,
                        row_bytes,
                        rows,
                        hipMemcpyKind::hipMemcpyDeviceToDevice,
                        self.raw(),
                    )
                )
            }
        })
    }
}
