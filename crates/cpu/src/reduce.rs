//! Sums, means, extrema and norms along axes.

use hipvit_graph::op::{OpError, Reduce, ReduceKind};
use rayon::prelude::*;
use rten_simd::{Isa, SimdOp};
use rten_vecmath::{MaxNum, MinNum, Sum, SumAbs, SumExpSub, SumSquare};

use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands, strided};

/// Rows that a thread reduces at once along an axis before the last one. The order of a sum does not depend on the number of threads.
const ROWS: usize = 256;

impl CpuOp for Reduce {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let shape = operands.batched_shape(0)?;
        let x = operands.values(0)?;
        let (view, length) = self.view(shape);
        match self.middle(shape) {
            Some([_, length, 1]) => rows(self.kind, x, length, results[0]),
            Some([_, length, columns]) if self.kind != ReduceKind::LogSumExp => {
                columns_of(self.kind, x, [length, columns], results[0]);
            }
            _ => {
                let mut copy = vec![0.0; x.len()];
                strided::copy(x, &view, &mut copy);
                rows(self.kind, &copy, length, results[0]);
            }
        }
        Ok(())
    }
}

fn rows(kind: ReduceKind, x: &[f32], length: usize, out: &mut [f32]) {
    let count = block_len(length) / length;
    let blocks = out.par_chunks_mut(count).zip(x.par_chunks(count * length));
    blocks.for_each_item(|(out, x)| Rows { kind, x, length, out }.dispatch());
}

/// Reductions of rows, with one dispatch of the instruction set.
struct Rows<'a> {
    kind: ReduceKind,
    x: &'a [f32],
    length: usize,
    out: &'a mut [f32],
}

impl SimdOp for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        for (out, row) in self.out.iter_mut().zip(self.x.chunks_exact(self.length)) {
            *out = match self.kind {
                ReduceKind::Sum => Sum::new(row).eval(isa),
                ReduceKind::Mean => Sum::new(row).eval(isa) / self.length as f32,
                ReduceKind::Max => MaxNum::new(row).eval(isa),
                ReduceKind::Min => MinNum::new(row).eval(isa),
                ReduceKind::Prod => row.iter().product(),
                ReduceKind::L1 => SumAbs::new(row).eval(isa),
                ReduceKind::L2 => SumSquare::new(row).eval(isa).sqrt(),
                ReduceKind::SumSquare => SumSquare::new(row).eval(isa),
                ReduceKind::LogSumExp => match MaxNum::new(row).eval(isa) {
                    f32::NEG_INFINITY => f32::NEG_INFINITY,
                    max => max + SumExpSub::new(row, max).eval(isa).ln(),
                },
            };
        }
    }
}

/// Reduces each image of `[rows, columns]` to its columns.
fn columns_of(kind: ReduceKind, x: &[f32], [rows, columns]: [usize; 2], out: &mut [f32]) {
    let images = out.par_chunks_mut(columns).zip(x.par_chunks(rows * columns));
    images.for_each_item(|(out, image)| {
        let blocks = image.par_chunks(ROWS * columns).map(|block| {
            let mut partial = vec![start(kind); columns];
            for row in block.chunks_exact(columns) {
                accumulate(kind, &mut partial, row);
            }
            partial
        });
        let blocks: Vec<Vec<f32>> = blocks.collect();
        out.fill(start(kind));
        let join = match kind {
            ReduceKind::Max | ReduceKind::Min | ReduceKind::Prod => kind,
            _ => ReduceKind::Sum,
        };
        blocks.iter().for_each(|block| accumulate(join, out, block));
        match kind {
            ReduceKind::Mean => out.iter_mut().for_each(|y| *y /= rows as f32),
            ReduceKind::L2 => out.iter_mut().for_each(|y| *y = y.sqrt()),
            _ => {}
        }
    });
}

/// Returns the number that no element changes.
fn start(kind: ReduceKind) -> f32 {
    match kind {
        ReduceKind::Max => f32::NEG_INFINITY,
        ReduceKind::Min => f32::INFINITY,
        ReduceKind::Prod => 1.0,
        _ => 0.0,
    }
}

fn accumulate(kind: ReduceKind, to: &mut [f32], row: &[f32]) {
    let pairs = to.iter_mut().zip(row);
    match kind {
        ReduceKind::Max => pairs.for_each(|(y, &x)| *y = y.max(x)),
        ReduceKind::Min => pairs.for_each(|(y, &x)| *y = y.min(x)),
        ReduceKind::Prod => pairs.for_each(|(y, &x)| *y *= x),
        ReduceKind::L1 => pairs.for_each(|(y, &x)| *y += x.abs()),
        ReduceKind::L2 | ReduceKind::SumSquare => pairs.for_each(|(y, &x)| *y += x * x),
        ReduceKind::Sum | ReduceKind::Mean | ReduceKind::LogSumExp => pairs.for_each(|(y, &x)| *y += x),
    }
}
