//! How the CPU kernels share work: blocks of whole rows in parallel, and scratch memory of each thread.

use std::cell::RefCell;

use rayon::prelude::*;

/// Where an op that can run in place finds its operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// In the output's own memory.
    InPlace,
    /// Elsewhere.
    At(&'a [f32]),
}

/// Calls `f(start, block)` for blocks of `len` elements of `out`, the first of which is element `start`, in parallel.
/// The block holds the source's elements then.
pub(crate) fn in_blocks<F>(source: Source<'_>, out: &mut [f32], len: usize, f: F)
where
    F: Fn(usize, &mut [f32]) + Sync,
{
    out.par_chunks_mut(len.max(1)).enumerate().for_each(|(i, block)| {
        let start = i * len;
        if let Source::At(x) = source {
            block.copy_from_slice(&x[start..start + block.len()]);
        }
        f(start, block);
    });
}

/// Elements of a block for kernels that touch each element a few times: a part of the first-level cache.
const BLOCK: usize = 4096;

/// The largest multiple of `width`, at least one, that is not much over a good block for cheap kernels.
pub(crate) fn block_len(width: usize) -> usize {
    (BLOCK / width.max(1)).max(1) * width
}

/// Lends `len` elements of this thread's scratch memory, whose values are arbitrary.
///
/// A kernel that waits for other threads may be made to run a second kernel meanwhile, so buffers are taken off a
/// free list and not borrowed. They stay for the thread's life.
pub(crate) fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    thread_local!(static FREE: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) });
    let mut buffer = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if buffer.len() < len {
        buffer.resize(len, 0.0);
    }
    let result = f(&mut buffer[..len]);
    FREE.with_borrow_mut(|free| free.push(buffer));
    result
}
