//! Turns the patch convolution into patch extraction and a Linear: the stride is the kernel, so every pixel is used
//! once. Normalisation is folded into the weight and bias, or, for half-precision executors, whose rounded weights should not
//! carry the scale of pixels, into the extraction.
//!
//! With `n(p) = p · scale[c] + shift[c]`, `Σ W·n(p) + b = Σ (W · scale[c]) · p + (b + Σ W · shift[c])`.

use std::borrow::Cow;

use crate::error::Result;
use crate::op::{Normalize, Op, PatchExtract, PixelLayout};
use crate::rewrite::{Rewriter, Rewritten, rewrite, sized};
use crate::tensor::Tensor;
use crate::{Graph, Node, Role, ValueId};

/// A weight or bias, and its name.
type Named = (String, Tensor);

/// Counts the convolutions that were replaced. `fold_normalize`: whether normalisation goes into the weights.
pub(crate) fn run(graph: &Graph, fold_normalize: bool) -> Result<Rewritten> {
    rewrite(graph, |rewriter, node| {
        let Op::PatchConv(conv) = node.op else {
            return Ok(None);
        };
        let Some(weight) = rewriter.tensor(node.inputs[1]) else {
            return Ok(None);
        };
        let bias = match node.inputs.get(2) {
            Some(&id) => match rewriter.tensor(id) {
                Some(tensor) => Some((rewriter.name(id).to_owned(), tensor.clone())),
                None => return Ok(None),
            },
            None => None,
        };
        let weight = (rewriter.name(node.inputs[1]).to_owned(), weight.clone());

        let pixels = rewriter.sole_producer(node.inputs[0]);
        let (x, layout, normalize, weight, bias) = match pixels.map(|p| (p.inputs[0], &p.op)) {
            Some((pixels, &Op::Normalize(normalize))) => {
                let (weight, bias, normalize) = if fold_normalize {
                    let (weight, bias) = normalized(node, &weight, bias.as_ref(), &normalize)?;
                    (weight, Some(bias), None)
                } else {
                    (weight, bias, Some(normalize))
                };
                let weight = channels_last(node, &weight)?;
                (pixels, PixelLayout::Hwc, normalize, weight, bias)
            }
            _ => (node.inputs[0], PixelLayout::Chw, None, flat(node, &weight)?, bias),
        };
        let x = rewriter.map(x);
        let extract = Op::PatchExtract(PatchExtract {
            patch: conv.patch,
            layout,
            normalize,
        });
        emit(rewriter, node, extract, x, weight, bias).map(Some)
    })
}

fn emit(
    rewriter: &mut Rewriter<'_>,
    node: &Node,
    extract: Op,
    x: ValueId,
    weight: Named,
    bias: Option<Named>,
) -> Result<ValueId> {
    let name = format!("{}.patches", node.name);
    let patches = rewriter.emit(Role::Patch, &name, extract, [x])?;
    rewriter.emit_linear(Role::Patch, &node.name, patches, weight, bias, None)
}

/// Weight and bias for pixels that are not normalised. Sums run in double precision and are rounded once.
fn normalized(
    node: &Node,
    (weight_name, weight): &Named,
    bias: Option<&Named>,
    normalize: &Normalize,
) -> Result<(Named, Named)> {
    let outputs = weight.shape()[0];
    let area: usize = weight.shape()[2..].iter().product();
    let values = weight.to_f32();
    let channels = || values.chunks_exact(area).zip((0..3).cycle());

    let scaled: Vec<f32> = channels()
        .flat_map(|(plane, c)| plane.iter().map(move |w| w * normalize.scale[c]))
        .collect();
    let shifts: Vec<f64> = channels()
        .map(|(plane, c)| {
            let sum: f64 = plane.iter().map(|&w| f64::from(w)).sum();
            sum * f64::from(normalize.shift[c])
        })
        .collect();
    let (bias_name, bias) = match bias {
        Some((name, tensor)) => (name.clone(), tensor.to_f32()),
        None => (format!("{}.bias", node.name), Cow::Owned(vec![0.0; outputs])),
    };
    let bias: Vec<f32> = bias
        .iter()
        .zip(shifts.chunks_exact(3))
        .map(|(&b, shifts)| (f64::from(b) + shifts.iter().sum::<f64>()) as f32)
        .collect();

    let weight = sized(node, Tensor::from_f32(weight.shape(), scaled))?;
    let bias = sized(node, Tensor::from_f32([outputs], bias))?;
    Ok((
        (format!("{weight_name} (normalized)"), weight),
        (format!("{bias_name} (normalized)"), bias),
    ))
}

/// `[D,3,h,w]` as `[D,h·w·3]`.
fn channels_last(node: &Node, (name, weight): &Named) -> Result<Named> {
    let outputs = weight.shape()[0];
    let area: usize = weight.shape()[2..].iter().product();
    let values = weight.to_f32();
    let values = &values;
    let reordered: Vec<f32> = (0..outputs)
        .flat_map(|d| (0..area).flat_map(move |i| (0..3).map(move |c| values[(d * 3 + c) * area + i])))
        .collect();
    let weight = sized(node, Tensor::from_f32([outputs, 3 * area], reordered))?;
    Ok((format!("{name} (hwc)"), weight))
}

/// `[D,3,h,w]` as `[D,3·h·w]`, which is the same storage.
fn flat(node: &Node, (name, weight): &Named) -> Result<Named> {
    let shape = [weight.shape()[0], weight.shape()[1..].iter().product()];
    Ok((format!("{name} (flat)"), sized(node, weight.reshaped(shape))?))
}
