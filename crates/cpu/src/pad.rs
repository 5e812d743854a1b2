//! Padding of a tensor.

use hipvit_graph::op::{OpError, Pad, PadMode};
use hipvit_graph::strided::strides;
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len};
use super::{CpuOp, Operands};

impl CpuOp for Pad {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let shape = operands.batched_shape(0)?;
        let x = operands.values(0)?;
        let Some((&extent, outer)) = shape.split_last() else {
            results[0].copy_from_slice(x);
            return Ok(());
        };
        let constant = match self.mode {
            PadMode::Constant(value) => value,
            PadMode::Reflect | PadMode::Edge => 0.0,
        };
        let sources: Vec<_> = outer
            .iter()
            .enumerate()
            .map(|(axis, &extent)| self.sources(axis, extent))
            .collect();
        let of_row = self.sources(outer.len(), extent);
        let before = self.before[outer.len()];
        let (length, strides) = (of_row.len(), strides(shape));
        if length == 0 {
            return Ok(());
        }
        let rows = block_len(length) / length;
        let blocks = results[0].par_chunks_mut(rows * length).enumerate();
        blocks.for_each_item(|(task, block)| {
            for (row, out) in block.chunks_exact_mut(length).enumerate() {
                let (mut rest, mut from) = (task * rows + row, Some(0));
                for (sources, &stride) in sources.iter().zip(&strides).rev() {
                    let source = sources[rest % sources.len()];
                    from = from
                        .zip(source)
                        .map(|(from, source)| from + source * stride.unsigned_abs());
                    rest /= sources.len();
                }
                let Some(from) = from else {
                    out.fill(constant);
                    continue;
                };
                let x = &x[from..from + extent];
                out[before..before + extent].copy_from_slice(x);
                for (at, y) in out.iter_mut().enumerate() {
                    if at < before || at >= before + extent {
                        *y = of_row[at].map_or(constant, |source| x[source]);
                    }
                }
            }
        });
        Ok(())
    }
}
