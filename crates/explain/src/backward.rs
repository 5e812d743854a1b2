//! The backward pass: gradients, or relevance by the rules of layer-wise relevance propagation, which are gradients of a
//! network where some factors count as constants.

use super::activation::{apply, derivative, gate};
use super::attention;
use super::forward::{Patches, argmax, inverse_rms, moments, pooled, rotate, transposed, zip};
use super::program::{Real, Run, Saved, gemm, rows, rows_mut};
use hipvit::graph::{Node, ValueId};
use hipvit::ops::{
    Activation, Add, Affine, Combine, ConcatChannels, LayerNorm, Linear, MulScalar, Op, PixelLayout, Pool,
    Prepend, RmsNorm, Scale, SwiGlu, Tokens, Transpose,
};

/// What a backward pass computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// Derivatives.
    Gradient,
    /// AttnLRP (Achtibat et al. 2024, <https://arxiv.org/abs/2402.05602>): activations by their gate, layer norms with
    /// a constant standard deviation, softmax by its derivative, half of the relevance to each factor of a product.
    AttnLrp,
    /// Ali et al. 2022, <https://arxiv.org/abs/2202.07304>: attention probabilities, standard deviations and gates are constants.
    /// What remains is affine in the pixels, so that the contributions and the constants' sum to the output.
    Conservative,
}

/// The gradient of each value, by [`ValueId::index`].
pub(crate) struct Gradients<T>(Vec<Option<Vec<T>>>);

impl<T> Gradients<T> {
    /// The gradient of `id`; `None` if the output does not depend on it, or it was not asked for.
    pub(crate) fn of(&self, id: ValueId) -> Option<&[T]> {
        self.0[id.index()].as_deref()
    }
}

impl<T: Real> Run<'_, T> {
    /// Propagates `seed`, the gradient of `output`, back. `keep` says whose gradients are wanted beside the graph's input's;
    /// those of constants are computed only if `constants`.
    pub(crate) fn backward(
        &self,
        rules: Rules,
        output: ValueId,
        seed: Vec<T>,
        constants: bool,
        keep: impl Fn(ValueId) -> bool,
    ) -> Gradients<T> {
        let graph = self.graph();
        let wanted = self.wanted(constants);
        let mut gradients: Vec<Option<Vec<T>>> = vec![None; graph.values().len()];
        gradients[output.index()] = Some(seed);
        for (index, node) in graph.nodes().iter().enumerate().rev() {
            let slot = &mut gradients[node.output().index()];
            let dy = if keep(node.output()) {
                slot.clone()
            } else {
                slot.take()
            };
            let Some(dy) = dy else { continue };
            let differentiable = differentiable(&node.op, node.inputs.len());
            let mut of_operands: Vec<Vec<T>> = Vec::with_capacity(node.inputs.len());
            for (i, &id) in node.inputs.iter().enumerate() {
                let needed = differentiable.contains(&i) && wanted[id.index()];
                let len = if needed { self.value(id).len() } else { 0 };
                of_operands.push(vec![T::zero(); len]);
            }
            if let Op::Attention(spec) = &node.op {
                // Queries and keys may be of constants; their part is computed with the rest.
                for (i, gradient) in of_operands.iter_mut().enumerate() {
                    gradient.resize(self.operand(node, i).len(), T::zero());
                }
                if let Saved::Probabilities(p) = self.saved(index) {
                    attention::backward(self, node, spec, p, rules, &dy, &mut of_operands);
                }
            } else {
                propagate(self, index, node, rules, &dy, &mut of_operands);
            }
            for (&id, gradient) in node.inputs.iter().zip(of_operands) {
                if gradient.is_empty() || !wanted[id.index()] {
                    continue;
                }
                match &mut gradients[id.index()] {
                    Some(sum) => sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g),
                    empty => *empty = Some(gradient),
                }
            }
        }
        Gradients(gradients)
    }

    /// The values that depend on the input, and constants if those are asked for.
    fn wanted(&self, constants: bool) -> Vec<bool> {
        let graph = self.graph();
        let mut wanted = vec![constants; graph.values().len()];
        wanted[graph.input().index()] = true;
        for node in graph.nodes() {
            wanted[node.output().index()] |= node.inputs.iter().any(|id| wanted[id.index()]);
        }
        wanted
    }
}

