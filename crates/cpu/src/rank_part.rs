//! Part of a tensor that a rank of a training step updates.

use hipvit_graph::op::{OpError, RankPart};

use super::{CpuOp, Operands};

impl CpuOp for RankPart {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (values, part) = (operands.values(0)?, &mut *results[0]);
        let start = (operands.collectives()?.rank() % self.ranks * part.len()).min(values.len());
        let end = (start + part.len()).min(values.len());
        let (elements, padding) = part.split_at_mut(end - start);
        elements.copy_from_slice(&values[start..end]);
        padding.fill(0.0);
        Ok(())
    }
}
