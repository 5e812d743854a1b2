//! Pooling of tokens to one vector per image.

use hipvit_graph::op::{OpError, Pool};
use rayon::prelude::*;

use super::rows::SharedLoop;
use super::{CpuOp, Operands};

impl CpuOp for Pool {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let &[_, n, d] = operands.shape(0)? else {
            return Err("takes tokens".into());
        };
        pool(self, operands.values(0)?, [n, d], results[0]);
        Ok(())
    }
}

/// Pools images of `n` tokens of `d` channels.
fn pool(spec: &Pool, x: &[f32], [n, d]: [usize; 2], out: &mut [f32]) {
    out.par_chunks_mut(d.max(1))
        .zip(x.par_chunks((n * d).max(1)))
        .for_each_item(|(y, x)| match *spec {
            Pool::Token(index) => y.copy_from_slice(&x[index * d..(index + 1) * d]),
            Pool::Mean { skip } => {
                y.fill(0.0);
                for token in x[skip * d..].chunks_exact(d) {
                    y.iter_mut().zip(token).for_each(|(y, x)| *y += x);
                }
                let tokens = (n - skip) as f32;
                y.iter_mut().for_each(|y| *y /= tokens);
            }
            Pool::Max { skip } => {
                y.copy_from_slice(&x[skip * d..(skip + 1) * d]);
                for token in x[(skip + 1) * d..].chunks_exact(d) {
                    y.iter_mut().zip(token).for_each(|(y, &x)| *y = y.max(x));
                }
            }
        });
}
