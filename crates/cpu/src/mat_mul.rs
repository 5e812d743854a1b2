//! Matrix products for the backward passes of linear layers.

use hipvit_graph::op::{MatMul, OpError};
use ndarray::parallel::prelude::*;
use ndarray::{ArrayViewMut2, Axis};
use rten_tensor::Matrix;

use super::gemm::{self, PackedBMatrix};
use super::prepacked::{BLOCKS, panel_width, task};
use super::rows::{SharedLoop, sum_rows};
use super::tail::Tail;
use super::{CpuOp, Operands};

impl CpuOp for MatMul {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (a, b) = (operands.values(0)?, operands.values(1)?);
        let [columns, n] = [operands.channels(0)?, operands.channels(1)?];
        let [out, sums @ ..] = results else {
            return Err("has no result".into());
        };
        if let [sums] = sums {
            sum_rows(a, sums);
        }
        let rows = a.len() / columns;
        let right = |first: usize, count: usize| gemm::strided(&b[first..], b.len() / n, count, n);
        let sizes = [out.len() / n, n];
        if self.transpose_a {
            let transposed = |first: usize, count: usize| {
                let columns = gemm::strided(&a[first..], rows, count, columns)?;
                Ok(columns.transposed())
            };
            multiply([&transposed, &right], sizes, out)
        } else {
            let plain =
                |first: usize, count: usize| gemm::strided(&a[first * columns..], count, columns, columns);
            multiply([&plain, &right], sizes, out)
        }
    }
}

/// Returns rows of a left matrix, or columns of a right one, from the first one and their number.
pub(super) type Part<'a> = dyn Fn(usize, usize) -> Result<Matrix<'a>, OpError> + Sync + 'a;

/// Computes `out [M,N] = a · b`.
pub(super) fn multiply<'a>(
    [a, b]: [&Part<'a>; 2],
    [m, n]: [usize; 2],
    out: &mut [f32],
) -> Result<(), OpError> {
    let threads = rayon::current_num_threads();
    let width = panel_width(n, threads);
    let starts: Vec<usize> = (0..n).step_by(width).collect();
    let panels = starts
        .par_iter()
        .map(|&start| Ok(gemm::prepack(b(start, width.min(n - start))?)));
    let panels: Vec<PackedBMatrix<f32>> = panels.collect::<Result<_, OpError>>()?;
    let (block, _) = BLOCKS.divide(m, panels.len(), threads);
    let tail = Tail {
        bias: None,
        activation: None,
        residual: None,
    };
    let mut out = ArrayViewMut2::from_shape((m, n), out).map_err(OpError::memory)?;
    let blocks = out
        .axis_chunks_iter_mut(Axis(0), block)
        .into_par_iter()
        .enumerate();
    blocks.try_for_each_item(|(i, mut out)| {
        let rows = i * block..i * block + out.nrows();
        let columns = out.axis_chunks_iter_mut(Axis(1), width).into_par_iter();
        columns
            .zip(&panels)
            .zip(&starts)
            .try_for_each_item(|((out, panel), &start)| {
                let columns = start..start + out.ncols();
                task(
                    a(rows.start, rows.len())?,
                    panel,
                    (tail, None),
                    [rows.clone(), columns],
                    out,
                )
            })
    })
}
