//! The forward pass of every op but attention.

use super::activation::apply;
use super::program::{Real, Run, Saved, gemm, rows, rows_mut};
use hipvit::graph::Node;
use hipvit::ops::{
    Add, Affine, Combine, ConcatChannels, LayerNorm, Linear, MulScalar, Normalize, Op, PatchExtract,
    PixelLayout, Pool, Prepend, RmsNorm, Rope, RopePairs, Scale, SwiGlu, Tokens,
};

/// The result of `node`, whose operands are there, and what its backward pass needs.
pub(super) fn forward<T: Real>(run: &Run<'_, T>, node: &Node) -> (Vec<T>, Saved<T>) {
    let operand = |i| run.operand(node, i);
    let x = operand(0);
    let shape = run.shape(node.output());
    let len: usize = shape.iter().product();
    let channels = shape.last().copied().unwrap_or(1);
    let plain = match &node.op {
        Op::Normalize(spec) => normalize(spec, run.operand_shape(node, 0), x),
        Op::PatchExtract(spec) => {
            let patches = Patches::extract(spec, run.operand_shape(node, 0), shape[0]);
            patches.gather(x, spec.normalize.as_ref())
        }
        Op::PatchConv(spec) => {
            let patches = Patches::new(PixelLayout::Chw, spec.patch, run.operand_shape(node, 0), shape[0]);
            let mut y = repeated(spec.bias.then(|| operand(2)), len);
            let columns = patches.gather(x, None);
            let weight = rows(operand(1), patches.length());
            gemm(
                rows(&columns, patches.length()),
                weight.t(),
                rows_mut(&mut y, channels),
            );
            y
        }
        Op::Prepend(Prepend) => {
            let parts: Vec<&[T]> = (0..node.inputs.len()).map(operand).collect();
            concatenate(&parts, shape[0], parts.len() - 1)
        }
        Op::Tokens(Tokens { prefix, position }) => {
            let mut x = x.to_vec();
            if *position {
                add_repeated(&mut x, operand(node.inputs.len() - 1));
            }
            if *prefix {
                concatenate(&[operand(1), &x], shape[0], 1)
            } else {
                x
            }
        }
        Op::Add(Add) => {
            let mut y = x.to_vec();
            add_repeated(&mut y, operand(1));
            y
        }
        Op::Scale(Scale) => zip(x, operand(1), |x, gamma| x * gamma),
        Op::Affine(Affine) => {
            let (weight, bias) = (operand(1).iter(), operand(2).iter());
            let factors = weight.zip(bias).cycle();
            x.iter().zip(factors).map(|(&x, (&w, &b))| x * w + b).collect()
        }
        Op::Transpose(spec) => {
            let mut y = transposed(run.operand_shape(node, 0), x, [spec.crop, spec.pad]);
            if spec.scale {
                let gamma = [operand(1), &vec![T::zero(); spec.pad]].concat();
                y = zip(&y, &gamma, |y, gamma| y * gamma);
            }
            match spec.combine {
                None => {}
                Some(Combine::Add) => add_repeated(&mut y, operand(node.inputs.len() - 1)),
                Some(Combine::Multiply) => y = zip(&y, operand(node.inputs.len() - 1), |y, gate| y * gate),
            }
            y
        }
        Op::MulScalar(MulScalar(factor)) => x.iter().map(|&x| x * T::of((*factor).into())).collect(),
        Op::LayerNorm(LayerNorm { epsilon }) => {
            let (weight, bias) = (operand(1), operand(2));
            let mut y = Vec::with_capacity(len);
            for x in x.chunks_exact(weight.len()) {
                let (mean, inverse) = moments(x, *epsilon);
                let scaled = x.iter().zip(weight).zip(bias);
                y.extend(scaled.map(|((&x, &w), &b)| (x - mean) * inverse * w + b));
            }
            y
        }
        Op::RmsNorm(RmsNorm { epsilon }) => {
            let weight = operand(1);
            let mut y = Vec::with_capacity(len);
            for x in x.chunks_exact(weight.len()) {
                let inverse = inverse_rms(x, *epsilon);
                y.extend(zip(x, weight, |x, w| x * inverse * w));
            }
            y
        }
        Op::Linear(spec) => return linear(run, node, spec),
        Op::Activation(activation) => x.iter().map(|&x| apply(*activation, x)).collect(),
        Op::SwiGlu(SwiGlu) => {
            let pairs = x.chunks_exact(2 * channels).map(|x| x.split_at(channels));
            pairs
                .flat_map(|(gate, value)| {
                    zip(gate, value, |g, v| apply(hipvit::ops::Activation::Silu, g) * v)
                })
                .collect()
        }
        Op::Rope(spec) => {
            let mut y = x.to_vec();
            rotate(spec, shape, run.operand_shape(node, 1), operand(1), false, &mut y);
            y
        }
        Op::Pool(spec) => pool(spec, run.operand_shape(node, 0), x),
        Op::ConcatChannels(ConcatChannels) => {
            let [m, n] = [0, 1].map(|i| run.operand_shape(node, i).last().copied().unwrap_or(1));
            let both = x.chunks_exact(m).zip(operand(1).chunks_exact(n));
            both.flat_map(|(x, y)| x.iter().chain(y).copied()).collect()
        }
        // Attention is computed in `attention`; only optimised graphs have norms that are part of gates; programs
        // with sums over ranks or with grids are refused.
        _ => Vec::new(),
    };
    (plain, Saved::Nothing)
}

