//! From pageable memory of the host to the device: by copies into pinned pieces, several threads at once, each piece
//! uploaded while the next ones are filled. The runtime's own copies from pageable memory are one thread's, and wait.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc;

use parking_lot::Mutex;
use rayon::ThreadPool;

use super::Uploaded;
use crate::error::Result;
use crate::hip::{Device, Pending, PinnedBuffer, Uploads};

/// Bytes of a piece: large enough for a link's full bandwidth, small enough for a core's cache. Up to this size a copy is
/// shorter than waking another thread.
const PIECE: usize = 1 << 20;

/// Pieces that a run may have in copies, after which it waits for the oldest: what bounds the pinned memory.
const MAX_PIECES: usize = 64;

/// Whether it is one of [`Pieces`].
pub(super) fn is_piece(buffer: &PinnedBuffer<u8>) -> bool {
    buffer.capacity() == PIECE
}

/// Pinned pieces.
#[derive(Debug, Default)]
pub(in crate::exec) struct Pieces(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// No run is using them.
    unused: Vec<PinnedBuffer<u8>>,
    /// How many there are, with those in use.
    all: usize,
    /// Copies of staged images, which bring their pieces back before their run has finished.
    copies: VecDeque<Uploaded>,
}

impl Pieces {
    fn take(&self, device: &Device) -> Result<PinnedBuffer<u8>> {
        // The lock is released before the driver is asked.
        let unused = {
            let mut state = self.0.lock();
            let unused = state.unused.pop();
            state.all += usize::from(unused.is_none());
            unused
        };
        match unused {
            Some(piece) => Ok(piece),
            None => Ok(device.pinned(PIECE)?),
        }
    }

    pub(super) fn keep(&self, pieces: impl IntoIterator<Item = PinnedBuffer<u8>>) {
        self.0.lock().unused.extend(pieces);
    }

    /// Copies `bytes` to pieces, on this thread: what was just written is in its caches. `None` if that would take more than
    /// `limit` bytes for all pieces.
    pub(super) fn stage(
        &self,
        bytes: &[u8],
        device: &Device,
        limit: usize,
    ) -> Result<Option<Vec<PinnedBuffer<u8>>>> {
        let count = bytes.len().div_ceil(PIECE);
        let mut pieces = {
            let mut state = self.0.lock();
            while state.unused.len() < count
                && state.copies.front().map_or(Ok(false), Pending::is_done)?
                && let Some(copies) = state.copies.pop_front()
            {
                let pieces = copies.wait()?;
                state.unused.extend(pieces);
            }
            let kept = count.min(state.unused.len());
            let new = count - kept;
            if new > 0 && state.all + new > limit / PIECE {
                return Ok(None);
            }
            state.all += new;
            let start = state.unused.len() - kept;
            state.unused.split_off(start)
        };
        while pieces.len() < count {
            pieces.push(device.pinned(PIECE)?);
        }
        for (piece, bytes) in pieces.iter_mut().zip(bytes.chunks(PIECE)) {
            piece.set_len(bytes.len())?;
            piece.copy_from_slice(bytes);
        }
        Ok(Some(pieces))
    }

    /// Submits the copy of staged `pieces`, one after the other, to the buffer from `at`.
    pub(super) fn upload_staged(
        &self,
        uploads: &mut Uploads<'_, u8>,
        mut at: usize,
        pieces: &mut Vec<PinnedBuffer<u8>>,
    ) -> Result<()> {
        for piece in pieces.drain(..) {
            let bytes = piece.len();
            uploads.push(at, piece)?;
            at += bytes;
        }
        let copies = uploads.mark()?;
        self.0.lock().copies.push_back(copies);
        Ok(())
    }

    /// Copies `parts`, one after the other, to the buffer from `at`; returns when all is submitted. Adds the copies to
    /// the run's, of which it waits for the oldest where there are too many.
    pub(super) fn upload(
        &self,
        uploads: &mut Uploads<'_, u8>,
        (at, parts): (usize, &[&[u8]]),
        (device, threads): (&Device, &ThreadPool),
        submitted: &mut VecDeque<Uploaded>,
    ) -> Result<()> {
        let gather = Gather::new(parts);
        let total = gather.bytes();
        if total == 0 {
            return Ok(());
        }
        if total <= PIECE {
            let mut piece = self.take(device)?;
            piece.set_len(total)?;
            gather.copy(0..total, &mut piece);
            uploads.push(at, piece)?;
            submitted.push_back(uploads.mark()?);
            return Ok(());
        }
        let mut starts = (0..total).step_by(PIECE).peekable();
        let (filled, pieces) = mpsc::channel();
        threads.in_place_scope(|scope| -> Result<()> {
            let mut filling = 0;
            loop {
                while submitted.front().map_or(Ok(false), Pending::is_done)? {
                    self.keep_oldest(submitted)?;
                }
                while filling + submitted.len() < MAX_PIECES
                    && let Some(start) = starts.next()
                {
                    let range = start..total.min(start + PIECE);
                    let mut piece = self.take(device)?;
                    piece.set_len(range.len())?;
                    let (gather, filled) = (&gather, filled.clone());
                    scope.spawn(move |_| {
                        gather.copy(range, &mut piece);
                        // Nobody receives it after an error.
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
        })
    }

    fn keep_oldest(&self, submitted: &mut VecDeque<Uploaded>) -> Result<()> {
        if let Some(oldest) = submitted.pop_front() {
            self.keep(oldest.wait()?);
        }
        Ok(())
    }
}

/// Parts of pageable memory as if they lay one after the other.
struct Gather<'a> {
    parts: &'a [&'a [u8]],
    /// Where each part begins, and the end of the last.
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

    /// Copies the bytes of `range` to `target`, which is as long.
    fn copy(&self, range: Range<usize>, mut target: &mut [u8]) {
        // The last part that begins at or before the range.
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
        /// Whatever the parts and the pieces are, empty ones among them.
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
