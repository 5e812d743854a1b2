//! What each op computes, in double precision; [`Op`] has the formulas' sources.

use rayon::prelude::*;

use super::Array;
use crate::graph::{
    Activation, Attention, AttentionOperands, Linear, Normalize, Op, PatchConv, PatchExtract, PixelLayout,
    Pool, Tokens,
};
use crate::ops::output_shape;

/// `op` on these operands.
///
/// # Errors
///
/// The reason, if the op does not accept operands of these shapes.
pub fn eval(op: &Op, operands: &[&Array]) -> Result<Array, String> {
    let shapes: Vec<&[usize]> = operands.iter().map(|a| a.shape()).collect();
    let shape = output_shape(op, &shapes)?;
    let mut result = Array::zeros(shape);
    match op {
        Op::Normalize(spec) => normalize(spec, operands[0], &mut result),
        Op::PatchConv(spec) => patch_conv(spec, operands, &mut result),
        Op::PatchExtract(spec) => patch_extract(spec, operands[0], &mut result),
        Op::Prepend => prepend(operands, &mut result),
        Op::Tokens(spec) => tokens(spec, operands, &mut result),
        Op::Add => add(operands[0], operands[1], &mut result),
        Op::Scale => scale(operands[0], operands[1], &mut result),
        Op::MulScalar(factor) => map(operands[0], &mut result, |x| f64::from(*factor) * x),
        Op::LayerNorm { epsilon } => layer_norm(*epsilon, operands, &mut result),
        Op::Linear(spec) => linear(spec, operands, &mut result),
        Op::Activation(activation) => map(operands[0], &mut result, |x| activate(*activation, x)),
        Op::SwiGlu => swiglu(operands[0], &mut result),
        Op::Attention(spec) => attention(spec, operands, &mut result, |_, _, _| true),
        Op::Pool(spec) => pool(spec, operands[0], &mut result),
        Op::ConcatChannels => concat_channels(operands[0], operands[1], &mut result),
    }
    Ok(result)
}

fn normalize(spec: &Normalize, x: &Array, y: &mut Array) {
    let [batch, height, width, _] = extents(x);
    for b in 0..batch {
        for c in 0..3 {
            for row in 0..height {
                for column in 0..width {
                    let from = ((b * height + row) * width + column) * 3 + c;
                    let to = ((b * 3 + c) * height + row) * width + column;
                    y.values_mut()[to] = affine(spec, c, x.values()[from]);
                }
            }
        }
    }
}

fn affine(spec: &Normalize, channel: usize, pixel: f64) -> f64 {
    pixel * f64::from(spec.scale[channel]) + f64::from(spec.shift[channel])
}

fn patch_conv(spec: &PatchConv, operands: &[&Array], y: &mut Array) {
    let (x, weight) = (operands[0], operands[1]);
    let [_, _, height, width] = extents(x);
    let [h, w] = spec.patch;
    let [batch, patches, channels] = extents(y);
    for b in 0..batch {
        for p in 0..patches {
            let (top, left) = (p / (width / w) * h, p % (width / w) * w);
            for d in 0..channels {
                let mut sum = if spec.bias { operands[2].values()[d] } else { 0.0 };
                for c in 0..3 {
                    for i in 0..h {
                        for j in 0..w {
                            let pixel = x.values()[((b * 3 + c) * height + top + i) * width + left + j];
                            sum += pixel * weight.values()[((d * 3 + c) * h + i) * w + j];
                        }
                    }
                }
                y.values_mut()[(b * patches + p) * channels + d] = sum;
            }
        }
    }
}

fn patch_extract(spec: &PatchExtract, x: &Array, y: &mut Array) {
    let [h, w] = spec.patch;
    let [batch, patches, length] = extents(y);
    let (height, width) = match (spec.layout, extents(x)) {
        (PixelLayout::Hwc, [_, height, width, _]) | (PixelLayout::Chw, [_, _, height, width]) => {
            (height, width)
        }
    };
    for b in 0..batch {
        for p in 0..patches {
            let (top, left) = (p / (width / w) * h, p % (width / w) * w);
            for e in 0..length {
                let (c, i, j) = match spec.layout {
                    PixelLayout::Hwc => (e % 3, e / 3 / w, e / 3 % w),
                    PixelLayout::Chw => (e / (h * w), e / w % h, e % w),
                };
                let (row, column) = (top + i, left + j);
                let from = match spec.layout {
                    PixelLayout::Hwc => ((b * height + row) * width + column) * 3 + c,
                    PixelLayout::Chw => ((b * 3 + c) * height + row) * width + column,
                };
                let pixel = x.values()[from];
                y.values_mut()[(b * patches + p) * length + e] = match &spec.normalize {
                    Some(normalize) => affine(normalize, c, pixel),
                    None => pixel,
                };
            }
        }
    }
}

