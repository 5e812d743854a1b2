//! Gathering and scattering by indices of elements or slices. Indices that are known become one gather of rows.

use hipvit_graph::op::{Concat, Gather, GatherElements};
use hipvit_graph::pattern::floats;

use super::Group;
use super::constant::product;
use super::elementwise::apply;
use super::layout::{dims, reshape_to};
use super::parts::{join, take_range};
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::ramp::Ramp;
use crate::value::{Data, Value, axis, count, show};

pub(super) const OPS: Group = &[
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("ScatterElements", scatter_elements),
    ("ScatterND", scatter_nd),
];

/// Returns extents that do not depend on the batch size.
fn fixed_extents(x: &Value, axes: std::ops::Range<usize>) -> Result<Vec<usize>, Refusal> {
    let extents: Option<Vec<usize>> = x.dims[axes].iter().map(|dim| dim.fixed()).collect();
    match extents {
        Some(extents) => Ok(extents),
        None => refuse!(
            "has indices along axes of {} that grow with the batch",
            show(&x.dims)
        ),
    }
}

/// Returns the position of an element of extents `extents`, with indices that may count from the end.
fn position(indices: &[i64], extents: &[usize]) -> Result<i64, Refusal> {
    let mut position = 0;
    for (&index, &extent) in indices.iter().zip(extents) {
        let extent = extent as i64;
        let from_start = if index < 0 {
            index.saturating_add(extent)
        } else {
            index
        };
        if !(0..extent).contains(&from_start) {
            refuse!("reads index {index} of an axis of {extent}");
        }
        position = position * extent + from_start;
    }
    Ok(position)
}

/// Returns `x` with the axes before `end` as one.
fn flattened(builder: &mut Builder, x: &Value, end: usize) -> Result<Value, Refusal> {
    let (indexed, rest) = x.dims.split_at(end);
    let rows = product(indexed.iter().map(|&dim| dim.into()))?;
    let extents: Vec<Dim> = dims(&[rows])?.into_iter().chain(rest.iter().copied()).collect();
    reshape_to(builder, x, &extents)
}

/// Takes rows, slices of the first axis, by their positions.
fn rows(builder: &mut Builder, x: &Value, positions: Vec<i64>) -> Result<Value, Refusal> {
    let len = positions.len();
    let positions: Vec<Linear> = positions.into_iter().map(Linear::new).collect();
    let positions = Value::integers(ElementType::I64, &[len], positions)?;
    builder.apply(Gather { axis: 0 }, &[x, &positions])
}

/// Returns the positions of the slices that `indices [.., k]` name in axes of these extents.
fn positions(indices: &Value, extents: &[usize]) -> Result<Vec<i64>, Refusal> {
    let given = indices.known_integers("indices")?;
    given
        .chunks(extents.len().max(1))
        .map(|index| position(index, extents))
        .collect()
}

fn gather_nd(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, indices] = [context.input(0)?, context.input(1)?];
    if let (Data::Columns(columns), 0) = (&indices.data, context.int_or("batch_dims", 0)) {
        let view = by_columns(context.builder, &x, &indices, columns)?;
        if let Some(view) = view {
            return Ok(vec![view]);
        }
    }
    let batch = usize::try_from(context.int_or("batch_dims", 0)).unwrap_or(usize::MAX);
    let Some((&last, outer)) = indices.dims.split_last() else {
        refuse!("has indices without axes");
    };
    let depth = last
        .fixed()
        .filter(|&depth| depth > 0 && batch.saturating_add(depth) <= x.rank());
    let Some(depth) = depth.filter(|_| batch == 0 && !indices.dims.contains(&Dim::Fixed(0))) else {
        refuse!(
            "has indices {} into {} with {batch} common axes, which is not supported",
            show(&indices.dims),
            show(&x.dims)
        );
    };
    let builder = &mut *context.builder;
    let table = flattened(builder, &x, depth)?;
    let taken = if indices.as_integers().is_some() {
        let extents = fixed_extents(&x, 0..depth)?;
        rows(builder, &table, positions(&indices, &extents)?)?
    } else {
        let positions = computed_positions(builder, &indices, &x.dims[..depth])?;
        builder.apply(Gather { axis: 0 }, &[&table, &positions])?
    };
    let result = [outer, &x.dims[depth..]].concat();
    reshape_to(builder, &taken, &result).map(|value| vec![value])
}

