//! Shared parts of the CPU kernels: parallel blocks of whole rows, and scratch memory per thread.

use std::cell::RefCell;

use hipvit_graph::op::OpError;
use rayon::prelude::*;

/// Parallel loops whose machine code is shared.
pub(crate) trait SharedLoop: IndexedParallelIterator {
    /// Calls `f` in parallel for each item, as `for_each` does. Rayon's code is compiled once per type of iterator instead of once per closure.
    /// An item should be worth more than an indirect call.
    fn for_each_item<'a>(self, f: impl Fn(Self::Item) + Sync + 'a) {
        let f: &(dyn Fn(Self::Item) + Sync + 'a) = &f;
        self.for_each(f);
    }

    /// Calls `f` in parallel for each item, as `try_for_each` does. See [`SharedLoop::for_each_item`].
    fn try_for_each_item<'a>(
        self,
        f: impl Fn(Self::Item) -> Result<(), OpError> + Sync + 'a,
    ) -> Result<(), OpError> {
        let f: &(dyn Fn(Self::Item) -> Result<(), OpError> + Sync + 'a) = &f;
        self.try_for_each(f)
    }
}

impl<I: IndexedParallelIterator> SharedLoop for I {}

/// The operand of an op that can run in place.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// The operand is in the output's memory.
    InPlace,
    /// The operand is in other memory.
    At(&'a [f32]),
}

/// Calls `f(start, block)` in parallel for blocks of `len` elements of `out`. `start` is the index of the block's first element. The block
/// holds the source's elements on entry.
pub(crate) fn in_blocks(
    source: Source<'_>,
    out: &mut [f32],
    len: usize,
    f: impl Fn(usize, &mut [f32]) + Sync,
) {
    // A block is worth more than a call, and parallel loops are much code.
    dispatch_blocks(source, out, len, &f);
}

fn dispatch_blocks(source: Source<'_>, out: &mut [f32], len: usize, f: &(dyn Fn(usize, &mut [f32]) + Sync)) {
    out.par_chunks_mut(len.max(1))
        .enumerate()
        .for_each_item(|(i, block)| {
            let start = i * len;
            if let Source::At(x) = source {
                block.copy_from_slice(&x[start..start + block.len()]);
            }
            f(start, block);
        });
}

/// Rows that a thread adds up at once. The order of a sum does not depend on the number of threads.
const SUMMED_ROWS: usize = 256;

/// Sums the columns of `values`, whose rows have the length of `sums`.
pub(super) fn sum_rows(values: &[f32], sums: &mut [f32]) {
    let columns = sums.len();
    let blocks = values.par_chunks(SUMMED_ROWS * columns).map(|block| {
        let mut sums = vec![0.0; columns];
        add_rows(block, &mut sums);
        sums
    });
    let blocks: Vec<Vec<f32>> = blocks.collect();
    sums.fill(0.0);
    blocks.iter().for_each(|block| add_rows(block, sums));
}

/// Adds rows of the length of `sums` to `sums`, in order.
pub(super) fn add_rows(rows: &[f32], sums: &mut [f32]) {
    for row in rows.chunks_exact(sums.len()) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
}

/// Elements per block for kernels that access each element a few times. A fraction of the L1 cache.
const BLOCK: usize = 4096;

/// Returns the length of a block for cheap kernels: the largest multiple of `width` up to [`BLOCK`], or `width` if it is larger.
pub(crate) fn block_len(width: usize) -> usize {
    (BLOCK / width.max(1)).max(1) * width
}

/// Lends `len` elements of this thread's scratch memory. Their values are arbitrary.
///
/// While a thread waits for others, it may run a second kernel (work stealing). Buffers are therefore taken off a free list instead of
/// borrowed. They live as long as the thread.
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

/// Returns the sum of the products.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    // Lanes, so that the compiler uses vectors.
    let mut lanes = [0.0; 16];
    let ((a_chunks, a_rest), (b_chunks, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..16 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    lanes.iter().sum::<f32>() + rest
}
