//! Copies from pageable host memory to the device through pinned pieces. Several threads fill pieces while earlier pieces are uploaded. The
//! runtime's copies from pageable memory use one thread and block.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc;

use parking_lot::Mutex;
use rayon::ThreadPool;
use rayon::prelude::*;

use crate::error::Result;
use crate::hip::{Device, Pending, PinnedBuffer, Uploads};

/// Bytes of a piece: large enough for the link's full bandwidth, small enough for a core's cache. Copying less than this is faster than
/// waking another thread.
const PIECE: usize = 1 << 20;

/// Maximum number of pieces in flight per run, which bounds the pinned memory. Further pieces wait for the oldest copy.
const MAX_PIECES: usize = 64;

/// Pinned memory that the device still copies from.
pub(super) type Uploaded = Pending<Vec<PinnedBuffer<u8>>>;

/// Returns true if [`Pieces::upload`] allocated the buffer.
pub(super) fn is_piece(buffer: &PinnedBuffer<u8>) -> bool {
    buffer.capacity() == PIECE
}

/// Pinned pieces that no run uses.
#[derive(Debug, Default)]
pub(super) struct Pieces(Mutex<Vec<PinnedBuffer<u8>>>);

impl Pieces {
    fn take(&self, device: &Device) -> Result<PinnedBuffer<u8>> {
        // Release the lock before calling the driver.
        let unused = self.0.lock().pop();
        match unused {
            Some(piece) => Ok(piece),
            None => Ok(device.pinned(PIECE)?),
        }
    }

    pub(super) fn keep(&self, pieces: impl IntoIterator<Item = PinnedBuffer<u8>>) {
        self.0.lock().extend(pieces);
    }

    /// Copies the concatenation of `parts` to the buffer, starting at byte `at`. Returns when all copies are submitted, and adds them to
    /// `submitted`. Waits for the oldest of these if there are too many.
    pub(super) fn upload(
        &self,
        mut uploads: Uploads<'_, u8>,
        at: usize,
        parts: &[&[u8]],
        device: &Device,
        threads: &ThreadPool,
        submitted: &mut VecDeque<Uploaded>,
    ) -> Result<()> {
        let gather = Gather::new(parts);
        let total = gather.bytes();
        if total <= PIECE {
            let mut piece = self.take(device)?;
            piece.set_len(total)?;
            gather.copy(0..total, &mut piece);
            uploads.push(at, piece)?;
            submitted.push_back(uploads.finish()?);
            return Ok(());
        }
        let mut starts = (0..total).step_by(PIECE).peekable();
        let (filled, pieces) = mpsc::channel();
        threads.in_place_scope(|scope| -> Result<()> {
            let mut filling = 0;
            loop {
                self.keep_finished(submitted)?;
                while filling + submitted.len() < MAX_PIECES
                    && let Some(start) = starts.next()
                {
                    let range = start..total.min(start + PIECE);
                    let mut piece = self.take(device)?;
                    piece.set_len(range.len())?;
                    let (gather, filled) = (&gather, filled.clone());
                    scope.spawn(move |_| {
                        gather.copy(range, &mut piece);
                        // After an error the receiver is dropped.
                        let _ = filled.send((start, piece));
                    });
                    filling += 1;
                }
                if filling > 0 {
                    let Ok((start, piece)) = pieces.recv() else {
                        return Ok(());
                    };
                    filling -= 1;
                    uploads.push(at + start, piece)?;
                    submitted.push_back(uploads.mark()?);
                } else if starts.peek().is_some() {
                    self.keep_oldest(submitted)?;
                } else {
                    return Ok(());
                }
            }
        })?;
        submitted.push_back(uploads.finish()?);
        Ok(())
    }

    /// Keeps the memory of finished copies, up to the first one that is not.
    pub(super) fn keep_finished(&self, submitted: &mut VecDeque<Uploaded>) -> Result<()> {
        // `keep_oldest` reports a failed copy.
        let over = |copy: &Uploaded| copy.is_done().unwrap_or(true);
        while submitted.front().is_some_and(over) {
            self.keep_oldest(submitted)?;
        }
        Ok(())
    }

    fn keep_oldest(&self, submitted: &mut VecDeque<Uploaded>) -> Result<()> {
        if let Some(oldest) = submitted.pop_front() {
            self.keep(oldest.wait()?);
        }
        Ok(())
    }
}

/// Copies `source` to `target` of the same size, on several threads if that is faster.
pub(super) fn fill(target: &mut [u8], source: &[u8], threads: &ThreadPool) {
    if target.len() <= PIECE {
        target.copy_from_slice(source);
        return;
    }
    let pieces = target.par_chunks_mut(PIECE).zip(source.par_chunks(PIECE));
    threads.install(|| pieces.for_each(|(target, source)| target.copy_from_slice(source)));
}

/// Parts of pageable memory, addressed as if they were contiguous.
struct Gather<'a> {
    parts: &'a [&'a [u8]],
    /// Start of each part, and the end of the last.
    starts: Vec<usize>,
}

impl<'a> Gather<'a> {
    fn new(parts: &'a [&'a [u8]]) -> Self {
        let mut end = 0;
        let mut starts = vec![0];
        for part in parts {
            end += part.len();
            starts.push(end);
        }
        Self { parts, starts }
    }

    fn bytes(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Copies the bytes of `range` to `target`, which has the same length.
    fn copy(&self, range: Range<usize>, mut target: &mut [u8]) {
        // The last part that starts at or before the range.
        let first = self.starts.partition_point(|&start| start <= range.start) - 1;
        let mut at = range.start;
        for (part, start) in self.parts.iter().zip(&self.starts).skip(first) {
            let rest = &part[at - start..];
            let (now, later) = target.split_at_mut(rest.len().min(target.len()));
            now.copy_from_slice(&rest[..now.len()]);
            at += now.len();
            target = later;
            if target.is_empty() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Holds for any sizes of parts and pieces, including empty ones.
        #[test]
        fn pieces_of_parts_are_pieces_of_the_whole(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8),
            piece in 1usize..50,
        ) {
            let whole = parts.concat();
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let gather = Gather::new(&slices);
            prop_assert_eq!(gather.bytes(), whole.len());
            for start in (0..whole.len()).step_by(piece) {
                let range = start..whole.len().min(start + piece);
                let mut target = vec![0; range.len()];
                gather.copy(range.clone(), &mut target);
                prop_assert_eq!(&target[..], &whole[range]);
            }
        }
    }
}
