//! Reductions along axes, running sums, and softmax.

use hipvit_graph::op::reduce::ReduceKind;
use hipvit_graph::op::{CumSum, Reduce, Softmax};
use hipvit_graph::pattern::floats;

use super::Group;
use super::cast::convert;
use super::constant::axes;
use super::layout::{dims, permute, reshape_to};
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{Data, Value, axis, count, show};

pub(super) const OPS: Group = &[
    ("CumSum", cum_sum),
    ("LogSoftmax", |c| softmax(c, true)),
    ("ReduceL1", |c| reduce(c, ReduceKind::L1)),
    ("ReduceL2", |c| reduce(c, ReduceKind::L2)),
    ("ReduceLogSum", reduce_log_sum),
    ("ReduceLogSumExp", |c| reduce(c, ReduceKind::LogSumExp)),
    ("ReduceMax", |c| reduce(c, ReduceKind::Max)),
    ("ReduceMean", |c| reduce(c, ReduceKind::Mean)),
    ("ReduceMin", |c| reduce(c, ReduceKind::Min)),
    ("ReduceProd", |c| reduce(c, ReduceKind::Prod)),
    ("ReduceSum", |c| reduce(c, ReduceKind::Sum)),
    ("ReduceSumSquare", |c| reduce(c, ReduceKind::SumSquare)),
    ("Softmax", |c| softmax(c, false)),
];

fn reduce(context: &mut Context<'_>, kind: ReduceKind) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let keep = context.flag("keepdims", true);
    let nothing = context.flag("noop_with_empty_axes", false);
    let axes = axes(context, 1, x.rank())?.filter(|axes| !axes.is_empty());
    let axes = match axes {
        Some(mut axes) => {
            axes.sort_unstable();
            axes
        }
        None if nothing => return Ok(vec![x]),
        None => (0..x.rank()).collect(),
    };
    reduce_axes(context.builder, &x, kind, &axes, keep).map(|value| vec![value])
}

fn reduce_log_sum(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let sum = reduce(context, ReduceKind::Sum)?.swap_remove(0);
    let element = sum.element;
    super::elementwise::apply(context.builder, floats::operand(0).log(), &[&sum], element)
        .map(|value| vec![value])
}

/// Reduces `x` along ascending axes.
pub(super) fn reduce_axes(
    builder: &mut Builder,
    x: &Value,
    kind: ReduceKind,
    axes: &[usize],
    keep: bool,
) -> Result<Value, Refusal> {
    if let Some(&axis) = axes.iter().find(|&&axis| x.dims[axis].is_batch()) {
        refuse!(
            "reduces axis {axis} of {}, which grows with the batch",
            show(&x.dims)
        );
    }
    if x.as_integers().is_some() {
        return reduce_integers(x, kind, axes, keep);
    }
    if !x.element.is_float() {
        // Sums of integers are exact up to 24 bits.
        let floats = convert(builder, x.clone(), ElementType::F32)?;
        let reduced = reduce_axes(builder, &floats, kind, axes, keep)?;
        return convert(builder, reduced, x.element);
    }
    let op = Reduce {
        kind,
        axes: axes.to_vec(),
        keep,
    };
    builder.apply(op, &[x])
}

/// Reduces known integers, as sizes are.
fn reduce_integers(x: &Value, kind: ReduceKind, axes: &[usize], keep: bool) -> Result<Value, Refusal> {
    let elements = x.linear_integers("elements")?;
    let function = match kind {
        ReduceKind::Prod => |[x, y]: [Linear; 2]| x.checked_mul(y),
        ReduceKind::Sum => |[x, y]: [Linear; 2]| x.checked_add(y),
        ReduceKind::Max => crate::integers::max,
        ReduceKind::Min => crate::integers::min,
        _ => refuse!("reduces integers by {kind:?}, which is not supported"),
    };
    let shape = x.fixed_shape()?;
    let is_kept = |axis: &usize| !axes.contains(axis);
    let kept: Vec<usize> = (0..shape.len()).filter(is_kept).map(|axis| shape[axis]).collect();
    let mut results: Vec<Option<Linear>> = vec![None; count(&kept)?];
    for (index, &element) in elements.iter().enumerate() {
        let (mut rest, mut place, mut stride) = (index, 0, 1);
        for axis in (0..shape.len()).rev() {
            if is_kept(&axis) {
                place += rest % shape[axis] * stride;
                stride *= shape[axis];
            }
            rest /= shape[axis];
        }
        let next = match results[place] {
            None => Some(element),
            Some(result) => function([result, element]),
        };
        let Some(next) = next else {
            refuse!("computes an integer that overflows or depends on the batch size");
        };
        results[place] = Some(next);
    }
    // The sum and the product of no elements.
    let none = Linear::new(i64::from(kind == ReduceKind::Prod));
    let results: Vec<Linear> = results.into_iter().map(|result| result.unwrap_or(none)).collect();
    let extent = |axis: usize| {
        if is_kept(&axis) {
            Some(shape[axis])
        } else {
            keep.then_some(1)
        }
    };
    let shape: Vec<usize> = (0..shape.len()).filter_map(extent).collect();
    Value::integers(x.element, &shape, results)
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

fn softmax(context: &mut Context<'_>, log: bool) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    if context.opset() < 13 {
        return softmax_of_matrix(context, &x, log);
    }
    let axis = axis(context.int_or("axis", -1), x.rank())?;
    let mut order: Vec<usize> = (0..x.rank()).collect();
    order.swap(axis, x.rank() - 1);
    let builder = &mut *context.builder;
    let rows = permute(builder, &x, &order)?;
    let result = builder.apply(Softmax { log }, &[&rows])?;
    permute(builder, &result, &order).map(|value| vec![value])
}

/// Computes the softmax over all axes from one on, as before version 13.
fn softmax_of_matrix(context: &mut Context<'_>, x: &Value, log: bool) -> Result<Vec<Value>, Refusal> {
    let axis = axis(context.int_or("axis", 1), x.rank())?;
    let (outer, inner) = x.dims.split_at(axis);
    let inner = super::constant::product(inner.iter().map(|&dim| dim.into()))?;
    let rows: Vec<Dim> = outer.iter().copied().chain(dims(&[inner])?).collect();
    let builder = &mut *context.builder;
    let rows = reshape_to(builder, x, &rows)?;
    let result = builder.apply(Softmax { log }, &[&rows])?;
    reshape_to(builder, &result, &x.dims).map(|value| vec![value])
}
