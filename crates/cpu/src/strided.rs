//! Copies of strided views: permutations, slices, repetitions.

use hipvit_graph::strided::View;
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len};

/// Rows and columns of a tile of a transposition. Its cache lines stay in the L1 cache.
const TILE: usize = 16;

/// Copies the elements of a view of `x` to `out`, in the order of the view.
pub(super) fn copy(x: &[f32], view: &View, out: &mut [f32]) {
    if out.is_empty() {
        return;
    }
    let view = view.merged();
    let (Some(&length), Some(&stride)) = (view.extents.last(), view.strides.last()) else {
        out.fill(x[view.offset]);
        return;
    };
    let rank = view.extents.len();
    if rank > 1 && view.strides[rank - 2] == 1 && stride > 1 {
        return transpose(x, &view, out);
    }
    let starts = Starts::of(&view, 1);
    let rows = block_len(length) / length;
    out.par_chunks_mut(rows * length)
        .enumerate()
        .for_each_item(|(task, block)| {
            for (row, start) in block.chunks_exact_mut(length).zip(starts.from(task * rows)) {
                copy_row(x, start, stride, row);
            }
        });
}

/// Copies elements that are `stride` apart.
fn copy_row(x: &[f32], start: usize, stride: isize, row: &mut [f32]) {
    match stride {
        1 => row.copy_from_slice(&x[start..start + row.len()]),
        0 => row.fill(x[start]),
        2.. => {
            let from = x[start..].iter().step_by(stride.unsigned_abs());
            row.iter_mut().zip(from).for_each(|(y, x)| *y = *x);
        }
        _ => {
            let from = x[..=start].iter().rev().step_by(stride.unsigned_abs());
            row.iter_mut().zip(from).for_each(|(y, x)| *y = *x);
        }
    }
}

/// Copies a view whose last axis but one is contiguous in x.
fn transpose(x: &[f32], view: &View, out: &mut [f32]) {
    let rank = view.extents.len();
    let (rows, columns) = (view.extents[rank - 2], view.extents[rank - 1]);
    let stride = view.strides[rank - 1].unsigned_abs();
    let starts = Starts::of(view, 2);
    let images = out.par_chunks_mut(rows * columns).enumerate();
    images.for_each_item(|(image, out)| {
        let start = starts.at(image);
        let strips = out.par_chunks_mut(TILE * columns).enumerate();
        strips.for_each_item(|(strip, out)| {
            let start = start + strip * TILE;
            for first in (0..columns).step_by(TILE) {
                for (row, out) in out.chunks_exact_mut(columns).enumerate() {
                    let out = out.iter_mut().enumerate().skip(first).take(TILE);
                    out.for_each(|(column, y)| *y = x[start + row + column * stride]);
                }
            }
        });
    });
}

/// Indices of the first elements of a view's rows, which extend along its last axes.
struct Starts {
    outer: View,
}

impl Starts {
    fn of(view: &View, inner: usize) -> Self {
        let rank = view.extents.len() - inner;
        Self {
            outer: View {
                extents: view.extents[..rank].to_vec(),
                strides: view.strides[..rank].to_vec(),
                offset: view.offset,
            },
        }
    }

    /// Returns the start of row `row`.
    fn at(&self, mut row: usize) -> usize {
        let mut at = self.outer.offset;
        for (&extent, &stride) in self.outer.extents.iter().zip(&self.outer.strides).rev() {
            at = at.wrapping_add_signed(stride * (row % extent) as isize);
            row /= extent;
        }
        at
    }

    /// Returns the starts of the rows from `row` on.
    fn from(&self, row: usize) -> impl Iterator<Item = usize> + '_ {
        (row..).map(|row| self.at(row))
    }
}
