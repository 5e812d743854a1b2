//! Operators that cut, join and pad tensors.

use hipvit_graph::op::pad::PadMode;
use hipvit_graph::op::{Concat, Pad, Slice};
use hipvit_graph::tensor::Tensor;

use super::Group;
use super::layout::reshape_to;
use crate::builder::{Builder, show_all};
use crate::context::Context;
use crate::dim::{Dim, Linear};
use crate::error::{Refusal, refuse};
use crate::value::{Data, Value, axis, count, show};

pub(super) const OPS: Group = &[
    ("Concat", concat),
    ("Pad", pad),
    ("Slice", slice),
    ("Split", split),
];

fn concat(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let mut operands = Vec::with_capacity(context.inputs.len());
    for index in 0..context.inputs.len() {
        operands.push(context.input(index)?);
    }
    let Some(first) = operands.first() else {
        refuse!("joins no operands");
    };
    let Some(given) = context.int("axis") else {
        refuse!("lacks its axis");
    };
    let axis = axis(given, first.rank())?;
    join(context.builder, &operands, axis).map(|value| vec![value])
}

/// Puts tensors after each other along an axis.
pub(super) fn join(builder: &mut Builder, operands: &[Value], axis: usize) -> Result<Value, Refusal> {
    // Operands without elements may even be known while the others are computed.
    let filled: Vec<&Value> = operands
        .iter()
        .filter(|x| x.dims.get(axis) != Some(&Dim::Fixed(0)))
        .collect();
    match filled[..] {
        [] => Ok(operands[0].clone()),
        [one] => Ok(one.clone()),
        _ if are_columns(&filled, axis) => columns(&filled, axis),
        _ => {
            let dims = |x: &Value| -> Vec<Dim> {
                let others = x.dims.iter().enumerate().filter(|(index, _)| *index != axis);
                others.map(|(_, &dim)| dim).collect()
            };
            if filled
                .iter()
                .any(|x| dims(x) != dims(filled[0]) || x.rank() <= axis)
            {
                refuse!("cannot join {} along axis {axis}", show_all(&filled));
            }
            if filled[0].dims[axis].is_batch() != filled.iter().any(|x| x.dims[axis].is_batch()) {
                refuse!(
                    "joins {} along an axis that only partly depends on the batch size",
                    show_all(&filled)
                );
            }
            builder.apply(Concat { axis }, &filled)
        }
    }
}

/// Puts tensors of the same extents after each other along a new first axis.
pub(crate) fn stack(builder: &mut Builder, operands: &[Value]) -> Result<Value, Refusal> {
    let mut rows = Vec::with_capacity(operands.len());
    for operand in operands {
        let mut dims = operand.dims.clone();
        dims.insert(0, Dim::Fixed(1));
        rows.push(reshape_to(builder, operand, &dims)?);
    }
    join(builder, &rows, 0)
}

/// Returns true if the operands are columns of indices, some of which depend on the batch size.
fn are_columns(operands: &[&Value], axis: usize) -> bool {
    let first = operands[0];
    let is_column = |x: &&Value| x.dims == first.dims && x.dims.last() == Some(&Dim::Fixed(1));
    let has_ramp = operands.iter().any(|x| matches!(x.data, Data::Ramp(_)));
    has_ramp && axis + 1 == first.rank() && operands.iter().all(is_column)
}

/// Joins columns of indices along the last axis.
fn columns(operands: &[&Value], axis: usize) -> Result<Value, Refusal> {
    let mut dims = operands[0].dims.clone();
    dims[axis] = Dim::Fixed(operands.len());
    Ok(Value {
        element: operands[0].element,
        dims,
        data: Data::Columns(operands.iter().map(|&x| x.clone()).collect()),
    })
}

/// A range of indices of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: i64,
    len: usize,
    step: i64,
}

impl Range {
    /// Clamps the limits of a slice to an axis by ONNX's rules.
    fn new(start: i64, end: i64, step: i64, extent: usize) -> Result<Self, Refusal> {
        let Ok(extent) = i64::try_from(extent) else {
            refuse!("has an extent of {extent}, which is too large");
        };
        let from_end = |index: i64| {
            if index < 0 {
                index.saturating_add(extent)
            } else {
                index
            }
        };
        let (start, end) = (from_end(start), from_end(end));
        let (start, end) = match step {
            0 => refuse!("has a step of 0"),
            1.. => (start.clamp(0, extent), end.clamp(0, extent)),
            _ => (start.clamp(0, extent - 1), end.clamp(-1, extent - 1)),
        };
        let distance = if step > 0 { end - start } else { start - end };
        let len = if distance <= 0 {
            0
        } else {
            (distance as u64).div_ceil(step.unsigned_abs())
        };
        Ok(Self {
            start,
            len: len as usize,
            step,
        })
    }
}