fn prepend(operands: &[&Array], y: &mut Array) {
    let Some((x, prefixes)) = operands.split_last() else {
        return;
    };
    let batch = x.shape()[0];
    let image = x.values().len() / batch;
    let mut joined = Vec::with_capacity(y.values().len());
    for b in 0..batch {
        for prefix in prefixes {
            joined.extend_from_slice(prefix.values());
        }
        joined.extend_from_slice(&x.values()[b * image..(b + 1) * image]);
    }
    y.values_mut().copy_from_slice(&joined);
}

fn tokens(spec: &Tokens, operands: &[&Array], y: &mut Array) {
    let mut x = operands[0].clone();
    if spec.position {
        add(operands[0], operands[operands.len() - 1], &mut x);
    }
    if spec.prefix {
        prepend(&[operands[1], &x], y);
    } else {
        *y = x;
    }
}

fn add(x: &Array, addend: &Array, y: &mut Array) {
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        *v = x.values()[i] + addend.values()[i % addend.values().len()];
    }
}

fn scale(x: &Array, gamma: &Array, y: &mut Array) {
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        *v = x.values()[i] * gamma.values()[i % gamma.values().len()];
    }
}

fn map(x: &Array, y: &mut Array, f: impl Fn(f64) -> f64) {
    for (y, &x) in y.values_mut().iter_mut().zip(x.values()) {
        *y = f(x);
    }
}

fn layer_norm(epsilon: f32, operands: &[&Array], y: &mut Array) {
    let (x, weight, bias) = (operands[0], operands[1].values(), operands[2].values());
    let d = weight.len();
    for (y, x) in y.values_mut().chunks_mut(d).zip(x.values().chunks(d)) {
        let mean = x.iter().sum::<f64>() / d as f64;
        let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / d as f64;
        let deviation = (variance + f64::from(epsilon)).sqrt();
        for i in 0..d {
            y[i] = (x[i] - mean) / deviation * weight[i] + bias[i];
        }
    }
}

fn linear(spec: &Linear, operands: &[&Array], y: &mut Array) {
    let (x, weight) = (operands[0], operands[1]);
    let [n, k] = extents(weight);
    let bias = spec.bias.then(|| operands[2].values());
    let residual = spec.residual.then(|| operands[operands.len() - 1].values());
    y.values_mut().par_chunks_mut(n).enumerate().for_each(|(row, y)| {
        for (j, y) in y.iter_mut().enumerate() {
            let product = dot(
                &x.values()[row * k..(row + 1) * k],
                &weight.values()[j * k..(j + 1) * k],
            );
            let sum = product + bias.map_or(0.0, |bias| bias[j]);
            let active = spec.activation.map_or(sum, |a| activate(a, sum));
            *y = active + residual.map_or(0.0, |residual| residual[row * n + j]);
        }
    });
}

/// Eight partial sums, so that the compiler can vectorise.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let (x, x_rest) = x.as_chunks::<8>();
    let (y, y_rest) = y.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (x, y) in x.iter().zip(y) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    let rest: f64 = x_rest.iter().zip(y_rest).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f64>() + rest
}

fn activate(activation: Activation, x: f64) -> f64 {
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};
    match activation {
        // erfc keeps its precision where 1 + erf would cancel.
        Activation::GeluErf => x * 0.5 * libm::erfc(-x * FRAC_1_SQRT_2),
        // (1 + tanh z)/2 = σ(2z), which does not cancel either.
        Activation::GeluTanh => x * sigmoid(2.0 * FRAC_2_PI.sqrt() * (x + 0.044715 * x.powi(3))),
        Activation::QuickGelu => x * sigmoid(1.702 * x),
        Activation::Silu => x * sigmoid(x),
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn swiglu(x: &Array, y: &mut Array) {
    let d = y.shape().last().copied().unwrap_or(0);
    for (i, v) in y.values_mut().iter_mut().enumerate() {
        let (row, column) = (i / d, i % d);
        let gate = x.values()[row * 2 * d + column];
        *v = activate(Activation::Silu, gate) * x.values()[row * 2 * d + d + column];
    }
}

/// One of Q, K and V inside a packed operand.
struct Packed<'a> {
    values: &'a [f64],
    tokens: usize,
    /// Elements from one token to the next.
    stride: usize,
    /// Where the first channel lies within a token.
    offset: usize,
    /// Whether there is one image's worth for the whole batch.
    shared: bool,
}

