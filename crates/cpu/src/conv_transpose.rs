//! Transposed convolution of images, channels last: a GEMM of all pixels and all weights, whose results are added up for each row of the
//! result. Convolutions in groups are computed by the reference.

use hipvit_graph::op::{ConvTranspose, OpError};
use rayon::prelude::*;

use super::prepacked::{self, PrepackedWeight};
use super::rows::{SharedLoop, with_scratch};
use super::tail::Tail;
use super::{CpuOp, Operands, by_reference};

impl CpuOp for ConvTranspose {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        if self.groups != 1 {
            return by_reference(self, operands, results);
        }
        let &[batch, height, width, channels] = operands.batched_shape(0)? else {
            return Err("takes images".into());
        };
        let &[_, rows, columns, features] = operands.result_shape(0) else {
            return Err("makes no images".into());
        };
        let bias = operands.optional(self.bias, 2)?;
        let [down, across] = self.windows();
        let taps = down.kernel * across.kernel;
        let weight = by_tap(operands.values(1)?, [features, taps, channels]);
        let weight = PrepackedWeight::new(&weight, taps * features, channels, operands.dtype())?;
        let tail = Tail {
            bias: None,
            activation: None,
            residual: None,
        };
        let x = operands.values(0)?;
        let of_row = width * taps * features;
        for image in 0..batch {
            let x = &x[image * height * width * channels..][..height * width * channels];
            let out = &mut results[0][image * rows * columns * features..][..rows * columns * features];
            with_scratch(height * of_row, |products| {
                prepacked::run(x, &weight, tail, products)?;
                let lines = out.par_chunks_mut(columns * features).enumerate();
                lines.for_each_item(|(row, out)| {
                    for pixel in out.chunks_exact_mut(features) {
                        match bias {
                            Some(bias) => pixel.copy_from_slice(bias),
                            None => pixel.fill(0.0),
                        }
                    }
                    for tap in 0..down.kernel {
                        let Some(row) = down.transposed_at(row, tap, height) else {
                            continue;
                        };
                        let products = &products[row * of_row..][..of_row];
                        for (column, products) in products.chunks_exact(taps * features).enumerate() {
                            let of_tap = &products[tap * across.kernel * features..];
                            for (tap, products) in
                                of_tap.chunks_exact(features).take(across.kernel).enumerate()
                            {
                                let at = column * across.stride + tap * across.dilation;
                                let at = at.checked_sub(across.padding[0]).filter(|&at| at < columns);
                                if let Some(at) = at {
                                    let out = &mut out[at * features..][..features];
                                    out.iter_mut().zip(products).for_each(|(y, x)| *y += x);
                                }
                            }
                        }
                    }
                });
                Ok::<_, OpError>(())
            })?;
        }
        Ok(())
    }
}

/// Returns the weight `[features, taps, channels]` as `[taps, features, channels]`.
fn by_tap(weight: &[f32], [features, taps, channels]: [usize; 3]) -> Vec<f32> {
    let mut moved = vec![0.0; weight.len()];
    for (i, row) in weight.chunks_exact(channels).enumerate() {
        let to = i % taps * features + i / taps;
        moved[to * channels..][..channels].copy_from_slice(row);
    }
    moved
}
