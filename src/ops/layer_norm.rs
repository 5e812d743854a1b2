//! Layer and RMS normalisation over the channels, or over each head's.

use rten_simd::{Isa, SimdOp};
use rten_vecmath::{Normalize, NormalizeOptions, Sum, SumSquare, SumSquareSub};

use super::rows::{Source, block_len, in_blocks};

/// [`Op::LayerNorm`](crate::ops::Op::LayerNorm).
pub(crate) fn run(epsilon: f32, x: Source<'_>, weight: &[f32], bias: &[f32], out: &mut [f32]) {
    in_blocks(x, out, block_len(weight.len()), |_, rows| {
        in_place(epsilon, rows, weight, bias);
    });
}

/// Normalises whole rows.
pub(super) fn in_place(epsilon: f32, rows: &mut [f32], weight: &[f32], bias: &[f32]) {
    Rows {
        rows,
        weight,
        bias,
        epsilon,
    }
    .dispatch();
}

/// [`Op::RmsNorm`](crate::ops::Op::RmsNorm).
pub(crate) fn run_rms(epsilon: f32, x: Source<'_>, weight: &[f32], out: &mut [f32]) {
    in_blocks(x, out, block_len(weight.len()), |_, rows| {
        RmsRows {
            rows,
            weight,
            epsilon,
        }
        .dispatch();
    });
}

/// As [`Rows`], without mean and bias.
struct RmsRows<'a> {
    rows: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl SimdOp for RmsRows<'_> {
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

/// Rows that are normalised in place, with the instruction set chosen once.
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
            // Two passes: the mean of squares minus the square of the mean would cancel.
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
