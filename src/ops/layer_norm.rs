//! Layer and RMS normalisation over the channels, or over each head's.

use rten_simd::{Isa, SimdOp};
use rten_vecmath::{Normalize, NormalizeOptions, Sum, SumSquare, SumSquareSub};

use super::rows::{Source, block_len, in_blocks};
use super::{Shape, expect};

/// Mean (1), centred square (3), normalise (2), weight and bias (2).
pub(super) const FLOPS_PER_ELEMENT: u64 = 8;

/// Square (2), normalise (1), weight (1).
pub(super) const RMS_FLOPS_PER_ELEMENT: u64 = 4;

pub(super) fn shape([x, weight, bias]: [&[usize]; 3]) -> Result<Shape, String> {
    let shape = rms_shape([x, weight])?;
    expect("bias", bias, weight)?;
    Ok(shape)
}

/// One group of channels, or several that are each normalised.
pub(super) fn rms_shape([x, weight]: [&[usize]; 2]) -> Result<Shape, String> {
    let [.., channels] = *x else {
        return Err("x is a scalar".into());
    };
    match *weight {
        [d] if d > 0 && channels > 0 && channels.is_multiple_of(d) => Ok(x.to_vec()),
        _ => Err(format!(
            "`weight` has shape {weight:?}, expected [{channels}] or a part of it for each group of channels"
        )),
    }
}

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
