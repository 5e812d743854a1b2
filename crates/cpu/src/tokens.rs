//! Assembly of class, register and patch tokens.

use hipvit_graph::op::{OpError, Tokens};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};

impl CpuOp for Tokens {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let image = operands.shape(0)?.iter().skip(1).product();
        let prefix = operands.optional(self.prefix, 1)?;
        let position = operands.optional(self.position, operands.count().saturating_sub(1))?;
        join(
            operands.values(0)?,
            image,
            prefix.as_slice(),
            position,
            results[0],
        );
        Ok(())
    }
}

/// Concatenates for each image the `prefixes`, which all images share, and the `[N,D]` elements of `x`. Adds `position` to the result.
pub(super) fn join(x: &[f32], image: usize, prefixes: &[&[f32]], position: Option<&[f32]>, out: &mut [f32]) {
    let before: usize = prefixes.iter().map(|prefix| prefix.len()).sum();
    out.par_chunks_mut((before + image).max(1))
        .zip(x.par_chunks(image.max(1)))
        .for_each_item(|(out, x)| {
            let mut rest = out;
            for prefix in prefixes {
                let (tokens, after) = rest.split_at_mut(prefix.len());
                tokens.copy_from_slice(prefix);
                rest = after;
            }
            rest.copy_from_slice(x);
            if let Some(position) = position {
                rest.iter_mut().zip(position).for_each(|(y, p)| *y += p);
            }
        });
}
