//! Transposition of each image's tokens and channels, fused with the ops after it in one pass over memory.

use hipvit_graph::op::{Combine, OpError, Transpose};
use rayon::prelude::*;

use super::rows::{SharedLoop, Source};
use super::{CpuOp, Operands};

/// Rows and columns of a tile. Its cache lines stay in the L1 cache.
const TILE: usize = 16;

impl CpuOp for Transpose {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let &[_, rows, columns] = operands.shape(0)? else {
            return Err("takes tokens".into());
        };
        let gamma = operands.optional(self.scale, 1)?;
        let y = match self.combine {
            Some(_) => Some(operands.source(operands.count().saturating_sub(1))?),
            None => None,
        };
        transpose(*self, operands.values(0)?, gamma, y, [rows, columns], results[0]);
        Ok(())
    }
}

/// Transposes images `[rows, columns]`. `spec` says which operands exist.
fn transpose(
    spec: Transpose,
    x: &[f32],
    gamma: Option<&[f32]>,
    y: Option<Source<'_>>,
    [rows, columns]: [usize; 2],
    out: &mut [f32],
) {
    let size = [rows, columns];
    match spec.combine {
        None => tiles(spec, x, gamma, y, size, out, |x, _| x),
        Some(Combine::Add) => tiles(spec, x, gamma, y, size, out, |x, y| x + y),
        Some(Combine::Multiply) => tiles(spec, x, gamma, y, size, out, |x, y| x * y),
    }
}

fn tiles(
    spec: Transpose,
    x: &[f32],
    gamma: Option<&[f32]>,
    y: Option<Source<'_>>,
    [rows, columns]: [usize; 2],
    out: &mut [f32],
    combine: impl Fn(f32, f32) -> f32 + Sync,
) {
    let width = rows + spec.pad;
    let image = (width * (columns - spec.crop)).max(1);
    let scaled = |row: usize, transposed: f32| gamma.map_or(transposed, |gamma| gamma[row] * transposed);
    let tile = |first: usize, x: &[f32], out: &mut [f32]| {
        for start in (0..width).step_by(TILE) {
            for (column, out) in out.chunks_mut(width).enumerate() {
                let out = out.iter_mut().enumerate().skip(start).take(TILE);
                for (row, v) in out {
                    let value = if row < rows {
                        scaled(row, x[row * columns + first + column])
                    } else {
                        0.0
                    };
                    *v = combine(value, *v);
                }
            }
        }
    };
    let x = x.par_chunks((rows * columns).max(1));
    let images = out.par_chunks_mut(image).zip(x).enumerate();
    images.for_each_item(|(index, (out, x))| {
        let strips = out.par_chunks_mut((TILE * width).max(1)).enumerate();
        strips.for_each_item(|(strip, out)| {
            let first = strip * TILE;
            if let Some(Source::At(y)) = y {
                out.copy_from_slice(&y[index * image + first * width..][..out.len()]);
            }
            tile(first, x, out);
        });
    });
}