fn slice(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let mut x = context.input(0)?;
    let starts = context.input(1)?.linear_integers("starts")?;
    let ends = context.input(2)?.linear_integers("ends")?;
    let axes = match context.optional(3) {
        Some(axes) => axes.known_integers("axes")?,
        None => (0..starts.len() as i64).collect(),
    };
    let steps = match context.optional(4) {
        Some(steps) => steps.known_integers("steps")?,
        None => vec![1; starts.len()],
    };
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        refuse!(
            "has {} starts, {} ends, {} axes and {} steps",
            starts.len(),
            ends.len(),
            axes.len(),
            steps.len()
        );
    }
    for (((&start, &end), &given), &step) in starts.iter().zip(ends.iter()).zip(&axes).zip(&steps) {
        let axis = axis(given, x.rank())?;
        x = slice_axis(context.builder, &x, axis, [start, end], step)?;
    }
    Ok(vec![x])
}

fn slice_axis(
    builder: &mut Builder,
    x: &Value,
    axis: usize,
    [start, end]: [Linear; 2],
    step: i64,
) -> Result<Value, Refusal> {
    let dim = x.dims[axis];
    let whole = Linear::from(dim);
    let is_past_end = |end: Linear| end == whole || end.known().is_some_and(|end| end >= i64::from(i32::MAX));
    if step == 1 && start == Linear::new(0) && is_past_end(end) {
        return Ok(x.clone());
    }
    let Some(extent) = dim.fixed() else {
        return part_of_batch(builder, x, axis, [start, end], step);
    };
    // An end beyond the axis for every batch size is its end.
    let end = match end.known() {
        Some(end) => end,
        None if end.batch > 0 && end.constant.saturating_add(end.batch) >= extent as i64 => i64::MAX,
        None => refuse!("ends at an index that depends on the batch size"),
    };
    let Some(start) = start.known() else {
        refuse!("starts at an index that depends on the batch size");
    };
    let range = Range::new(start, end, step, extent)?;
    take(builder, x, axis, range)
}

/// Slices an axis that grows with the batch: only multiples of the batch size at both ends.
fn part_of_batch(
    builder: &mut Builder,
    x: &Value,
    axis: usize,
    [start, end]: [Linear; 2],
    step: i64,
) -> Result<Value, Refusal> {
    let is_index = |limit: Linear| {
        limit.batch == 0 && limit.constant >= 0 && limit.constant <= x.dims[axis].at_one() as i64
    };
    if step == 1 && is_index(start) && is_index(end) && start.constant < end.constant {
        // These exist for every batch size.
        let range = Range {
            start: start.constant,
            len: (end.constant - start.constant) as usize,
            step,
        };
        return take(builder, x, axis, range);
    }
    refuse!(
        "takes a part of axis {axis} of {}, which grows with the batch. Export the model with a fixed batch size",
        show(&x.dims)
    )
}

/// Takes a range of an axis.
fn take(builder: &mut Builder, x: &Value, axis: usize, range: Range) -> Result<Value, Refusal> {
    if range.len == 0 {
        return empty(x, axis);
    }
    if range
        == (Range {
            start: 0,
            len: x.dims[axis].fixed().unwrap_or(0),
            step: 1,
        })
    {
        return Ok(x.clone());
    }
    let op = Slice {
        axis,
        start: range.start as usize,
        len: range.len,
        step: range.step as isize,
    };
    builder.apply(op, &[x])
}

/// Takes the indices `start..start + len` of an axis.
pub(super) fn take_range(
    builder: &mut Builder,
    x: &Value,
    axis: usize,
    start: usize,
    len: usize,
) -> Result<Value, Refusal> {
    let start = i64::try_from(start).map_err(|_| "starts too far on")?;
    take(builder, x, axis, Range { start, len, step: 1 })
}

/// Returns a tensor like `x` whose extent along an axis is 0. It is known, since it has no elements.
fn empty(x: &Value, axis: usize) -> Result<Value, Refusal> {
    let mut dims = x.dims.clone();
    dims[axis] = Dim::Fixed(0);
    let data = if x.element.is_float() {
        let shape: Vec<usize> = dims.iter().map(|dim| dim.at_one()).collect();
        let tensor = Tensor::from_f32(shape, Vec::new()).ok_or("does not fit its shape")?;
        Value::constant(x.element, tensor, "empty").data
    } else {
        Data::Integers([].into())
    };
    Ok(Value {
        element: x.element,
        dims,
        data,
    })
}

