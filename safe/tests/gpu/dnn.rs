//! MIOpen, against plain loops in f64.

use hip_safe::{ConvolutionShape, DType, Device, Dnn, Error, MultiHeadAttention, Relayout, Rows};

use super::{Check, ensure, numbers, within, worst};

pub(crate) fn softmax(device: &Device) -> Check {
    let stream = device.stream()?;
    let (rows, columns) = (50, 197);
    let x = numbers(rows * columns, 11);
    let mut y = stream.zeroed::<f32>(x.len())?;
    let shape = Rows {
        rows,
        columns,
        dtype: DType::F32,
    };
    Dnn::new(&stream)?.softmax(shape, stream.upload(&x)?.reading(), y.writing())?;
    let expected: Vec<f64> = x
        .chunks(columns)
        .flat_map(|row| {
            let sum: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
            row.iter().map(move |&x| f64::from(x).exp() / sum)
        })
        .collect();
    within(worst(y.read()?.into_iter().map(f64::from), &expected), 1e-6)
}

pub(crate) fn layer_norm(device: &Device) -> Check {
    let stream = device.stream()?;
    let (rows, columns) = (50, 192);
    let (x, weight, bias) = (
        numbers(rows * columns, 12),
        numbers(columns, 13),
        numbers(columns, 14),
    );
    let mut y = stream.zeroed::<f32>(x.len())?;
    let shape = Rows {
        rows,
        columns,
        dtype: DType::F32,
    };
    let (dw, db) = (stream.upload(&weight)?, stream.upload(&bias)?);
    let input = stream.upload(&x)?;
    let mut dnn = Dnn::new(&stream)?;
    dnn.layer_norm(
        shape,
        1e-6,
        input.reading(),
        [dw.reading(), db.reading()],
        y.writing(),
    )?;
    let expected: Vec<f64> = x
        .chunks(columns)
        .flat_map(|row| {
            let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / columns as f64;
            let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / columns as f64;
            let scale = (variance + 1e-6).sqrt();
            let parts = weight.iter().zip(&bias);
            row.iter()
                .zip(parts)
                .map(move |(&x, (&w, &b))| (f64::from(x) - mean) / scale * f64::from(w) + f64::from(b))
        })
        .collect();
    within(worst(y.read()?.into_iter().map(f64::from), &expected), 1e-5)
}

pub(crate) fn convolution(device: &Device) -> Check {
    convolution_in(device, false)
}

pub(crate) fn convolution_channels_last(device: &Device) -> Check {
    convolution_in(device, true)
}

/// `[images, channels, pixels]` as `[images, pixels, channels]`.
fn channels_last<T: Copy>(values: &[T], channels: usize, pixels: usize) -> Vec<T> {
    let images = values.chunks(channels * pixels);
    images
        .flat_map(|image| (0..pixels * channels).map(move |i| image[i % channels * pixels + i / channels]))
        .collect()
}

fn convolution_in(device: &Device, last: bool) -> Check {
    let stream = device.stream()?;
    let (batch, channels, features, side, patch) = (2, 3, 40, 32, 8);
    let (mut x, mut w) = (
        numbers(batch * channels * side * side, 15),
        numbers(features * channels * patch * patch, 16),
    );
    let tokens = side / patch;
    let mut expected: Vec<f64> = (0..batch * features * tokens * tokens)
        .map(|index| {
            let (b, f) = (
                index / (features * tokens * tokens),
                index / (tokens * tokens) % features,
            );
            let (row, column) = (index / tokens % tokens, index % tokens);
            (0..channels * patch * patch)
                .map(|tap| {
                    let (c, i, j) = (tap / (patch * patch), tap / patch % patch, tap % patch);
                    let pixel = ((b * channels + c) * side + row * patch + i) * side + column * patch + j;
                    f64::from(x[pixel]) * f64::from(w[f * channels * patch * patch + tap])
                })
                .sum()
        })
        .collect();
    if last {
        x = channels_last(&x, channels, side * side);
        w = channels_last(&w, channels, patch * patch);
        expected = channels_last(&expected, features, tokens * tokens);
    }
    let shape = ConvolutionShape {
        batch,
        channels,
        height: side,
        width: side,
        features,
        kernel: [patch, patch],
        stride: [patch, patch],
        dilation: [1; 2],
        padding: [0; 2],
        groups: 1,
        channels_last: last,
        dtype: DType::F32,
    };
    let (dx, dw) = (stream.upload(&x)?, stream.upload(&w)?);
    let mut dy = stream.zeroed::<f32>(expected.len())?;
    let mut dnn = Dnn::new(&stream)?;
    let mut convolution = dnn.convolution(shape, [dx.reading(), dw.reading(), dy.writing()])?;
    dy.fill(0xff)?;
    dnn.convolve(&mut convolution, [dx.reading(), dw.reading(), dy.writing()])?;
    // Room for Winograd and TF32, which libraries may choose for f32.
    within(worst(dy.read()?.into_iter().map(f64::from), &expected), 2e-2)
}

