//! Derivatives of activation functions.

use std::f32::consts::{FRAC_1_SQRT_2, TAU};

use hipvit_graph::op::{Activation, ActivationBackward, OpError};
use rayon::prelude::*;
use rten_simd::SimdUnaryOp;
use rten_vecmath::{Erf, Exp};

use super::rows::{SharedLoop, Source, block_len, sum_rows, with_scratch};
use super::{CpuOp, Operands};

impl CpuOp for ActivationBackward {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (x, dy) = (operands.values(0)?, operands.source(1)?);
        let len = block_len(1);
        let [dx, sums @ ..] = results else {
            return Err("has no result".into());
        };
        let blocks = dx.par_chunks_mut(len).zip(x.par_chunks(len));
        blocks.enumerate().for_each_item(|(block, (out, x))| {
            if let Source::At(dy) = dy {
                out.copy_from_slice(&dy[block * len..][..out.len()]);
            }
            if self.activation == Activation::GeluErf && !self.secant {
                gelu(x, out);
            } else {
                out.iter_mut().zip(x).for_each(|(dy, &x)| *dy *= self.slope(x));
            }
        });
        if let [sums] = sums {
            sum_rows(dx, sums);
        }
        Ok(())
    }
}

/// Multiplies `dy` by the derivative of GELU, `Φ(x) + x · φ(x)`.
fn gelu(x: &[f32], dy: &mut [f32]) {
    let density = 1.0 / TAU.sqrt();
    with_scratch(2 * x.len(), |scratch| {
        let (erf, exp) = scratch.split_at_mut(x.len());
        for ((erf, exp), &x) in erf.iter_mut().zip(&mut *exp).zip(x) {
            *erf = x * FRAC_1_SQRT_2;
            *exp = -0.5 * x * x;
        }
        Erf {}.map_mut(erf);
        Exp {}.map_mut(exp);
        for (((dy, &x), &erf), &exp) in dy.iter_mut().zip(x).zip(&*erf).zip(&*exp) {
            *dy *= 0.5 + 0.5 * erf + x * exp * density;
        }
    });
}
