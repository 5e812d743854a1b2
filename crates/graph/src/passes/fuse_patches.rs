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
use crate::{Change, Graph, Layout, Node, Provenance, Role, ValueId};

/// A weight or bias, and where it comes from.
type Known = (Provenance, Tensor);

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
                Some(tensor) => Some((rewriter.provenance(id), tensor.clone())),
                None => return Ok(None),
            },
            None => None,
        };
        let weight = (rewriter.provenance(node.inputs[1]), weight.clone());

        let pixels = rewriter.sole_producer(node.inputs[0]);
        let (x, layout, normalize, weight, bias) = match pixels.map(|p| (p.inputs[0], &p.op)) {
            Some((pixels, &Op::Normalize(normalize))) => {
                let (of, stored) = weight;
                let (of, scale, bias, normalize) = if fold_normalize {
                    let bias = normalized_bias(node, &stored, bias.as_ref(), &normalize)?;
                    (of.then(Change::Normalized), normalize.scale, Some(bias), None)
                } else {
                    (of, [1.0; 3], bias, Some(normalize))
                };
                let weight = channels_last(node, &stored, scale)?;
                let weight = (of.then(Change::Layout(Layout::Hwc)), weight);
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
    weight: Known,
    bias: Option<Known>,
) -> Result<ValueId> {
    let name = format!("{}.patches", node.name);
    let patches = rewriter.emit(Role::Patch, &name, extract, [x])?;
    rewriter.emit_linear(Role::Patch, &node.name, patches, weight, bias, None)
}

/// Bias for pixels that are not normalised. Sums run in double precision and are rounded once.
fn normalized_bias(
    node: &Node,
    weight: &Tensor,
    bias: Option<&Known>,
    normalize: &Normalize,
) -> Result<Known> {
    let outputs = weight.shape()[0];
    let area: usize = weight.shape()[2..].iter().product();
    let values = weight.to_f32();
    let shifts: Vec<f64> = values
        .chunks_exact(area)
        .zip((0..3).cycle())
        .map(|(plane, c)| {
            let sum: f64 = plane.iter().map(|&w| f64::from(w)).sum();
            sum * f64::from(normalize.shift[c])
        })
        .collect();
    let (of_bias, bias) = match bias {
        Some((provenance, tensor)) => (provenance.clone(), tensor.to_f32()),
        None => {
            let provenance = Provenance::computed(format!("{}.bias", node.name), []);
            (provenance, Cow::Owned(vec![0.0; outputs]))
        }
    };
    let bias: Vec<f32> = bias
        .iter()
        .zip(shifts.chunks_exact(3))
        .map(|(&b, shifts)| (f64::from(b) + shifts.iter().sum::<f64>()) as f32)
        .collect();
    let bias = sized(node, Tensor::from_f32([outputs], bias))?;
    Ok((of_bias.then(Change::Normalized), bias))
}

/// `[D,3,h,w]` as `[D,h·w·3]`, each channel times its scale.
fn channels_last(node: &Node, weight: &Tensor, scale: [f32; 3]) -> Result<Tensor> {
    let outputs = weight.shape()[0];
    let area: usize = weight.shape()[2..].iter().product();
    let values = weight.to_f32();
    let mut reordered = vec![0.0; values.len()];
    let filters = reordered.chunks_exact_mut(3 * area);
    for (filter, planes) in filters.zip(values.chunks_exact(3 * area)) {
        let pixels = filter.as_chunks_mut::<3>().0;
        for (c, plane) in planes.chunks_exact(area).enumerate() {
            for (pixel, value) in pixels.iter_mut().zip(plane) {
                pixel[c] = value * scale[c];
            }
        }
    }
    sized(node, Tensor::from_f32([outputs, 3 * area], reordered))
}

/// `[D,3,h,w]` as `[D,3·h·w]`, which is the same storage.
fn flat(node: &Node, (provenance, weight): &Known) -> Result<Known> {
    let shape = [weight.shape()[0], weight.shape()[1..].iter().product()];
    let provenance = provenance.clone().then(Change::Layout(Layout::Flat));
    Ok((provenance, sized(node, weight.reshaped(shape))?))
}
