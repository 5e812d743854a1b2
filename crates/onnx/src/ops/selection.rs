//! The largest elements and their indices, running sums, and samples at computed positions.

use hipvit_graph::op::grid_sample::{Outside, SampleKernel};
use hipvit_graph::op::{CumSum, GridSample, TopK};
use hipvit_graph::pattern::{Float, floats};

use super::Group;
use super::cast::convert;
use super::conv::{channels_first, channels_last};
use super::elementwise::apply;
use super::layout::{permute, reshape_to};
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{Data, Value, axis, show};

pub(super) const OPS: Group = &[
    ("ArgMax", |c| arg_most(c, true)),
    ("ArgMin", |c| arg_most(c, false)),
    ("CumSum", cum_sum),
    ("GridSample", grid_sample),
    ("OneHot", one_hot),
    ("TopK", top_k),
];

/// Selects elements along an axis. Returns the values and the indices, with the axis at its place.
fn select(builder: &mut Builder, x: Value, axis: usize, op: TopK) -> Result<[Value; 2], Refusal> {
    if x.dims[axis].is_batch() {
        refuse!(
            "selects along axis {axis} of {}, which grows with the batch",
            show(&x.dims)
        );
    }
    let element = x.element;
    // The order of integers that are known is that of their numbers.
    let x = match x.data {
        Data::Integers(_) => convert(builder, x, ElementType::F32)?,
        _ => x,
    };
    let mut order: Vec<usize> = (0..x.rank()).collect();
    order.swap(axis, x.rank() - 1);
    let rows = permute(builder, &x, &order)?;
    let mut results = builder.apply_all(op, &[&rows])?;
    let (Some(indices), Some(values)) = (results.pop(), results.pop()) else {
        refuse!("has no results");
    };
    let values = permute(builder, &values, &order)?;
    let indices = permute(builder, &indices, &order)?;
    if values.is_known() {
        return Ok([
            convert(builder, values, element)?,
            convert(builder, indices, ElementType::I64)?,
        ]);
    }
    let indices = Value {
        element: ElementType::I64,
        ..indices
    };
    Ok([Value { element, ..values }, indices])
}

fn top_k(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let k = context.input(1)?.known_integers("a number of elements")?;
    let [Ok(k)] = k.iter().map(|&k| usize::try_from(k)).collect::<Vec<_>>()[..] else {
        refuse!("selects {k:?} elements");
    };
    let axis = axis(context.int_or("axis", -1), x.rank())?;
    let largest = context.flag("largest", true);
    // Sorted elements are in one of the orders that are allowed if the order does not matter.
    context.ignore(&["sorted"]);
    select(context.builder, x, axis, TopK { k, largest }).map(Vec::from)
}

fn arg_most(context: &mut Context<'_>, largest: bool) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let axis = axis(context.int_or("axis", 0), x.rank())?;
    let keep = context.flag("keepdims", true);
    if context.flag("select_last_index", false) {
        refuse!("selects the last one of equal elements, which is not supported");
    }
    let builder = &mut *context.builder;
    let [_, indices] = select(builder, x, axis, TopK { k: 1, largest })?;
    if keep {
        return Ok(vec![indices]);
    }
    let mut dims = indices.dims.clone();
    dims.remove(axis);
    reshape_to(builder, &indices, &dims).map(|value| vec![value])
}

fn cum_sum(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let given = context.input(1)?.known_integers("an axis")?;
    let [given] = given[..] else {
        refuse!("has {} axes", given.len());
    };
    let op = CumSum {
        axis: axis(given, x.rank())?,
        exclusive: context.flag("exclusive", false),
        reverse: context.flag("reverse", false),
    };
    if x.dims[op.axis].is_batch() {
        refuse!(
            "sums along axis {given} of {}, which grows with the batch",
            show(&x.dims)
        );
    }
    let element = x.element;
    let builder = &mut *context.builder;
    let x = match x.data {
        Data::Integers(_) => convert(builder, x, ElementType::F32)?,
        _ => x,
    };
    let sums = builder.apply(op, &[&x])?;
    if sums.is_known() {
        return convert(builder, sums, element).map(|value| vec![value]);
    }
    Ok(vec![Value { element, ..sums }])
}

fn grid_sample(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, grid] = [context.input(0)?, context.input(1)?];
    if x.rank() != 4 || grid.rank() != 4 || grid.dims[3] != Dim::Fixed(2) {
        refuse!(
            "samples {} at {}, but only images are supported",
            show(&x.dims),
            show(&grid.dims)
        );
    }
    let kernel = match context.string_or("mode", "linear").as_str() {
        "linear" | "bilinear" => SampleKernel::Linear,
        "nearest" => SampleKernel::Nearest,
        "cubic" | "bicubic" => SampleKernel::Cubic,
        mode => refuse!("has the mode `{mode}`, which is not supported"),
    };
    let outside = match context.string_or("padding_mode", "zeros").as_str() {
        "zeros" => Outside::Zeros,
        "border" => Outside::Edge,
        "reflection" => Outside::Reflect,
        mode => refuse!("has the padding_mode `{mode}`, which is not supported"),
    };
    let op = GridSample {
        kernel,
        outside,
        align_corners: context.flag("align_corners", false),
    };
    let builder = &mut *context.builder;
    let images = channels_last(builder, &x)?;
    let samples = builder.apply(op, &[&images, &grid])?;
    channels_first(builder, &samples, 4).map(|value| vec![value])
}

fn one_hot(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let indices = context.input(0)?;
    let depth = context.input(1)?.number();
    let [Some(depth), Some(values)] = [depth.map(|depth| vec![depth]), context.input(2)?.numbers()] else {
        refuse!("has a depth or values that are computed from the input, not fixed");
    };
    let ([depth], [off, on]) = (&depth[..], &values[..]) else {
        refuse!("has {} values", values.len());
    };
    let element = context.input(2)?.element;
    if !(1.0..=65536.0).contains(depth) {
        refuse!("has a depth of {depth}");
    }
    let rank = indices.rank() + 1;
    let axis = axis(context.int_or("axis", -1), rank)?;
    let builder = &mut *context.builder;
    let mut dims = indices.dims.clone();
    dims.insert(axis, Dim::Fixed(1));
    let indices = reshape_to(builder, &indices, &dims)?;
    let mut shape = vec![1; rank];
    shape[axis] = *depth as usize;
    let places: Vec<Linear> = (0..*depth as i64).map(Linear::new).collect();
    let places = Value::integers(ElementType::I64, &shape, places)?;
    // A negative index counts from the end.
    let index = floats::operand(0);
    let index = Float::select(&index.clone().less(0.0), index.clone() + *depth as f32, index);
    let is_hot = index.equal(floats::operand(1));
    let expression = Float::select(&is_hot, *on as f32, *off as f32);
    apply(builder, expression, &[&indices, &places], element).map(|value| vec![value])
}