/// Heads of tokens side by side, among other channels, to tokens of heads, and a copy that is refused: one element is missing.
pub(crate) fn relayout(device: &Device) -> Check {
    let stream = device.stream()?;
    let (batch, heads, tokens, channels, row) = (2, 3, 5, 4, 40);
    let relayout = Relayout {
        shape: [batch, heads, tokens, channels],
        from: [tokens * row, channels, row, 1],
        to: [heads * tokens * channels, tokens * channels, channels, 1],
        dtype: DType::F32,
    };
    let x = numbers((batch * tokens - 1) * row + heads * channels, 20);
    let expected: Vec<f64> = (0..batch * heads * tokens * channels)
        .map(|i| {
            let (b, h) = (i / (heads * tokens * channels), i / (tokens * channels) % heads);
            let (token, channel) = (i / channels % tokens, i % channels);
            f64::from(x[(b * tokens + token) * row + h * channels + channel])
        })
        .collect();
    let dx = stream.upload(&x)?;
    let mut dy = stream.zeroed::<f32>(expected.len())?;
    let mut dnn = Dnn::new(&stream)?;
    dnn.relayout(relayout, dx.reading(), dy.writing())?;
    let short = dx.reading().part(0..dx.bytes() - size_of::<f32>())?;
    let refused = dnn.relayout(relayout, short, dy.writing());
    ensure(matches!(refused, Err(Error::Argument { .. })), || {
        format!("{refused:?}")
    })?;
    within(worst(dy.read()?.into_iter().map(f64::from), &expected), 0.0)
}

pub(crate) fn attention(device: &Device) -> Check {
    let stream = device.stream()?;
    let shape = MultiHeadAttention {
        batch: 2,
        heads: 3,
        tokens: 50,
        head_dim: 32,
        scale: 0.2,
        dtype: DType::F32,
    };
    let (tokens, channels) = (shape.tokens, shape.head_dim);
    let size = shape.batch * shape.heads * tokens * channels;
    let [q, k, v] = [17, 18, 19].map(|seed| numbers(size, seed));
    let mut expected = Vec::with_capacity(size);
    for row in 0..size / channels {
        let head = row / tokens * tokens * channels;
        let query = &q[row * channels..][..channels];
        let score = |key: usize| {
            let key = &k[head + key * channels..][..channels];
            let products = query.iter().zip(key).map(|(&a, &b)| f64::from(a) * f64::from(b));
            (f64::from(shape.scale) * products.sum::<f64>()).exp()
        };
        let weights: Vec<f64> = (0..tokens).map(score).collect();
        let total: f64 = weights.iter().sum();
        for channel in 0..channels {
            let value = |key: usize| f64::from(v[head + key * channels + channel]);
            let sum: f64 = weights.iter().enumerate().map(|(key, w)| w * value(key)).sum();
            expected.push(sum / total);
        }
    }
    let mut dnn = Dnn::new(&stream)?;
    let mut attention = dnn.find_attention(shape)?;
    let [q, k, v] = [stream.upload(&q)?, stream.upload(&k)?, stream.upload(&v)?];
    let mut out = stream.zeroed::<f32>(size)?;
    let operands = [q.reading(), k.reading(), v.reading()];
    dnn.attend(&mut attention, operands, out.writing())?;
    within(worst(out.read()?.into_iter().map(f64::from), &expected), 1e-5)
}