fn split(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let axis = axis(context.int_or("axis", 0), x.rank())?;
    let results = context.node.outputs.len();
    let given = match (context.ints("split"), context.optional(1)) {
        (Some(lengths), _) => Some(lengths.to_vec()),
        (None, Some(lengths)) => Some(lengths.known_integers("lengths")?),
        (None, None) => None,
    };
    let parts = usize::try_from(context.int_or("num_outputs", results as i64)).unwrap_or(0);
    let Some(extent) = x.dims[axis].fixed() else {
        refuse!(
            "splits axis {axis} of {}, which grows with the batch",
            show(&x.dims)
        );
    };
    let lengths: Vec<usize> = match given {
        Some(lengths) => {
            let lengths: Result<Vec<usize>, _> = lengths.iter().map(|&len| usize::try_from(len)).collect();
            lengths.map_err(|_| "has a negative length")?
        }
        None if parts == 0 => refuse!("has no outputs"),
        None => {
            // The last part may be shorter.
            let len = extent.div_ceil(parts);
            (0..parts)
                .map(|part| len.min(extent.saturating_sub(part * len)))
                .collect()
        }
    };
    let sum = lengths.iter().try_fold(0usize, |sum, &len| sum.checked_add(len));
    if sum != Some(extent) || lengths.len() != results {
        refuse!("splits {extent} into {lengths:?} for {results} outputs");
    }
    let mut start = 0;
    let mut values = Vec::with_capacity(results);
    for (index, len) in lengths.into_iter().enumerate() {
        // Parts that no node reads are dropped with the graph's other unused nodes.
        if context.wants(index) || len == 0 {
            values.push(take_range(context.builder, &x, axis, start, len)?);
        } else {
            values.push(x.clone());
        }
        start += len;
    }
    Ok(values)
}

fn pad(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let mut x = context.input(0)?;
    let pads = context.input(1)?.known_integers("pads")?;
    let rank = x.rank();
    let axes = match context.optional(3) {
        Some(axes) => axes.known_integers("axes")?,
        None => (0..rank as i64).collect(),
    };
    if pads.len() != 2 * axes.len() {
        refuse!("has {} pads for {} axes", pads.len(), axes.len());
    }
    let mode = match context.string_or("mode", "constant").as_str() {
        "constant" => PadMode::Constant(match context.optional(2) {
            None => 0.0,
            Some(value) => match value.number() {
                Some(number) => number as f32,
                None => refuse!("pads with a value that depends on the input"),
            },
        }),
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        mode => refuse!("has the mode `{mode}`, which is not supported"),
    };
    let mut op = Pad {
        mode,
        ..Pad::zeros(rank)
    };
    for (index, &given) in axes.iter().enumerate() {
        let axis = axis(given, rank)?;
        let [before, after] = [pads[index], pads[axes.len() + index]];
        // Negative pads cut.
        if before < 0 || after < 0 {
            let cut = [before, after].map(|pad| Linear::new(pad.min(0).saturating_neg()));
            let Some(end) = Linear::from(x.dims[axis]).checked_sub(cut[1]) else {
                refuse!("has the pads {pads:?}");
            };
            x = slice_axis(context.builder, &x, axis, [cut[0], end], 1)?;
        }
        let amount = |pad: i64| usize::try_from(pad.max(0)).map_err(|_| "has pads that are too large");
        (op.before[axis], op.after[axis]) = (amount(before)?, amount(after)?);
        if x.dims[axis].is_batch() && (before > 0 || after > 0) {
            refuse!(
                "pads axis {axis} of {}, which grows with the batch",
                show(&x.dims)
            );
        }
    }
    if op.before.iter().chain(&op.after).all(|&amount| amount == 0) {
        return Ok(vec![x]);
    }
    let extents = x.dims.iter().zip(op.before.iter().zip(&op.after));
    let padded: Option<Vec<usize>> = extents
        .map(|(dim, (&before, &after))| dim.at_one().checked_add(before)?.checked_add(after))
        .collect();
    count(&padded.ok_or("has pads that are too large")?)?;
    if x.is_known() && x.as_integers().is_some() {
        refuse!("pads integers that are known at import, which is not supported");
    }
    context.builder.apply(op, &[&x]).map(|value| vec![value])
}
