//! Normalisation.

use hipvit_graph::Provenance;
use hipvit_graph::op::reduce::ReduceKind;
use hipvit_graph::op::{Affine, GroupNorm, LayerNorm, RmsNorm};
use hipvit_graph::pattern::{Float, floats};
use hipvit_graph::tensor::Tensor;

use super::Group;
use super::elementwise::{apply, sum};
use super::layout::{dims, permute, reshape_to};
use super::reduce::reduce_axes;
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::Dim;
use crate::error::{Refusal, refuse};
use crate::value::{Value, axis, show};

pub(super) const OPS: Group = &[
    ("BatchNormalization", batch_norm),
    ("GroupNormalization", group_norm),
    ("InstanceNormalization", instance_norm),
    ("LayerNormalization", layer_norm),
    ("LpNormalization", lp_norm),
    ("RMSNormalization", rms_norm),
    // An operator of ONNX Runtime that its optimiser writes without a domain.
    ("SimplifiedLayerNormalization", rms_norm),
];

pub(super) const MICROSOFT: Group = &[
    ("SkipLayerNormalization", |c| skip_norm(c, true)),
    ("SkipSimplifiedLayerNormalization", |c| skip_norm(c, false)),
];

/// Returns `length` times a number.
pub(super) fn filled(like: &Value, length: usize, number: f32) -> Result<Value, Refusal> {
    let tensor = Tensor::from_f32([length], vec![number; length]).ok_or("is too large")?;
    Ok(Value::constant(like.element, tensor, Provenance::Number(number)))
}

/// Orders the axes of `x` so that channels, axis 1, are last. Returns the order that restores them too.
fn channels_to_end(builder: &mut Builder, x: &Value) -> Result<(Value, Vec<usize>), Refusal> {
    let rank = x.rank();
    if rank < 2 {
        refuse!("takes [N, C, ..], got {}", show(&x.dims));
    }
    let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let back: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    Ok((permute(builder, x, &order)?, back))
}

fn batch_norm(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let epsilon = context.float_or("epsilon", 1e-5);
    context.ignore(&["momentum", "spatial"]);
    let training = context.flag("training_mode", false);
    if (1..5).any(|index| context.wants(index)) {
        refuse!("updates running statistics, as in training, which is not supported");
    }
    if training {
        return by_own_statistics(context, &x, epsilon).map(|value| vec![value]);
    }
    let mut parameters = Vec::with_capacity(4);
    for index in 1..5 {
        let parameter = context.input(index)?;
        if parameter.as_constant().is_none() {
            refuse!("has parameters that depend on the input, which is not supported");
        }
        parameters.push(parameter.to_constant()?.tensor);
    }
    let [scale, bias, mean, variance] = &parameters[..] else {
        refuse!("lacks its parameters");
    };
    let channels = scale.len();
    if parameters.iter().any(|tensor| tensor.shape() != [channels]) {
        refuse!("has parameters of different shapes");
    }
    let [scale, bias, mean, variance] = [scale, bias, mean, variance].map(|tensor| tensor.to_f32());
    let mut weight = Vec::with_capacity(channels);
    let mut offset = Vec::with_capacity(channels);
    for index in 0..channels {
        let factor = f64::from(scale[index]) / (f64::from(variance[index]) + f64::from(epsilon)).sqrt();
        weight.push(factor as f32);
        offset.push((f64::from(bias[index]) - f64::from(mean[index]) * factor) as f32);
    }
    let name = context.node.inputs[1].as_str();
    let constant = |values: Vec<f32>, what: &str| {
        let tensor = Tensor::from_f32([channels], values).ok_or("is too large")?;
        let provenance = Provenance::computed(format!("{name} {what}"), [Provenance::from(name)]);
        Ok::<_, Refusal>(Value::constant(x.element, tensor, provenance))
    };
    let (weight, offset) = (constant(weight, "factor")?, constant(offset, "offset")?);
    let builder = &mut *context.builder;
    let (rows, back) = channels_to_end(builder, &x)?;
    let result = builder.apply(Affine, &[&rows, &weight, &offset])?;
    permute(builder, &result, &back).map(|value| vec![value])
}

