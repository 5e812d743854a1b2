//! Layer normalisation over the channels.

use rten_simd::{Isa, SimdOp};
use rten_vecmath::{Normalize, NormalizeOptions, Sum, SumSquareSub};

use super::rows::{Source, block_len, in_blocks};
use super::{Shape, expect};

/// Mean (1), centred square (3), normalise (2), weight and bias (2).
pub(super) const FLOPS_PER_ELEMENT: u64 = 8;

pub(super) fn shape([x, weight, bias]: [&[usize]; 3]) -> Result<Shape, String> {
    let [.., d] = *x else {
        return Err("x is a scalar".into());
    };
    expect("weight", weight, &[d])?;
    expect("bias", bias, &[d])?;
    Ok(x.to_vec())
}

/// [`Op::LayerNorm`](crate::ops::Op::LayerNorm).
pub(crate) fn run(epsilon: f32, x: Source<'_>, weight: &[f32], bias: &[f32], out: &mut [f32]) {
    in_blocks(x, out, block_len(weight.len()), |_, rows| {
        Rows {
            rows,
            weight,
            bias,
            epsilon,
        }
        .dispatch();
    });
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
