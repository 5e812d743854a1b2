//! Lets a caller cancel decoding.

use std::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

use super::failure::Failure;

/// Maximum number of file bytes that a decoder reads between two checks for cancellation. A deflated byte expands to at
/// most about a thousand bytes of pixels.
const INTERVAL: usize = 4 << 10;

/// Tells decoders whether the caller has cancelled. They check once per row of blocks, strip, tile, or few KiB of the
/// file.
#[derive(Clone, Copy)]
pub struct Cancellation<'a>(&'a dyn Fn() -> bool);

impl<'a> Cancellation<'a> {
    /// Creates a cancellation that takes effect once `is_cancelled` returns true.
    pub fn new(is_cancelled: &'a dyn Fn() -> bool) -> Self {
        Self(is_cancelled)
    }

    /// Creates a cancellation that never takes effect.
    pub fn never() -> Self {
        Self(&|| false)
    }

    /// Returns true if decoding must stop.
    pub fn is_cancelled(&self) -> bool {
        (self.0)()
    }

    /// Returns an error if decoding is cancelled.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.is_cancelled() {
            return Err("decoding was cancelled".into());
        }
        Ok(())
    }

    /// Wraps a reader so that reading fails once decoding is cancelled. For decoders that cannot be stopped otherwise.
    pub(super) fn reader<R>(self, inner: R) -> Interruptible<'a, R> {
        Interruptible {
            inner,
            cancellation: self,
            left: 0,
        }
    }
}

impl fmt::Debug for Cancellation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancellation").finish_non_exhaustive()
    }
}

/// Reader that fails once decoding is cancelled.
#[derive(Debug)]
pub(super) struct Interruptible<'a, R> {
    inner: R,
    cancellation: Cancellation<'a>,
    /// Number of bytes until the next check.
    left: usize,
}

impl<R> Interruptible<'_, R> {
    fn check(&mut self) -> io::Result<()> {
        if self.left > 0 {
            return Ok(());
        }
        if self.cancellation.is_cancelled() {
            // Not `ErrorKind::Interrupted`, after which readers retry.
            return Err(io::Error::other("decoding was cancelled"));
        }
        self.left = INTERVAL;
        Ok(())
    }
}

impl<R: Read> Read for Interruptible<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let read = self.inner.read(buffer)?;
        self.left = self.left.saturating_sub(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Interruptible<'_, R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.check()?;
        let bytes = self.inner.fill_buf()?;
        // A decoder that gets the whole file at once never reads again.
        Ok(&bytes[..bytes.len().min(INTERVAL)])
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.left = self.left.saturating_sub(count);
    }
}

impl<R: Seek> Seek for Interruptible<'_, R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.inner.seek(position)
    }
}