/// Normalises each channel by its own mean and variance, as models do with weights.
fn by_own_statistics(context: &mut Context<'_>, x: &Value, epsilon: f32) -> Result<Value, Refusal> {
    let [scale, bias] = [context.input(1)?, context.input(2)?];
    let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != 1).collect();
    let builder = &mut *context.builder;
    let mut shape = vec![Dim::Fixed(1); x.rank()];
    let Some(channels) = shape.get_mut(1) else {
        refuse!("takes [N, C, ..], got {}", show(&x.dims));
    };
    *channels = x.dims[1];
    let mean = reduce_axes(builder, x, ReduceKind::Mean, &axes, true)?;
    let centred = apply(
        builder,
        floats::operand(0) - floats::operand(1),
        &[x, &mean],
        x.element,
    )?;
    let variance = apply(
        builder,
        floats::operand(0) * floats::operand(0),
        &[&centred],
        x.element,
    )?;
    let variance = reduce_axes(builder, &variance, ReduceKind::Mean, &axes, true)?;
    let scale = reshape_to(builder, &scale, &shape)?;
    let bias = reshape_to(builder, &bias, &shape)?;
    let deviation = (floats::operand(1) + epsilon).sqrt();
    let result = floats::operand(0) / deviation * floats::operand(2) + floats::operand(3);
    apply(builder, result, &[&centred, &variance, &scale, &bias], x.element)
}

/// Returns `x` with all axes from one on as one, and their number of elements.
fn rows(builder: &mut Builder, x: &Value, axis: usize) -> Result<(Value, usize), Refusal> {
    let (outer, inner) = x.dims.split_at(axis);
    let channels = super::constant::product(inner.iter().map(|&dim| dim.into()))?;
    let channels = dims(&[channels])?[0];
    let Some(width) = channels.fixed() else {
        refuse!("normalises over an extent that depends on the batch size");
    };
    let extents: Vec<Dim> = outer.iter().copied().chain([channels]).collect();
    Ok((reshape_to(builder, x, &extents)?, width))
}

/// Returns a parameter of a norm as a list, with its elements repeated by broadcasting.
fn parameter(builder: &mut Builder, value: &Value, of: &[Dim], width: usize) -> Result<Value, Refusal> {
    let whole = super::layout::expand_dims(builder, value, of)?;
    reshape_to(builder, &whole, &[Dim::Fixed(width)])
}

fn layer_norm(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let epsilon = context.float_or("epsilon", 1e-5);
    context.ignore(&["stash_type"]);
    let wants_statistics = context.wants(1) || context.wants(2);
    let axis = axis(context.int_or("axis", -1), x.rank())?;
    let normalised = x.dims[axis..].to_vec();
    let (scale, bias) = (context.input(1)?, context.optional(2));
    let builder = &mut *context.builder;
    let (flat, width) = rows(builder, &x, axis)?;
    let scale = parameter(builder, &scale, &normalised, width)?;
    let bias = match bias {
        Some(bias) => parameter(builder, &bias, &normalised, width)?,
        None => filled(&x, width, 0.0)?,
    };
    let result = builder.apply(LayerNorm { epsilon }, &[&flat, &scale, &bias])?;
    let mut results = vec![reshape_to(builder, &result, &x.dims)?];
    if wants_statistics {
        let ones = vec![Dim::Fixed(1); x.rank() - axis];
        let dims = [&x.dims[..axis], &ones].concat();
        for statistic in statistics(builder, &flat, epsilon)? {
            results.push(reshape_to(builder, &statistic, &dims)?);
        }
    }
    Ok(results)
}

/// Returns the mean of each row, and the reciprocal of its deviation.
fn statistics(builder: &mut Builder, rows: &Value, epsilon: f32) -> Result<[Value; 2], Refusal> {
    let last = [rows.rank() - 1];
    let mean = reduce_axes(builder, rows, ReduceKind::Mean, &last, true)?;
    let centred = floats::operand(0) - floats::operand(1);
    let squares = centred.clone() * centred;
    let squares = apply(builder, squares, &[rows, &mean], rows.element)?;
    let variance = reduce_axes(builder, &squares, ReduceKind::Mean, &last, true)?;
    let inverse = (floats::operand(0) + epsilon).rsqrt();
    let inverse = apply(builder, inverse, &[&variance], rows.element)?;
    Ok([mean, inverse])
}

fn rms_norm(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let epsilon = context.float_or("epsilon", 1e-5);
    context.ignore(&["stash_type"]);
    if context.wants(1) {
        refuse!("has the deviation as an output, which is not supported");
    }
    let axis = axis(context.int_or("axis", -1), x.rank())?;
    let normalised = x.dims[axis..].to_vec();
    let scale = context.input(1)?;
    let builder = &mut *context.builder;
    let (flat, width) = rows(builder, &x, axis)?;
    let scale = parameter(builder, &scale, &normalised, width)?;
    let result = builder.apply(RmsNorm { epsilon }, &[&flat, &scale])?;
    reshape_to(builder, &result, &x.dims).map(|value| vec![value])
}