impl<'a> Packed<'a> {
    fn new(array: &'a Array, offset: usize) -> Self {
        let (batch, tokens, stride) = match *array.shape() {
            [batch, stride] => (batch, 1, stride),
            _ => extents(array).into(),
        };
        Self {
            values: array.values(),
            tokens,
            stride,
            offset,
            shared: batch == 1,
        }
    }

    /// The channels of a token, from its first on.
    fn token(&self, b: usize, token: usize) -> &'a [f64] {
        let b = if self.shared { 0 } else { b };
        &self.values[(b * self.tokens + token) * self.stride + self.offset..]
    }
}

/// [`Op::Attention`] where `visible(image, query, key)` says which keys a query sees. A query that sees none gets zeros.
///
/// # Errors
///
/// As for [`eval`].
pub(crate) fn masked_attention(
    spec: &Attention,
    operands: &[&Array],
    visible: impl Fn(usize, usize, usize) -> bool + Sync,
) -> Result<Array, String> {
    let shapes: Vec<&[usize]> = operands.iter().map(|a| a.shape()).collect();
    let mut result = Array::zeros(output_shape(&Op::Attention(*spec), &shapes)?);
    attention(spec, operands, &mut result, visible);
    Ok(result)
}

fn attention(
    spec: &Attention,
    operands: &[&Array],
    y: &mut Array,
    visible: impl Fn(usize, usize, usize) -> bool + Sync,
) {
    let (queries, c) = match *y.shape() {
        [_, c] => (1, c),
        ref shape => (shape[1], shape[2]),
    };
    let [q, k, v] = match spec.operands {
        AttentionOperands::Separate => [(0, 0), (1, 0), (2, 0)],
        AttentionOperands::PackedQkv => [(0, 0), (0, c), (0, 2 * c)],
        AttentionOperands::PackedKv => [(0, 0), (1, 0), (1, c)],
    }
    .map(|(operand, offset)| Packed::new(operands[operand], offset));

    y.values_mut().par_chunks_mut(c).enumerate().for_each(|(row, y)| {
        let (b, query) = (row / queries, row % queries);
        let keys: Vec<usize> = (0..k.tokens).filter(|&key| visible(b, query, key)).collect();
        for (head, y) in y.chunks_mut(spec.head_dim).enumerate() {
            let first = head * spec.head_dim;
            let q = &q.token(b, query)[first..][..spec.head_dim];
            let scores: Vec<f64> = keys
                .iter()
                .map(|&key| f64::from(spec.scale) * dot(q, &k.token(b, key)[first..][..spec.head_dim]))
                .collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            for (&key, weight) in keys.iter().zip(&weights) {
                let v = &v.token(b, key)[first..][..spec.head_dim];
                for (y, v) in y.iter_mut().zip(v) {
                    *y += weight / total * v;
                }
            }
        }
    });
}

fn pool(spec: &Pool, x: &Array, y: &mut Array) {
    let [batch, n, d] = extents(x);
    let range = match *spec {
        Pool::Token(index) => index..index + 1,
        Pool::Mean { skip } | Pool::Max { skip } => skip..n,
    };
    for b in 0..batch {
        for c in 0..d {
            let channel = range.clone().map(|token| x.values()[(b * n + token) * d + c]);
            y.values_mut()[b * d + c] = match spec {
                Pool::Max { .. } => channel.fold(f64::NEG_INFINITY, f64::max),
                Pool::Token(_) | Pool::Mean { .. } => channel.sum::<f64>() / range.len() as f64,
            };
        }
    }
}

fn concat_channels(x: &Array, addend: &Array, y: &mut Array) {
    let ([_, m], [_, n]) = (extents(x), extents(addend));
    for (b, row) in y.values_mut().chunks_mut(m + n).enumerate() {
        row[..m].copy_from_slice(&x.values()[b * m..(b + 1) * m]);
        row[m..].copy_from_slice(&addend.values()[b * n..(b + 1) * n]);
    }
}

/// The extents of an array whose rank the shape rules have checked.
fn extents<const N: usize>(array: &Array) -> [usize; N] {
    let mut extents = [1; N];
    for (extent, &actual) in extents.iter_mut().zip(array.shape()) {
        *extent = actual;
    }
    extents
}
