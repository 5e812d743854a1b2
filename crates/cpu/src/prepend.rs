//! Prefix tokens.

use hipvit_graph::op::{OpError, Prepend};

use super::{CpuOp, Operands, tokens};

impl CpuOp for Prepend {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let x = operands.count().saturating_sub(1);
        let image = operands.shape(x)?.iter().skip(1).product();
        let prefixes = (0..x).map(|index| operands.values(index));
        let prefixes = prefixes.collect::<Result<Vec<_>, _>>()?;
        tokens::join(operands.values(x)?, image, &prefixes, None, results[0]);
        Ok(())
    }
}
