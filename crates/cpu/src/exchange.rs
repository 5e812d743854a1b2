//! Start of an exchange among the ranks of a training step.

use hipvit_graph::op::exchange::{ExchangeKind, part_len};
use hipvit_graph::op::{Exchange, OpError};

use super::{CpuOp, Operands};

impl CpuOp for Exchange {
    /// Copies the tensors for the thread that sends them. The bucket is not used.
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let collectives = operands.collectives()?;
        let first = usize::from(self.conditional);
        let tensors = (first..operands.count()).map(|index| operands.values(index));
        let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
        let values = match self.kind {
            ExchangeKind::Sum | ExchangeKind::Gather => tensors.concat(),
            ExchangeKind::Scatter => divided(&tensors, self.ranks),
        };
        results[0].fill(0.0);
        if self.conditional && operands.values(0)?.iter().any(|scale| scale.is_nan()) {
            collectives.skip(*self, values);
        } else {
            collectives.start(*self, values);
        }
        Ok(())
    }
}

/// Returns the parts of all tensors, padded with zeros, with the first rank's parts first.
fn divided(tensors: &[&[f32]], ranks: usize) -> Vec<f32> {
    let mut parts = Vec::new();
    for rank in 0..ranks {
        for tensor in tensors {
            let len = part_len(tensor.len(), ranks);
            let range = (rank * len).min(tensor.len())..((rank + 1) * len).min(tensor.len());
            let padded = parts.len() + len;
            parts.extend_from_slice(&tensor[range]);
            parts.resize(padded, 0.0);
        }
    }
    parts
}