/// The operands that an op has a gradient for: all but weights, which multiply.
fn differentiable(op: &Op, operands: usize) -> Vec<usize> {
    match op {
        // Its bias is none of the image.
        Op::Attention(spec) => (0..spec.operands.count()).collect(),
        Op::Scale(Scale) | Op::Rope(_) => vec![0],
        Op::Transpose(spec) => (0..operands).filter(|&i| !(spec.scale && i == 1)).collect(),
        Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Affine(Affine) | Op::Linear(_) | Op::PatchConv(_) => {
            (0..operands).filter(|&i| i != 1).collect()
        }
        _ => (0..operands).collect(),
    }
}

/// Adds to the gradients of the operands; those that are empty are not asked for.
fn propagate<T: Real>(
    run: &Run<'_, T>,
    index: usize,
    node: &Node,
    rules: Rules,
    dy: &[T],
    gradients: &mut [Vec<T>],
) {
    let operand = |i| run.operand(node, i);
    let shape = run.shape(node.output());
    let channels = shape.last().copied().unwrap_or(1);
    match &node.op {
        Op::Normalize(spec) => {
            let plane = shape[2] * shape[3];
            for (dx, dy) in gradients[0]
                .chunks_exact_mut(3 * plane)
                .zip(dy.chunks_exact(3 * plane))
            {
                for (i, &g) in dy.iter().enumerate() {
                    let c = i / plane;
                    dx[i % plane * 3 + c] += g * T::of(spec.scale[c].into());
                }
            }
        }
        Op::PatchExtract(spec) => {
            let patches = Patches::extract(spec, run.operand_shape(node, 0), shape[0]);
            let factors = spec.normalize.map_or([1.0; 3], |n| n.scale.map(f64::from));
            scatter(&patches, dy, factors, &mut gradients[0]);
        }
        Op::PatchConv(spec) => {
            let patches = Patches::new(PixelLayout::Chw, spec.patch, run.operand_shape(node, 0), shape[0]);
            if !gradients[0].is_empty() {
                let mut columns = vec![T::zero(); dy.len() / channels * patches.length()];
                let weight = rows(operand(1), patches.length());
                gemm(
                    rows(dy, channels),
                    weight,
                    rows_mut(&mut columns, patches.length()),
                );
                scatter(&patches, &columns, [1.0; 3], &mut gradients[0]);
            }
            if spec.bias {
                add_repeated(&mut gradients[2], dy);
            }
        }
        Op::Prepend(Prepend) => split(shape[0], dy, gradients),
        Op::Tokens(Tokens { prefix, position }) => {
            let last = gradients.len() - 1;
            let x_len = operand(0).len();
            let mut parts = if *prefix {
                vec![vec![T::zero(); operand(1).len()], vec![T::zero(); x_len]]
            } else {
                vec![vec![T::zero(); x_len]]
            };
            split(shape[0], dy, &mut parts);
            if let Some(dx) = parts.pop() {
                add_repeated(&mut gradients[0], &dx);
                if *position {
                    add_repeated(&mut gradients[last], &dx);
                }
            }
            if let Some(d_prefix) = parts.pop() {
                add_repeated(&mut gradients[1], &d_prefix);
            }
        }
        Op::Add(Add) => gradients.iter_mut().for_each(|dx| add_repeated(dx, dy)),
        Op::Scale(Scale) => {
            let gamma = operand(1).iter().cycle();
            let scaled = dy.iter().zip(gamma).map(|(&g, &gamma)| g * gamma);
            gradients[0].iter_mut().zip(scaled).for_each(|(dx, g)| *dx += g);
        }
        Op::Affine(Affine) => {
            let scaled = zip(dy, operand(1), |g, weight| g * weight);
            add_repeated(&mut gradients[0], &scaled);
            add_repeated(&mut gradients[2], dy);
        }
        Op::Transpose(spec) => transpose(run, node, *spec, rules, dy, gradients),
        Op::MulScalar(MulScalar(factor)) => {
            let factor = T::of((*factor).into());
            gradients[0]
                .iter_mut()
                .zip(dy)
                .for_each(|(dx, &g)| *dx += g * factor);
        }
        Op::LayerNorm(LayerNorm { epsilon }) => {
            let weight = operand(1);
            let d = weight.len();
            let dx = gradients[0].chunks_exact_mut(d);
            for ((dx, x), dy) in dx.zip(operand(0).chunks_exact(d)).zip(dy.chunks_exact(d)) {
                layer_norm(rules, *epsilon, [x, weight, dy], dx);
            }
            add_repeated(&mut gradients[2], dy);
        }
        Op::RmsNorm(RmsNorm { epsilon }) => {
            let weight = operand(1);
            let d = weight.len();
            let dx = gradients[0].chunks_exact_mut(d);
            for ((dx, x), dy) in dx.zip(operand(0).chunks_exact(d)).zip(dy.chunks_exact(d)) {
                rms_norm(rules, *epsilon, [x, weight, dy], dx);
            }
        }
        Op::Linear(spec) => linear(run, index, node, spec, rules, dy, gradients),
        Op::Activation(activation) => {
            let factors = operand(0).iter().map(|&x| slope(rules, *activation, x));
            let products = factors.zip(dy).map(|(f, &g)| f * g);
            gradients[0].iter_mut().zip(products).for_each(|(dx, g)| *dx += g);
        }
        Op::SwiGlu(SwiGlu) => {
            let x = operand(0).chunks_exact(2 * channels);
            let dx = gradients[0].chunks_exact_mut(2 * channels);
            let half = T::of(if rules == Rules::Gradient { 1.0 } else { 0.5 });
            for ((dx, x), dy) in dx.zip(x).zip(dy.chunks_exact(channels)) {
                for (c, &g) in dy.iter().enumerate() {
                    let (a, b) = (x[c], x[channels + c]);
                    dx[c] += half * slope(rules, Activation::Silu, a) * b * g;
                    dx[channels + c] += half * apply(Activation::Silu, a) * g;
                }
            }
        }
        // The transpose of a rotation is the rotation back.
        Op::Rope(spec) => {
            let mut dx = dy.to_vec();
            rotate(spec, shape, run.operand_shape(node, 1), operand(1), true, &mut dx);
            add_repeated(&mut gradients[0], &dx);
        }
        Op::Pool(spec) => pool(
            spec,
            run.operand_shape(node, 0),
            operand(0),
            dy,
            &mut gradients[0],
        ),
        Op::ConcatChannels(ConcatChannels) => {
            let [m, n] = [0, 1].map(|i| run.operand_shape(node, i).last().copied().unwrap_or(1));
            for (row, dy) in dy.chunks_exact(m + n).enumerate() {
                for (dx, (range, width)) in gradients.iter_mut().zip([(0..m, m), (m..m + n, n)]) {
                    let dx = dx.iter_mut().skip(row * width);
                    dx.zip(&dy[range]).for_each(|(dx, &g)| *dx += g);
                }
            }
        }
        // Attention's is computed with its probabilities; a program with sums over ranks is refused.
        _ => {}
    }
}

