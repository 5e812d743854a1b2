//! Cancellation of decoding by its caller.

use std::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom};

use super::Failure;

/// Maximum bytes of a file that a decoder takes between two checks for cancellation. A deflated byte becomes up to a thousand bytes of
/// pixels.
const INTERVAL: usize = 4 << 10;

/// Says whether the pixels of an image are still wanted. Decoders ask once per row of blocks, strip or tile, or some KiB of the file.
#[derive(Clone, Copy)]
pub struct Cancellation<'a>(&'a dyn Fn() -> bool);

impl<'a> Cancellation<'a> {
    /// Cancels once `is_cancelled` returns true.
    pub fn new(is_cancelled: &'a dyn Fn() -> bool) -> Self {
        Self(is_cancelled)
    }

    /// Never cancels.
    pub fn never() -> Self {
        Self(&|| false)
    }

    /// Returns true once decoding shall end.
    pub fn is_cancelled(&self) -> bool {
        (self.0)()
    }

    /// Fails if decoding is cancelled.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.is_cancelled() {
            return Err("decoding was cancelled".into());
        }
        Ok(())
    }

    /// Reads a file for a decoder that cannot be asked to stop: reading fails once decoding is cancelled.
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

/// A reader that fails once its decoding is cancelled.
#[derive(Debug)]
pub(super) struct Interruptible<'a, R> {
    inner: R,
    cancellation: Cancellation<'a>,
    /// Bytes until the next check.
    left: usize,
}

impl<R> Interruptible<'_, R> {
    fn check(&mut self) -> io::Result<()> {
        if self.left > 0 {
            return Ok(());
        }
        if self.cancellation.is_cancelled() {
            // Not `Interrupted`, after which readers try again.
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
        // A decoder that got the whole file would not come again.
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