/// Gathers slices by columns of indices. `None` if they are not those of all slices in order.
fn by_columns(
    builder: &mut Builder,
    x: &Value,
    indices: &Value,
    columns: &[Value],
) -> Result<Option<Value>, Refusal> {
    if columns.len() > x.rank() {
        refuse!("has {} indices into {}", columns.len(), show(&x.dims));
    }
    let (indexed, slice) = x.dims.split_at(columns.len());
    let outer = &indices.dims[..indices.rank() - 1];
    let all = product(indexed.iter().map(|&dim| dim.into()))?;
    let named = product(outer.iter().map(|&dim| dim.into()))?;
    let position = Ramp::position(columns, indexed);
    if position.is_some_and(|position| all == named && position.is_every_index(outer)) {
        return reshape_to(builder, x, &[outer, slice].concat()).map(Some);
    }
    Ok(None)
}

/// Returns the positions of the slices that the computed `indices [.., k]` name in axes of these extents. Negative indices are not supported,
/// which exporters write only as constants.
fn computed_positions(builder: &mut Builder, indices: &Value, extents: &[Dim]) -> Result<Value, Refusal> {
    let last = indices.rank() - 1;
    let outer = &indices.dims[..last];
    let mut positions = None;
    for (index, &extent) in extents.iter().enumerate() {
        let column = match &indices.data {
            Data::Columns(columns) => columns[index].clone(),
            _ => take_range(builder, indices, last, index, 1)?,
        };
        let column = reshape_to(builder, &column, outer)?;
        positions = Some(match (positions, extent.fixed()) {
            (None, _) => column,
            (Some(sum), Some(extent)) => {
                let expression = floats::operand(0) * (extent as f32) + floats::operand(1);
                apply(builder, expression, &[&sum, &column], ElementType::I64)?
            }
            (Some(_), None) => refuse!(
                "has indices along axes of {} that grow with the batch",
                show(extents)
            ),
        });
    }
    positions.ok_or_else(|| "has no indices".into())
}

/// Replaces rows of `x` at `positions` by those of `updates`.
fn replace(builder: &mut Builder, x: &Value, positions: &[i64], updates: &Value) -> Result<Value, Refusal> {
    let Some(len) = x.dims[0].fixed() else {
        refuse!("replaces rows of {}, which grow with the batch", show(&x.dims));
    };
    let mut source: Vec<i64> = (0..len as i64).collect();
    for (update, &position) in positions.iter().enumerate() {
        source[position as usize] = (len + update) as i64;
    }
    let both = builder.apply(Concat { axis: 0 }, &[x, updates])?;
    rows(builder, &both, source)
}

/// Replaces the elements of a box, a range of each axis that columns of indices name, by `updates`.
fn replace_box(
    builder: &mut Builder,
    x: &Value,
    columns: &[Value],
    updates: &Value,
) -> Result<Value, Refusal> {
    let unsupported = "replaces elements by indices that depend on the batch size, which is not supported";
    if updates.rank() != x.rank() {
        refuse!("{unsupported}");
    }
    let mut partial = None;
    for (axis, column) in columns.iter().enumerate() {
        let ramp = Ramp::of(column).ok_or(unsupported)?;
        let steps = |at: usize, stride: Linear| stride == Linear::new(i64::from(at == axis));
        // A stride along an axis of one element has no effect.
        let mut strides = ramp.strides.iter().zip(&column.dims).enumerate();
        let is_range = strides.all(|(at, (&stride, &dim))| dim == Dim::Fixed(1) || steps(at, stride));
        let start = ramp.start.known().and_then(|start| usize::try_from(start).ok());
        let Some(start) = start.filter(|_| is_range) else {
            refuse!("{unsupported}");
        };
        if start == 0 && updates.dims[axis] == x.dims[axis] {
            continue;
        }
        if partial.replace((axis, start)).is_some() {
            refuse!("{unsupported}");
        }
    }
    let Some((axis, start)) = partial else {
        return Ok(updates.clone());
    };
    let (Some(extent), Some(len)) = (x.dims[axis].fixed(), updates.dims[axis].fixed()) else {
        refuse!("{unsupported}");
    };
    let Some(after) = start.checked_add(len).and_then(|end| extent.checked_sub(end)) else {
        refuse!("replaces {len} elements from {start} on of an axis of {extent}");
    };
    let before = take_range(builder, x, axis, 0, start)?;
    let rest = take_range(builder, x, axis, extent - after, after)?;
    join(builder, &[before, updates.clone(), rest], axis)
}

