//! Normalisation of groups of channels over all pixels of an image.

use hipvit_graph::op::{GroupNorm, OpError};
use rayon::prelude::*;

use super::rows::{SharedLoop, block_len, sum_rows};
use super::{CpuOp, Operands};

/// Pixels whose squares a thread adds up at once. The order of a sum does not depend on the number of threads.
const PIXELS: usize = 256;

impl CpuOp for GroupNorm {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let [x, weight, bias] = [operands.values(0)?, operands.values(1)?, operands.values(2)?];
        let shape = operands.batched_shape(0)?;
        let image = x.len() / shape.first().copied().unwrap_or(1);
        let images = results[0].par_chunks_mut(image).zip(x.par_chunks(image));
        images.for_each_item(|(out, x)| normalize(self, x, [weight, bias], out));
        Ok(())
    }
}

/// Normalises one image.
fn normalize(norm: &GroupNorm, x: &[f32], [weight, bias]: [&[f32]; 2], out: &mut [f32]) {
    let channels = weight.len();
    let pixels = x.len() / channels;
    let width = channels / norm.groups;
    let mut sums = vec![0.0; channels];
    sum_rows(x, &mut sums);
    let of_group = means(norm.groups, &sums, pixels);
    let of_channel: Vec<f32> = (0..channels)
        .map(|channel| of_group[channel / width] as f32)
        .collect();
    // Two passes, since the mean of squares minus the square of the mean would cancel.
    let blocks = x.par_chunks(PIXELS * channels).map(|block| {
        let mut squares = vec![0.0f32; channels];
        for pixel in block.chunks_exact(channels) {
            let centred = pixel.iter().zip(&of_channel);
            let pairs = squares.iter_mut().zip(centred);
            pairs.for_each(|(square, (x, mean))| *square += (x - mean) * (x - mean));
        }
        squares
    });
    let blocks: Vec<Vec<f32>> = blocks.collect();
    sums.fill(0.0);
    for block in &blocks {
        sums.iter_mut()
            .zip(block)
            .for_each(|(sum, square)| *sum += square);
    }
    let variances = means(norm.groups, &sums, pixels);
    let factors: Vec<f32> = (0..channels)
        .map(|channel| {
            let deviation = (variances[channel / width] + f64::from(norm.epsilon)).sqrt();
            (f64::from(weight[channel]) / deviation) as f32
        })
        .collect();
    let len = block_len(channels);
    let blocks = out.par_chunks_mut(len).zip(x.par_chunks(len));
    blocks.for_each_item(|(out, x)| {
        for (out, x) in out.chunks_exact_mut(channels).zip(x.chunks_exact(channels)) {
            let statistics = of_channel.iter().zip(&factors).zip(bias);
            for ((y, x), ((mean, factor), bias)) in out.iter_mut().zip(x).zip(statistics) {
                *y = (x - mean) * factor + bias;
            }
        }
    });
}

/// Returns the mean of each group from sums of its channels over `pixels` pixels.
fn means(groups: usize, sums: &[f32], pixels: usize) -> Vec<f64> {
    let width = sums.len() / groups;
    let mean = |group: &[f32]| {
        let sum: f64 = group.iter().map(|&sum| f64::from(sum)).sum();
        sum / (width * pixels) as f64
    };
    sums.chunks_exact(width).map(mean).collect()
}
