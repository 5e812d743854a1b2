//! RMS normalisation over the channels, or over the channels of each head.

use hipvit_graph::op::{OpError, RmsNorm};
use rten_simd::{Isa, SimdOp};
use rten_vecmath::{Normalize, NormalizeOptions, SumSquare};

use super::rows::{block_len, in_blocks};
use super::{CpuOp, Operands};

impl CpuOp for RmsNorm {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let weight = operands.values(1)?;
        let len = block_len(weight.len());
        in_blocks(operands.source(0)?, results[0], len, |_, rows| {
            Rows {
                rows,
                weight,
                epsilon: self.epsilon,
            }
            .dispatch();
        });
        Ok(())
    }
}

/// Normalisation of rows in place, with one dispatch of the instruction set.
struct Rows<'a> {
    rows: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl SimdOp for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let d = self.weight.len();
        for row in self.rows.chunks_exact_mut(d) {
            let mean_square = SumSquare::new(row).eval(isa) / d as f32;
            let options = NormalizeOptions {
                pre_scale_bias: 0.0,
                scale: 1.0 / (mean_square + self.epsilon).sqrt(),
                element_scale: Some(self.weight),
                bias: 0.0,
                element_bias: None,
            };
            Normalize::new_mut(row, options).eval(isa);
        }
    }
}