fn check_reduction(context: &Context<'_>) -> Result<(), Refusal> {
    match context.string_or("reduction", "none").as_str() {
        "none" => Ok(()),
        reduction => refuse!("has the reduction `{reduction}`, which is not supported"),
    }
}

fn scatter_nd(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    check_reduction(context)?;
    let [x, indices, updates] = [context.input(0)?, context.input(1)?, context.input(2)?];
    let depth = indices
        .dims
        .last()
        .and_then(|dim| dim.fixed())
        .filter(|&depth| depth > 0 && depth <= x.rank());
    let Some(depth) = depth else {
        refuse!("has indices {} into {}", show(&indices.dims), show(&x.dims));
    };
    let expected = [&indices.dims[..indices.rank() - 1], &x.dims[depth..]].concat();
    if updates.dims != expected {
        refuse!(
            "has updates {}, expected {}",
            show(&updates.dims),
            show(&expected)
        );
    }
    if let Data::Columns(columns) = &indices.data {
        return replace_box(context.builder, &x, columns, &updates).map(|value| vec![value]);
    }
    let extents = fixed_extents(&x, 0..depth)?;
    let positions = positions(&indices, &extents)?;
    let builder = &mut *context.builder;
    let table = flattened(builder, &x, depth)?;
    let new = flattened(builder, &updates, indices.rank() - 1)?;
    let result = replace(builder, &table, &positions, &new)?;
    reshape_to(builder, &result, &x.dims).map(|value| vec![value])
}

/// Returns the positions in a tensor of shape `shape` of the elements that `indices` name along `axis`.
fn element_positions(indices: &Value, shape: &[usize], axis: usize) -> Result<Vec<i64>, Refusal> {
    let given = indices.known_integers("indices")?;
    let extents = indices.fixed_shape()?;
    if extents.len() != shape.len()
        || extents
            .iter()
            .zip(shape)
            .enumerate()
            .any(|(at, (own, of))| at != axis && own > of)
    {
        refuse!("has indices of shape {extents:?} into {shape:?}");
    }
    let mut at = vec![0i64; shape.len()];
    let mut all = Vec::with_capacity(given.len());
    for index in given {
        let mut place = at.clone();
        place[axis] = index;
        all.push(position(&place, shape)?);
        for axis in (0..extents.len()).rev() {
            at[axis] += 1;
            if at[axis] < extents[axis] as i64 {
                break;
            }
            at[axis] = 0;
        }
    }
    Ok(all)
}

fn gather_elements(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, indices] = [context.input(0)?, context.input(1)?];
    let axis = axis(context.int_or("axis", 0), x.rank())?;
    if indices.as_integers().is_none() || x.dims.iter().any(|dim| dim.is_batch()) {
        if x.dims[axis].is_batch() {
            refuse!(
                "gathers along axis {axis} of {}, which grows with the batch",
                show(&x.dims)
            );
        }
        return context
            .builder
            .apply(GatherElements { axis }, &[&x, &indices])
            .map(|value| vec![value]);
    }
    let shape = fixed_extents(&x, 0..x.rank())?;
    let positions = element_positions(&indices, &shape, axis)?;
    let builder = &mut *context.builder;
    let table = flattened(builder, &x, x.rank())?;
    let taken = rows(builder, &table, positions)?;
    reshape_to(builder, &taken, &indices.dims).map(|value| vec![value])
}

fn scatter_elements(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    check_reduction(context)?;
    let [x, indices, updates] = [context.input(0)?, context.input(1)?, context.input(2)?];
    let axis = axis(context.int_or("axis", 0), x.rank())?;
    let shape = fixed_extents(&x, 0..x.rank())?;
    count(&shape)?;
    if updates.dims != indices.dims {
        refuse!(
            "has updates {}, expected {}",
            show(&updates.dims),
            show(&indices.dims)
        );
    }
    let positions = element_positions(&indices, &shape, axis)?;
    let builder = &mut *context.builder;
    let table = flattened(builder, &x, x.rank())?;
    let new = flattened(builder, &updates, updates.rank())?;
    let result = replace(builder, &table, &positions, &new)?;
    reshape_to(builder, &result, &x.dims).map(|value| vec![value])
}
