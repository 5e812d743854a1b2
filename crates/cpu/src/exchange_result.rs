//! End of an exchange among the ranks of a training step.

use hipvit_graph::op::exchange::ExchangeKind;
use hipvit_graph::op::{ExchangeResult, OpError};

use super::{CpuOp, Operands};

impl CpuOp for ExchangeResult {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let collectives = operands.collectives()?;
        let values = collectives.finish(self.id).map_err(OpError::Memory)?;
        // Of divided sums, only this rank's parts are there.
        let pieces = match self.kind {
            ExchangeKind::Scatter => self.pieces(0),
            ExchangeKind::Sum | ExchangeKind::Gather => self.pieces(collectives.rank() % self.ranks),
        };
        for (result, pieces) in results.iter_mut().zip(pieces) {
            let mut rest = &mut **result;
            for piece in pieces {
                let piece = values.get(piece).ok_or("an exchange has too few elements")?;
                let (place, after) = rest
                    .split_at_mut_checked(piece.len())
                    .ok_or("an exchange has too many elements")?;
                place.copy_from_slice(piece);
                rest = after;
            }
        }
        Ok(())
    }
}