/// What an activation multiplies a gradient with.
fn slope<T: Real>(rules: Rules, activation: Activation, x: T) -> T {
    match rules {
        Rules::Gradient => derivative(activation, x),
        Rules::AttnLrp | Rules::Conservative => gate(activation, x),
    }
}

fn linear<T: Real>(
    run: &Run<'_, T>,
    index: usize,
    node: &Node,
    spec: &Linear,
    rules: Rules,
    dy: &[T],
    gradients: &mut [Vec<T>],
) {
    let [n, k] = [0, 1].map(|i| run.operand_shape(node, 1).get(i).copied().unwrap_or(1));
    if spec.residual
        && let Some(residual) = gradients.last_mut()
    {
        add_repeated(residual, dy);
    }
    let before: Option<Vec<T>> = match (spec.activation, run.saved(index)) {
        (Some(activation), Saved::BeforeActivation(x)) => {
            let factors = x.iter().map(|&x| slope(rules, activation, x));
            Some(factors.zip(dy).map(|(f, &g)| f * g).collect())
        }
        _ => None,
    };
    let dy = before.as_deref().unwrap_or(dy);
    if spec.bias {
        add_repeated(&mut gradients[2], dy);
    }
    if !gradients[0].is_empty() {
        gemm(
            rows(dy, n),
            rows(run.operand(node, 1), k),
            rows_mut(&mut gradients[0], k),
        );
    }
}

/// By the rules of relevance each factor of a gate has half.
fn transpose<T: Real>(
    run: &Run<'_, T>,
    node: &Node,
    spec: Transpose,
    rules: Rules,
    dy: &[T],
    gradients: &mut [Vec<T>],
) {
    let gamma = spec
        .scale
        .then(|| [run.operand(node, 1), &vec![T::zero(); spec.pad]].concat());
    let scaled = |values: Vec<T>| match &gamma {
        Some(gamma) => zip(&values, gamma, |value, gamma| value * gamma),
        None => values,
    };
    let last = node.inputs.len() - 1;
    let mut inner = dy.to_vec();
    match spec.combine {
        None => {}
        Some(Combine::Add) => add_repeated(&mut gradients[last], dy),
        Some(Combine::Multiply) => {
            let half = T::of(if rules == Rules::Gradient { 1.0 } else { 0.5 });
            let (shape, x) = (run.operand_shape(node, 0), run.operand(node, 0));
            let value = scaled(transposed(shape, x, [spec.crop, spec.pad]));
            add_repeated(
                &mut gradients[last],
                &zip(dy, &value, |g, value| half * g * value),
            );
            inner = zip(dy, run.operand(node, last), |g, gate| half * g * gate);
        }
    }
    add_repeated(
        &mut gradients[0],
        &transposed(run.shape(node.output()), &scaled(inner), [spec.pad, spec.crop]),
    );
}

