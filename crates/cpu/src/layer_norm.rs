//! Layer normalisation over the channels, or over the channels of each head.

use hipvit_graph::op::{LayerNorm, OpError};
use rten_simd::{Isa, SimdOp};
use rten_vecmath::{Normalize, NormalizeOptions, Sum, SumSquareSub};

use super::rows::{block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for LayerNorm {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let [weight, bias] = [operands.values(1)?, operands.values(2)?];
        let len = block_len(weight.len());
        in_blocks(operands.source(0)?, results[0], len, |_, rows| {
            in_place(self.epsilon, rows, weight, bias);
        });
        Ok(())
    }
}

/// Normalises whole rows in place.
pub(super) fn in_place(epsilon: f32, rows: &mut [f32], weight: &[f32], bias: &[f32]) {
    Rows {
        rows,
        weight,
        bias,
        epsilon,
    }
    .dispatch();
}

/// Normalisation of rows in place, with one dispatch of the instruction set.
struct Rows<'a> {
    rows: &'a mut [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    epsilon: f32,
}

impl SimdOp for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let d = self.weight.len();
        for row in self.rows.chunks_exact_mut(d) {
            // Two passes, since the mean of squares minus the square of the mean would cancel.
            let mean = Sum::new(row).eval(isa) / d as f32;
            let variance = SumSquareSub::new(row, mean).eval(isa) / d as f32;
            let options = NormalizeOptions {
                pre_scale_bias: mean,
                scale: 1.0 / (variance + self.epsilon).sqrt(),
                element_scale: Some(self.weight),
                bias: 0.0,
                element_bias: Some(self.bias),
            };
            Normalize::new_mut(row, options).eval(isa);
        }
    }
}
