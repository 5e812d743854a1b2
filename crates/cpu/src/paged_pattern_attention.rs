//! Attention of single queries over keys and values in pages, with a pattern.

use hipvit_graph::op::{OpError, PagedPatternAttention};
use hipvit_graph::pattern::Captured;

use super::paged_attention::attend;
use super::{CpuOp, Operands};

impl CpuOp for PagedPatternAttention {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let captured = (Self::OPERANDS..operands.count())
            .map(|index| {
                let (shape, values) = (operands.batched_shape(index)?, operands.values(index)?);
                Ok(Captured { shape, values })
            })
            .collect::<Result<Vec<_>, OpError>>()?;
        attend(&self.attention, operands, results, |at, scores| {
            let applied = self.apply(&captured, at, scores);
            applied.map_err(|error| OpError::from(error.to_string()))?;
            Ok(scores.iter().any(|&score| score != f32::NEG_INFINITY))
        })
    }
}
