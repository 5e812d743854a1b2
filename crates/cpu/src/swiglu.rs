//! The SwiGLU gate.

use hipvit_graph::op::{Activation, OpError, SwiGlu};

use super::rows::{Source, block_len, in_blocks};
use super::{CpuOp, Operands, activation};

impl CpuOp for SwiGlu {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (x, d) = (operands.values(0)?, operands.channels(0)? / 2);
        in_blocks(Source::InPlace, results[0], block_len(d), |start, block| {
            gate(&x[2 * start..], d, block);
        });
        Ok(())
    }
}

/// Writes the gated values of the first rows of `x` to `rows`, for as many rows as it has.
pub(super) fn gate(x: &[f32], d: usize, rows: &mut [f32]) {
    for (y, x) in rows.chunks_mut(d).zip(x.chunks(2 * d)) {
        let (gate, value) = x.split_at(d);
        y.copy_from_slice(gate);
        activation::apply(Activation::Silu, y);
        y.iter_mut().zip(value).for_each(|(y, v)| *y *= v);
    }
}
