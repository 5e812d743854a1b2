//! Operators that select or sum along an axis in an order that the elements give, and samples of images.

use hipvit_graph::Provenance;
use hipvit_graph::op::grid_sample::{Outside, SampleKernel};
use hipvit_graph::op::{GridSample, Linear as LinearOp, TopK};
use hipvit_graph::tensor::Tensor;

use super::Group;
use super::conv::{channels_first, channels_last};
use super::layout::{permute, reshape_to};
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{Value, axis, show};

pub(super) const OPS: Group = &[
    ("ArgMax", |c| arg(c, true)),
    ("ArgMin", |c| arg(c, false)),
    ("CumSum", cum_sum),
    ("GridSample", grid_sample),
    ("TopK", top_k),
];

/// Returns the order of axes with `axis` swapped to the end. It restores the order too.
fn to_end(rank: usize, axis: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rank).collect();
    order.swap(axis, rank - 1);
    order
}

/// Returns the `k` first elements along an axis in order, and their indices.
fn selected(builder: &mut Builder, x: &Value, axis: usize, op: TopK) -> Result<[Value; 2], Refusal> {
    if x.dims[axis].is_batch() {
        refuse!(
            "selects along axis {axis} of {}, which grows with the batch",
            show(&x.dims)
        );
    }
    if x.as_integers().is_some() {
        refuse!("selects among integers that are known at import, which is not supported");
    }
    let order = to_end(x.rank(), axis);
    let rows = permute(builder, x, &order)?;
    let results = builder.apply_all(op, &[&rows])?;
    let [values, indices] = &results[..] else {
        refuse!("has {} results", results.len());
    };
    let indices = Value {
        element: ElementType::I64,
        ..indices.clone()
    };
    builder.note_bound(&indices, x.dims[axis].at_one());
    Ok([
        permute(builder, values, &order)?,
        permute(builder, &indices, &order)?,
    ])
}

fn top_k(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let axis = axis(context.int_or("axis", -1), x.rank())?;
    let largest = context.flag("largest", true);
    context.ignore(&["sorted"]);
    let k = context.input(1)?.known_integers("numbers of elements")?;
    let k = match k[..] {
        [k] => usize::try_from(k).map_err(|_| "selects a negative number of elements")?,
        _ => refuse!("has {} numbers of elements", k.len()),
    };
    if k == 0 || !x.element.is_float() {
        refuse!(
            "selects {k} elements of type {}, which is not supported",
            x.element
        );
    }
    selected(context.builder, &x, axis, TopK { k, largest }).map(Into::into)
}

fn arg(context: &mut Context<'_>, largest: bool) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let axis = axis(context.int_or("axis", 0), x.rank())?;
    let keep = context.flag("keepdims", true);
    if context.flag("select_last_index", false) {
        refuse!("selects the last of equal elements, which is not supported");
    }
    let builder = &mut *context.builder;
    // Integers of 24 bits are exact in the dtype that is selected in, and larger ones are not.
    let x = if x.element.is_integer() && !x.is_known() {
        super::cast::convert(builder, x, ElementType::F32)?
    } else {
        x
    };
    let [_, indices] = selected(builder, &x, axis, TopK { k: 1, largest })?;
    if keep {
        return Ok(vec![indices]);
    }
    let mut dims = indices.dims.clone();
    dims.remove(axis);
    reshape_to(builder, &indices, &dims).map(|value| vec![value])
}

fn cum_sum(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let [exclusive, reverse] = [context.flag("exclusive", false), context.flag("reverse", false)];
    let given = context.input(1)?.known_integers("axes")?;
    let axis = match given[..] {
        [given] => axis(given, x.rank())?,
        _ => refuse!("has {} axes", given.len()),
    };
    let Some(extent) = x.dims[axis].fixed() else {
        refuse!(
            "sums along axis {axis} of {}, which grows with the batch",
            show(&x.dims)
        );
    };
    // A term counts for the elements after it, or before it.
    let counts = move |result: usize, term: usize| {
        let distance = if reverse {
            term as i64 - result as i64
        } else {
            result as i64 - term as i64
        };
        distance > 0 || (distance == 0 && !exclusive)
    };
    if let Some(elements) = x.as_integers() {
        return sum_integers(&x, elements, axis, counts).map(|value| vec![value]);
    }
    if extent > MOST_TERMS {
        refuse!("sums up to {extent} elements, but at most {MOST_TERMS} are supported");
    }
    let builder = &mut *context.builder;
    let element = x.element;
    let x = super::cast::convert(builder, x, ElementType::F32)?;
    let order = to_end(x.rank(), axis);
    let rows = permute(builder, &x, &order)?;
    let weight: Vec<f32> = (0..extent * extent)
        .map(|index| f32::from(u8::from(counts(index / extent, index % extent))))
        .collect();
    let weight = Tensor::from_f32([extent, extent], weight).ok_or("is too large")?;
    let weight = Value::constant(ElementType::F32, weight, Provenance::computed("sums", []));
    let sums = builder.apply(LinearOp::default(), &[&rows, &weight])?;
    let sums = permute(builder, &sums, &order)?;
    super::cast::convert(builder, sums, element).map(|value| vec![value])
}

/// Most terms of a cumulative sum, which is a product with a matrix.
const MOST_TERMS: usize = 4096;

fn sum_integers(
    x: &Value,
    elements: &[Linear],
    axis: usize,
    counts: impl Fn(usize, usize) -> bool,
) -> Result<Value, Refusal> {
    let shape = x.fixed_shape()?;
    let inner: usize = shape[axis + 1..].iter().product();
    let extent = shape[axis];
    if extent > MOST_TERMS {
        refuse!("sums up to {extent} elements, but at most {MOST_TERMS} are supported");
    }
    let mut sums = Vec::with_capacity(elements.len());
    for index in 0..elements.len() {
        let result = index / inner % extent;
        let first = index - result * inner;
        let mut sum = Linear::default();
        for term in (0..extent).filter(|&term| counts(result, term)) {
            sum = sum
                .checked_add(elements[first + term * inner])
                .ok_or("computes an integer that overflows")?;
        }
        sums.push(sum);
    }
    Value::integers(x.element, &shape, sums)
}

fn grid_sample(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, grid] = [context.input(0)?, context.input(1)?];
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
    if x.rank() != 4 || grid.dims.last() != Some(&Dim::Fixed(2)) {
        refuse!(
            "samples {} at {}, but only images are supported",
            show(&x.dims),
            show(&grid.dims)
        );
    }
    let builder = &mut *context.builder;
    let images = channels_last(builder, &x)?;
    let samples = builder.apply(op, &[&images, &grid])?;
    channels_first(builder, &samples, 4).map(|value| vec![value])
}
