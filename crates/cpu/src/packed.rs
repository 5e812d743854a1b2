//! Layout of the operands of the 8-bit and 16-bit GEMMs on the CPU, and the division of their work among threads.
//!
//! - A group is 32 bits of a row of x or of an output channel: four input channels in int8, two in bf16. One lane of an instruction adds
//!   its products.
//! - A panel has, for each group of input channels, that group of each of [`COLUMNS`] output channels.
//! - A strip has the groups of some rows of x in the same layout.
//! - Missing channels and rows at the ends are zero.

use std::ops::Range;

use bytemuck::{AnyBitPattern, NoUninit};
use hipvit_graph::op::OpError;
use ndarray::{ArrayViewMut2, Axis, s};
use rayon::prelude::*;

use super::gemm::BLOCK_ROWS;
use super::rows::{SharedLoop, with_scratch};
use super::tail::{Tail, finish, residual_of};

/// Bytes of a group.
pub(super) const GROUP_BYTES: usize = 4;
/// Output channels per panel of the packed weight.
pub(super) const COLUMNS: usize = 32;
/// Bytes of a panel per group of input channels.
pub(super) const STEP: usize = COLUMNS * GROUP_BYTES;
/// Rows of a strip: rows of x that are multiplied at once. AMX has more.
pub(super) const ROWS: usize = 12;
/// Bytes of a strip per group of input channels.
pub(super) const ROW_STEP: usize = ROWS * GROUP_BYTES;
/// Maximum panels of a task. With [`BLOCK_ROWS`] rows, the result stays in the L2 cache.
const PANELS: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Stores a row in its strip as row `r`: `WIDTH` adjacent bytes at a time, `STEP` bytes apart.
#[inline(always)]
pub(super) fn scatter<const WIDTH: usize, const STEP: usize>(row: &[u8], r: usize, strip: &mut [u8]) {
    let groups = row.as_chunks::<WIDTH>().0;
    for (group, step) in groups.iter().zip(strip.as_chunks_mut::<STEP>().0) {
        step.as_chunks_mut::<WIDTH>().0[r] = *group;
    }
}

/// Zero-initialised elements, aligned to a cache line since vectors and tiles are loaded by lines.
#[derive(Clone)]
pub(super) struct Lines<T> {
    values: Vec<T>,
    start: usize,
}

impl<T: Copy + Default> Lines<T> {
    pub(super) fn new(len: usize) -> Self {
        let extra = LINE / size_of::<T>() - 1;
        let values = vec![T::default(); len + extra];
        let start = values.as_ptr().align_offset(LINE).min(extra);
        Self { values, start }
    }

    pub(super) fn as_slice(&self) -> &[T] {
        &self.values[self.start..]
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.values[self.start..]
    }
}

/// Lends `len` elements of this thread's scratch memory, aligned to a cache line. Their values are arbitrary.
pub(super) fn with_lines<T: AnyBitPattern + NoUninit, R>(len: usize, f: impl FnOnce(&mut [T]) -> R) -> R {
    let extra = LINE / size_of::<f32>() - 1;
    let elements = (len * size_of::<T>()).div_ceil(size_of::<f32>());
    with_scratch(elements + extra, |scratch| {
        let start = scratch.as_ptr().align_offset(LINE).min(extra);
        let values: &mut [T] = bytemuck::cast_slice_mut(&mut scratch[start..start + elements]);
        f(&mut values[..len])
    })
}

/// Divides `out [rows, n]` among threads. A task is a block of strips of `strip_rows` rows times some panels. `gemm(rows, columns, result)`
/// puts the sums with their bias into `result`; `columns` are whole panels. The rest of the tail is applied while the result is in the L2
/// cache.
pub(super) fn in_tasks(
    n: usize,
    strip_rows: usize,
    tail: Tail<'_>,
    out: &mut [f32],
    gemm: impl Fn(Range<usize>, Range<usize>, &mut [f32]) + Sync,
) -> Result<(), OpError> {
    let rows = out.len() / n;
    let (strips, panels) = (rows.div_ceil(strip_rows), n.div_ceil(COLUMNS));
    let (strips, panels) = task([strips, panels], strip_rows, rayon::current_num_threads());
    let (block, width) = (strips * strip_rows, panels * COLUMNS);
    let residual = residual_of(tail, [rows, n])?;
    let mut out = ArrayViewMut2::from_shape((rows, n), out).map_err(OpError::memory)?;
    let blocks = out
        .axis_chunks_iter_mut(Axis(0), block)
        .into_par_iter()
        .enumerate();
    blocks.try_for_each_item(|(i, mut out)| {
        let rows = i * block..i * block + out.nrows();
        let columns = out
            .axis_chunks_iter_mut(Axis(1), width)
            .into_par_iter()
            .enumerate();
        columns.try_for_each_item(|(j, out)| {
            let columns = j * width..j * width + out.ncols();
            let padded = columns.start..columns.end.next_multiple_of(COLUMNS);
            let stride = padded.len();
            let residual = residual.map(|residual| residual.slice_move(s![rows.clone(), columns]));
            with_scratch(rows.len() * stride, |result| {
                gemm(rows.clone(), padded, result);
                finish(tail, residual, result, stride, out)
            })
        })
    })
}

/// Returns the strips and panels of a task, given their total numbers. Minimises the work of the busiest thread, so that few rows on many
/// threads become tasks of few panels.
fn task([strips, panels]: [usize; 2], strip_rows: usize, threads: usize) -> (usize, usize) {
    let cost = |(block, width): (usize, usize)| {
        let tasks = strips.div_ceil(block) * panels.div_ceil(width);
        // Each task also reads its strips and its panels into the cache.
        tasks.div_ceil(threads) * (4 * block * width + block + width)
    };
    let blocks = 1..=BLOCK_ROWS.div_ceil(strip_rows).min(strips.max(1));
    let sizes = blocks.flat_map(|block| (1..=PANELS.min(panels)).map(move |width| (block, width)));
    sizes.min_by_key(|&size| cost(size)).unwrap_or((1, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_shared_out_evenly() {
        for strip_rows in [12usize, 32] {
            for rows in [197usize, 8 * 197] {
                for n in [768usize, 2304, 3072] {
                    for threads in [1, 2, 3, 4, 8, 16] {
                        let (strips, panels) = (rows.div_ceil(strip_rows), n / COLUMNS);
                        let (block, width) = task([strips, panels], strip_rows, threads);
                        let tasks = strips.div_ceil(block) * panels.div_ceil(width);
                        let most = tasks.div_ceil(threads) * block * width;
                        let even = strips as f64 * panels as f64 / threads as f64;
                        assert!(
                            most as f64 <= 1.15 * even,
                            "{rows} × {n} on {threads}: {block} × {width}, {}",
                            most as f64 / even
                        );
                    }
                }
            }
        }
        assert_eq!(task([1, 1], 12, 8), (1, 1));
        // One row: the panels are divided.
        assert_eq!(task([1, 32], 12, 8), (1, 4));
    }
}
