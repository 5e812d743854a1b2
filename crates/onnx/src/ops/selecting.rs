//! Selection of the largest or smallest elements, and of the best boxes.

use hipvit_graph::op::{NonMaxSuppression, Slice, TopK};
use hipvit_graph::pattern::floats;

use super::Group;
use super::cast::convert;
use super::elementwise::apply;
use super::layout::{permute, reshape_to};
use super::parts::take_range;
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::Dim;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{Data, Value, axis, show};

pub(super) const OPS: Group = &[
    ("ArgMax", |c| arg_most(c, true)),
    ("ArgMin", |c| arg_most(c, false)),
    ("NonMaxSuppression", non_max_suppression),
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
    let last = context.flag("select_last_index", false);
    let builder = &mut *context.builder;
    let op = TopK { k: 1, largest };
    let indices = if last {
        // The first one in reverse order.
        let extent = x.dims[axis].at_one();
        let reversed = reversed(builder, x, axis)?;
        let [_, indices] = select(builder, reversed, axis, op)?;
        let from_end = floats::operand(0) * -1.0 + (extent.saturating_sub(1)) as f32;
        apply(builder, from_end, &[&indices], ElementType::I64)?
    } else {
        let [_, indices] = select(builder, x, axis, op)?;
        indices
    };
    if keep {
        return Ok(vec![indices]);
    }
    let mut dims = indices.dims.clone();
    dims.remove(axis);
    reshape_to(builder, &indices, &dims).map(|value| vec![value])
}

/// Returns the elements in reverse order along an axis.
fn reversed(builder: &mut Builder, x: Value, axis: usize) -> Result<Value, Refusal> {
    let len = x.dims[axis].at_one();
    if x.dims[axis].is_batch() || len < 2 {
        return Ok(x);
    }
    let op = Slice {
        axis,
        start: len - 1,
        len,
        step: -1,
    };
    builder.apply(op, &[&x])
}

fn non_max_suppression(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [boxes, scores] = [context.input(0)?, context.input(1)?];
    let number = |index: usize, what: &str| match context.optional(index) {
        None => Ok(None),
        Some(value) => match value.number() {
            Some(number) => Ok(Some(number)),
            None => refuse!("has {what} that is computed from the input, not fixed"),
        },
    };
    let most = number(2, "a maximum number of boxes")?.unwrap_or(0.0);
    let overlap = number(3, "a limit of the overlap")?.unwrap_or(0.0) as f32;
    let score = number(4, "a limit of the scores")?.map(|score| score as f32);
    let &[_, Dim::Fixed(length), Dim::Fixed(4)] = &boxes.dims[..] else {
        refuse!("takes boxes [N, B, 4], got {}", show(&boxes.dims));
    };
    if scores.rank() != 3 || most < 1.0 || !(0.0..=1.0).contains(&overlap) {
        refuse!(
            "selects {most} boxes with scores {} and overlaps of at most {overlap}",
            show(&scores.dims)
        );
    }
    let op = NonMaxSuppression {
        most: (most as usize).min(length),
        overlap,
        score,
        centered: context.flag("center_point_box", false),
    };
    let builder = &mut *context.builder;
    let mut results = builder.apply_all(op, &[&boxes, &scores])?;
    let (Some(count), Some(rows)) = (results.pop(), results.pop()) else {
        refuse!("has no results");
    };
    if rows.is_known() {
        let count = count.number().unwrap_or(0.0) as usize;
        let rows = take_range(builder, &rows, 0, 0, count)?;
        return convert(builder, rows, ElementType::I64).map(|value| vec![value]);
    }
    builder.note_count(&rows, 0, &count);
    Ok(vec![Value {
        element: ElementType::I64,
        ..rows
    }])
}