fn linear<T: Real>(run: &Run<'_, T>, node: &Node, spec: &Linear) -> (Vec<T>, Saved<T>) {
    let len: usize = run.shape(node.output()).iter().product();
    let [n, k] = [0, 1].map(|i| run.operand_shape(node, 1).get(i).copied().unwrap_or(1));
    let mut y = repeated(spec.bias.then(|| run.operand(node, 2)), len);
    gemm(
        rows(run.operand(node, 0), k),
        rows(run.operand(node, 1), k).t(),
        rows_mut(&mut y, n),
    );
    let mut saved = Saved::Nothing;
    if let Some(activation) = spec.activation {
        let active = y.iter().map(|&y| apply(activation, y)).collect();
        saved = Saved::BeforeActivation(std::mem::replace(&mut y, active));
    }
    if spec.residual {
        add_repeated(&mut y, run.operand(node, node.inputs.len() - 1));
    }
    (y, saved)
}

/// Mean, and one over the standard deviation.
pub(super) fn moments<T: Real>(x: &[T], epsilon: f32) -> (T, T) {
    let n = T::of(x.len() as f64);
    let mean = x.iter().fold(T::zero(), |sum, &x| sum + x) / n;
    let variance = x.iter().fold(T::zero(), |sum, &x| sum + (x - mean) * (x - mean)) / n;
    (mean, (variance + T::of(epsilon.into())).sqrt().recip())
}

/// One over the root of the mean square.
pub(super) fn inverse_rms<T: Real>(x: &[T], epsilon: f32) -> T {
    let sum = x.iter().fold(T::zero(), |sum, &x| sum + x * x);
    (sum / T::of(x.len() as f64) + T::of(epsilon.into()))
        .sqrt()
        .recip()
}

/// `len` elements: `values` over and over, or zeros.
fn repeated<T: Real>(values: Option<&[T]>, len: usize) -> Vec<T> {
    match values {
        Some(values) => values.iter().copied().cycle().take(len).collect(),
        None => vec![T::zero(); len],
    }
}

/// Adds `addend`, of which one may serve all images.
fn add_repeated<T: Real>(y: &mut [T], addend: &[T]) {
    for y in y.chunks_mut(addend.len().max(1)) {
        y.iter_mut().zip(addend).for_each(|(y, &a)| *y += a);
    }
}

/// Each image of `shape`, `[B,M,N]`, transposed to `[N − crop, M + pad]`: without the last columns of x, with zeros at the end
/// of each row.
pub(super) fn transposed<T: Real>(shape: &[usize], x: &[T], [crop, pad]: [usize; 2]) -> Vec<T> {
    let (m, n) = (shape[1], shape[2]);
    let mut y = Vec::with_capacity(shape[0] * (n - crop) * (m + pad));
    for x in x.chunks_exact(m * n) {
        for column in 0..n - crop {
            y.extend((0..m).map(|row| x[row * n + column]));
            y.resize(y.len() + pad, T::zero());
        }
    }
    y
}

pub(super) fn zip<T: Real>(x: &[T], y: &[T], f: impl Fn(T, T) -> T) -> Vec<T> {
    x.iter().zip(y.iter().cycle()).map(|(&x, &y)| f(x, y)).collect()
}

/// For each of `batch` images the parts, of which the first `shared` are the same for all.
fn concatenate<T: Real>(parts: &[&[T]], batch: usize, shared: usize) -> Vec<T> {
    let mut joined = Vec::new();
    for b in 0..batch {
        for (i, part) in parts.iter().enumerate() {
            let size = if i < shared { 0 } else { part.len() / batch };
            joined.extend_from_slice(if i < shared {
                part
            } else {
                &part[b * size..][..size]
            });
        }
    }
    joined
}

fn normalize<T: Real>(spec: &Normalize, shape: &[usize], x: &[T]) -> Vec<T> {
    let plane = shape[1] * shape[2];
    let mut y = Vec::with_capacity(x.len());
    for image in x.chunks_exact(3 * plane) {
        for c in 0..3 {
            let channel = image.iter().skip(c).step_by(3);
            y.extend(channel.map(|&x| affine(spec, c, x)));
        }
    }
    y
}

fn affine<T: Real>(spec: &Normalize, channel: usize, x: T) -> T {
    x * T::of(spec.scale[channel].into()) + T::of(spec.shift[channel].into())
}

