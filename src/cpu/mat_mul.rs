//! Matrix products for the backward passes of linear layers.

use hipvit_graph::op::{MatMul, OpError};
use ndarray::parallel::prelude::*;
use ndarray::{ArrayViewMut2, Axis};
use rten_tensor::Matrix;

use super::gemm::{self, PackedBMatrix};
use super::prepacked::{BLOCKS, panel_width, task};
use super::rows::sum_rows;
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
        if self.transpose_a {
            let transposed = |first: usize, count: usize| {
                let columns = gemm::strided(&a[first..], rows, count, columns)?;
                Ok(columns.transposed())
            };
            multiply(&transposed, b, n, out)
        } else {
            let plain =
                |first: usize, count: usize| gemm::strided(&a[first * columns..], count, columns, columns);
            multiply(&plain, b, n, out)
        }
    }
}

/// Computes `out [M,N] = a · b`. `a` returns rows of the left matrix, from the first one and their number.
fn multiply<'a>(
    a: &(dyn Fn(usize, usize) -> Result<Matrix<'a>, OpError> + Sync),
    b: &[f32],
    n: usize,
    out: &mut [f32],
) -> Result<(), OpError> {
    let (m, k) = (out.len() / n, b.len() / n);
    let threads = rayon::current_num_threads();
    let width = panel_width(n, threads);
    let starts: Vec<usize> = (0..n).step_by(width).collect();
    let panels = starts.par_iter().map(|&start| {
        let panel = gemm::strided(&b[start..], k, width.min(n - start), n)?;
        Ok(gemm::prepack(panel))
    });
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
    blocks.try_for_each(|(i, mut out)| {
        let rows = i * block..i * block + out.nrows();
        let columns = out.axis_chunks_iter_mut(Axis(1), width).into_par_iter();
        columns
            .zip(&panels)
            .zip(&starts)
            .try_for_each(|((out, panel), &start)| {
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