/// One row. By the rules of relevance the standard deviation is a constant; the mean is not.
fn layer_norm<T: Real>(rules: Rules, epsilon: f32, [x, weight, dy]: [&[T]; 3], dx: &mut [T]) {
    let n = T::of(x.len() as f64);
    let (mean, inverse) = moments(x, epsilon);
    let (mut sum, mut dot) = (T::zero(), T::zero());
    for ((&x, &w), &g) in x.iter().zip(weight).zip(dy) {
        sum += g * w;
        dot += g * w * (x - mean) * inverse;
    }
    if rules != Rules::Gradient {
        dot = T::zero();
    }
    for (((dx, &x), &w), &g) in dx.iter_mut().zip(x).zip(weight).zip(dy) {
        *dx += inverse * (g * w - sum / n - (x - mean) * inverse * dot / n);
    }
}

/// One row. By the rules of relevance the root of the mean square is a constant.
fn rms_norm<T: Real>(rules: Rules, epsilon: f32, [x, weight, dy]: [&[T]; 3], dx: &mut [T]) {
    let n = T::of(x.len() as f64);
    let inverse = inverse_rms(x, epsilon);
    let mut dot = T::zero();
    if rules == Rules::Gradient {
        for ((&x, &w), &g) in x.iter().zip(weight).zip(dy) {
            dot += g * w * x * inverse;
        }
    }
    for (((dx, &x), &w), &g) in dx.iter_mut().zip(x).zip(weight).zip(dy) {
        *dx += inverse * (g * w - x * inverse * dot / n);
    }
}

fn pool<T: Real>(spec: &Pool, shape: &[usize], x: &[T], dy: &[T], dx: &mut [T]) {
    let (n, d) = (shape[1], shape[2]);
    let range = pooled(spec, n);
    let images = dx.chunks_exact_mut(n * d).zip(x.chunks_exact(n * d));
    for ((dx, x), dy) in images.zip(dy.chunks_exact(d)) {
        for (c, &g) in dy.iter().enumerate() {
            match spec {
                Pool::Max { .. } => dx[argmax(x, range.clone(), d, c) * d + c] += g,
                Pool::Token(_) | Pool::Mean { .. } => {
                    let share = g / T::of(range.len() as f64);
                    range.clone().for_each(|token| dx[token * d + c] += share);
                }
            }
        }
    }
}

/// Adds `dy` to `dx`, which may stand for several images or rows. Nothing if `dx` is empty.
fn add_repeated<T: Real>(dx: &mut [T], dy: &[T]) {
    if !dx.is_empty() {
        for dy in dy.chunks(dx.len()) {
            dx.iter_mut().zip(dy).for_each(|(dx, &g)| *dx += g);
        }
    }
}

/// The opposite of a concatenation: all parts but the last are the same for every image.
fn split<T: Real>(batch: usize, dy: &[T], parts: &mut [Vec<T>]) {
    let image = dy.len() / batch;
    let Some((last, shared)) = parts.split_last_mut() else {
        return;
    };
    // Parts that are not asked for are empty, so that positions count from the end.
    let own = if last.is_empty() { 0 } else { last.len() / batch };
    for (b, dy) in dy.chunks_exact(image).enumerate() {
        let mut at = 0;
        for part in shared.iter_mut() {
            let len = part.len();
            part.iter_mut().zip(&dy[at..]).for_each(|(part, &g)| *part += g);
            at += len;
        }
        let from = image - own;
        last[b * own..(b + 1) * own]
            .iter_mut()
            .zip(&dy[from..])
            .for_each(|(part, &g)| *part += g);
    }
}

fn scatter<T: Real>(patches: &Patches, dy: &[T], factors: [f64; 3], dx: &mut [T]) {
    let factors = factors.map(T::of);
    let mut dy = dy.iter();
    patches.for_each(|to, channel| {
        if let (Some(dx), Some(&g)) = (dx.get_mut(to), dy.next()) {
            *dx += g * factors[channel];
        }
    });
}