/// Normalises a sum. `centers` is true for LayerNorm, and false for RMSNorm, which has no offset.
fn skip_norm(context: &mut Context<'_>, centers: bool) -> Result<Vec<Value>, Refusal> {
    let epsilon = context.float_or("epsilon", 1e-12);
    let [x, skip] = [context.input(0)?, context.input(1)?];
    let gamma = context.input(2)?;
    let beta = context.optional(3).filter(|_| centers);
    let bias = context.optional(if centers { 4 } else { 3 });
    if context.wants(1) || context.wants(2) {
        refuse!("has mean or deviation as an output, which is not supported");
    }
    let Some(width) = x.dims.last().and_then(|dim| dim.fixed()) else {
        refuse!("takes rows, got {}", show(&x.dims));
    };
    let builder = &mut *context.builder;
    let mut total = sum(builder, &x, &skip)?;
    if let Some(bias) = bias {
        total = sum(builder, &total, &bias)?;
    }
    let result = if centers {
        let beta = match beta {
            Some(beta) => beta,
            None => filled(&x, width, 0.0)?,
        };
        builder.apply(LayerNorm { epsilon }, &[&total, &gamma, &beta])?
    } else {
        builder.apply(RmsNorm { epsilon }, &[&total, &gamma])?
    };
    // Outputs 1 and 2 are refused above; output 3 is the sum.
    Ok(vec![result.clone(), result.clone(), result, total])
}

fn group_norm(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let epsilon = context.float_or("epsilon", 1e-5);
    let given = context.int_or("num_groups", 0);
    context.ignore(&["stash_type"]);
    let [scale, bias] = [context.input(1)?, context.input(2)?];
    let channels = x.dims.get(1).and_then(|dim| dim.fixed());
    let (Some(channels), Ok(groups)) = (channels, usize::try_from(given)) else {
        refuse!("has {given} groups of the channels of {}", show(&x.dims));
    };
    if groups == 0 || channels % groups != 0 {
        refuse!("cannot divide {channels} channels into {groups} groups");
    }
    // Before version 21, groups have parameters, not channels.
    let of_channels = |builder: &mut Builder, parameter: &Value| {
        if parameter.dims == [Dim::Fixed(groups)] && groups != channels {
            let column = reshape_to(builder, parameter, &[Dim::Fixed(groups), Dim::Fixed(1)])?;
            let target = [groups, channels / groups].map(Dim::Fixed);
            let repeated = super::layout::expand_dims(builder, &column, &target)?;
            return reshape_to(builder, &repeated, &[Dim::Fixed(channels)]);
        }
        Ok(parameter.clone())
    };
    let builder = &mut *context.builder;
    let scale = of_channels(builder, &scale)?;
    let bias = of_channels(builder, &bias)?;
    let (last, back) = channels_to_end(builder, &x)?;
    let result = builder.apply(GroupNorm { groups, epsilon }, &[&last, &scale, &bias])?;
    permute(builder, &result, &back).map(|value| vec![value])
}

fn instance_norm(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let epsilon = context.float_or("epsilon", 1e-5);
    let [scale, bias] = [context.input(1)?, context.input(2)?];
    let Some(groups) = x.dims.get(1).and_then(|dim| dim.fixed()) else {
        refuse!("takes [N, C, ..], got {}", show(&x.dims));
    };
    let builder = &mut *context.builder;
    let (last, back) = channels_to_end(builder, &x)?;
    let result = builder.apply(GroupNorm { groups, epsilon }, &[&last, &scale, &bias])?;
    permute(builder, &result, &back).map(|value| vec![value])
}

fn lp_norm(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let axis = axis(context.int_or("axis", -1), x.rank())?;
    let kind = match context.int_or("p", 2) {
        1 => ReduceKind::L1,
        2 => ReduceKind::L2,
        p => refuse!("has the norm p = {p}"),
    };
    let builder = &mut *context.builder;
    let norm = reduce_axes(builder, &x, kind, &[axis], true)?;
    // A vector of zeros stays one.
    let is_zero = floats::operand(1).equal(0.0);
    let quotient = Float::select(&is_zero, 0.0, floats::operand(0) / floats::operand(1));
    let element = x.element;
    apply(builder, quotient, &[&x, &norm], element).map(|value| vec![value])
}
