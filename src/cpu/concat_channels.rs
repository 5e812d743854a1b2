//! Concatenation of channels.

use hipvit_graph::op::{ConcatChannels, OpError};

use super::{CpuOp, Operands};

impl CpuOp for ConcatChannels {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let [x, y] = [operands.values(0)?, operands.values(1)?];
        let [m, n] = [operands.channels(0)?, operands.channels(1)?];
        for (i, row) in results[0].chunks_exact_mut((m + n).max(1)).enumerate() {
            row[..m].copy_from_slice(&x[i * m..(i + 1) * m]);
            row[m..].copy_from_slice(&y[i * n..(i + 1) * n]);
        }
        Ok(())
    }
}
