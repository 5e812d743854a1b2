//! Addition and scaling, where they are not fused into another op.

use super::rows::{Source, block_len, in_blocks};

/// [`Op::Add`](crate::ops::Op::Add); y has one image or as many as x.
pub(crate) fn run_add(x: Source<'_>, y: &[f32], out: &mut [f32]) {
    // Blocks must not straddle the end of a shared y.
    out.chunks_mut(y.len().max(1))
        .enumerate()
        .for_each(|(image, out)| {
            let x = match x {
                Source::InPlace => Source::InPlace,
                Source::At(x) => Source::At(&x[image * y.len()..][..out.len()]),
            };
            in_blocks(x, out, block_len(1), |start, block| {
                block.iter_mut().zip(&y[start..]).for_each(|(v, y)| *v += y);
            });
        });
}

/// [`Op::Scale`](crate::ops::Op::Scale).
pub(crate) fn run_scale(x: Source<'_>, gamma: &[f32], out: &mut [f32]) {
    in_blocks(x, out, block_len(gamma.len()), |_, block| {
        for row in block.chunks_mut(gamma.len()) {
            row.iter_mut().zip(gamma).for_each(|(v, g)| *v *= g);
        }
    });
}

/// [`Op::Affine`](crate::ops::Op::Affine).
pub(crate) fn run_affine(x: Source<'_>, weight: &[f32], bias: &[f32], out: &mut [f32]) {
    in_blocks(x, out, block_len(weight.len()), |_, block| {
        for row in block.chunks_mut(weight.len()) {
            let factors = weight.iter().zip(bias);
            row.iter_mut()
                .zip(factors)
                .for_each(|(v, (w, b))| *v = *v * w + b);
        }
    });
}

/// [`Op::MulScalar`](crate::ops::Op::MulScalar).
pub(crate) fn run_mul_scalar(x: Source<'_>, factor: f32, out: &mut [f32]) {
    in_blocks(x, out, block_len(1), |_, block| {
        block.iter_mut().for_each(|v| *v *= factor);
    });
}