/// Rotates `y` of `shape` by the angles of `table`, or back.
pub(super) fn rotate<T: Real>(
    spec: &Rope,
    shape: &[usize],
    table_shape: &[usize],
    table: &[T],
    back: bool,
    y: &mut [T],
) {
    let ([tokens, channels], d) = ([shape[1], shape[2]], spec.head_dim);
    let [places, stride] = [table_shape[1], table_shape[2]];
    for (row, y) in y.chunks_exact_mut(channels).enumerate() {
        let Some(place) = (row % tokens + places).checked_sub(tokens) else {
            continue;
        };
        let angles = table[place * stride..][..stride].chunks_exact(d).cycle();
        let heads = y.chunks_exact_mut(d).take(spec.rotated * spec.heads);
        for (y, angles) in heads.zip(angles) {
            for pair in 0..d / 2 {
                let [i, j] = match spec.pairs {
                    RopePairs::Interleaved => [2 * pair, 2 * pair + 1],
                    RopePairs::Halves => [pair, pair + d / 2],
                };
                let (a, b, cosine) = (y[i], y[j], angles[pair]);
                let sine = if back {
                    T::zero() - angles[d / 2 + pair]
                } else {
                    angles[d / 2 + pair]
                };
                y[i] = a * cosine - b * sine;
                y[j] = b * cosine + a * sine;
            }
        }
    }
}

/// The tokens that a pooling reads, of `tokens`.
pub(super) fn pooled(spec: &Pool, tokens: usize) -> std::ops::Range<usize> {
    match *spec {
        Pool::Token(index) => index..index + 1,
        Pool::Mean { skip } | Pool::Max { skip } => skip..tokens,
    }
}

/// Which token a channel's maximum is of.
pub(super) fn argmax<T: Real>(x: &[T], range: std::ops::Range<usize>, d: usize, c: usize) -> usize {
    let first = range.start;
    range.fold(first, |best, token| {
        if x[token * d + c] > x[best * d + c] {
            token
        } else {
            best
        }
    })
}

fn pool<T: Real>(spec: &Pool, shape: &[usize], x: &[T]) -> Vec<T> {
    let (n, d) = (shape[1], shape[2]);
    let range = pooled(spec, n);
    let mut y = Vec::with_capacity(shape[0] * d);
    for x in x.chunks_exact(n * d) {
        y.extend((0..d).map(|c| match spec {
            Pool::Max { .. } => x[argmax(x, range.clone(), d, c) * d + c],
            Pool::Token(_) | Pool::Mean { .. } => {
                let sum = range.clone().fold(T::zero(), |sum, token| sum + x[token * d + c]);
                sum / T::of(range.len() as f64)
            }
        }));
    }
    y
}

/// How an image's pixels lie in its patches.
pub(crate) struct Patches {
    layout: PixelLayout,
    patch: [usize; 2],
    image: [usize; 2],
    batch: usize,
}

impl Patches {
    pub(super) fn new(layout: PixelLayout, patch: [usize; 2], shape: &[usize], batch: usize) -> Self {
        let image = match layout {
            PixelLayout::Hwc => [shape[1], shape[2]],
            PixelLayout::Chw => [shape[2], shape[3]],
        };
        Self {
            layout,
            patch,
            image,
            batch,
        }
    }

    pub(super) fn extract(spec: &PatchExtract, shape: &[usize], batch: usize) -> Self {
        Self::new(spec.layout, spec.patch, shape, batch)
    }

    /// Elements of a patch.
    pub(super) fn length(&self) -> usize {
        3 * self.patch[0] * self.patch[1]
    }

    /// Calls `each` with the position of every element in the image's storage and its channel, patch after patch.
    pub(super) fn for_each(&self, mut each: impl FnMut(usize, usize)) {
        let ([h, w], [height, width]) = (self.patch, self.image);
        for b in 0..self.batch {
            for p in 0..(height / h) * (width / w) {
                let (top, left) = (p / (width / w) * h, p % (width / w) * w);
                for e in 0..self.length() {
                    let (c, i, j) = match self.layout {
                        PixelLayout::Hwc => (e % 3, e / 3 / w, e / 3 % w),
                        PixelLayout::Chw => (e / (h * w), e / w % h, e % w),
                    };
                    let (row, column) = (top + i, left + j);
                    each(
                        match self.layout {
                            PixelLayout::Hwc => ((b * height + row) * width + column) * 3 + c,
                            PixelLayout::Chw => ((b * 3 + c) * height + row) * width + column,
                        },
                        c,
                    );
                }
            }
        }
    }

    fn gather<T: Real>(&self, x: &[T], normalize: Option<&Normalize>) -> Vec<T> {
        let mut y = Vec::with_capacity(x.len());
        self.for_each(|from, channel| {
            y.push(match normalize {
                Some(spec) => affine(spec, channel, x[from]),
                None => x[from],
            });
        });
        y
    }
}
