//! Scattering of slices and elements by indices. Replacements at indices that are known become one gather of old and new rows.

use hipvit_graph::op::{Concat, ScatterElements, ScatterReduction};

use super::cast::convert;
use super::gather::{computed_positions, element_positions, fixed_extents, flattened, positions, rows};
use super::layout::{expand_dims, reshape_to};
use super::parts::{join, take_range};
use crate::builder::Builder;
use crate::context::{Context, Group};
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::shape::{axis, dims, product, show};
use crate::value::{Data, Value};

pub(super) const OPS: Group = &[("ScatterElements", scatter_elements), ("ScatterND", scatter_nd)];

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
    let mut partial = Vec::new();
    for (axis, column) in columns.iter().enumerate() {
        let ramp = column.as_ramp().ok_or(unsupported)?;
        let steps = |at: usize, stride: Linear| stride == Linear::new(i64::from(at == axis));
        // A stride along an axis of one element has no effect.
        let mut strides = ramp.strides.iter().zip(&column.dims).enumerate();
        let is_range = strides.all(|(at, (&stride, &dim))| dim == Dim::Fixed(1) || steps(at, stride));
        let start = ramp.start.known().and_then(|start| usize::try_from(start).ok());
        let Some(start) = start.filter(|_| is_range) else {
            refuse!("{unsupported}");
        };
        if start > 0 || updates.dims[axis] != x.dims[axis] {
            partial.push((axis, start));
        }
    }
    surrounded(builder, x, &partial, updates)
}

/// Returns `x` with `updates` in place of the box that begins at the given index of each of the given axes.
fn surrounded(
    builder: &mut Builder,
    x: &Value,
    starts: &[(usize, usize)],
    updates: &Value,
) -> Result<Value, Refusal> {
    let [(axis, start), inner @ ..] = starts else {
        return Ok(updates.clone());
    };
    let (axis, start) = (*axis, *start);
    let (Some(extent), Some(len)) = (x.dims[axis].fixed(), updates.dims[axis].fixed()) else {
        refuse!(
            "replaces a part of an axis that grows with the batch, {}",
            show(&x.dims)
        );
    };
    let Some(after) = start.checked_add(len).and_then(|end| extent.checked_sub(end)) else {
        refuse!("replaces {len} elements from {start} on of an axis of {extent}");
    };
    let before = take_range(builder, x, axis, 0, start)?;
    let slab = take_range(builder, x, axis, start, len)?;
    let slab = surrounded(builder, &slab, inner, updates)?;
    let rest = take_range(builder, x, axis, extent - after, after)?;
    join(builder, &[before, slab, rest], axis)
}

fn reduction(context: &Context<'_>) -> Result<ScatterReduction, Refusal> {
    Ok(match context.string_or("reduction", "none").as_str() {
        "none" => ScatterReduction::Replace,
        "add" => ScatterReduction::Add,
        "mul" => ScatterReduction::Mul,
        "max" => ScatterReduction::Max,
        "min" => ScatterReduction::Min,
        reduction => refuse!("has the reduction `{reduction}`, which is not supported"),
    })
}

/// Scatters elements by the graph's op.
fn scatter(
    builder: &mut Builder,
    op: ScatterElements,
    [x, indices, updates]: [&Value; 3],
) -> Result<Value, Refusal> {
    if x.dims[op.axis].is_batch() {
        refuse!(
            "scatters along axis {} of {}, which grows with the batch",
            op.axis,
            show(&x.dims)
        );
    }
    if x.element != updates.element {
        refuse!(
            "has elements of type {} and updates of type {}",
            x.element,
            updates.element
        );
    }
    if ![x, indices, updates].iter().all(|value| value.is_known()) {
        return builder.apply(op, &[x, indices, updates]);
    }
    // Numbers that are known are computed as such, not moved.
    let element = x.element;
    let floats = [x, updates].map(|value| convert(builder, value.clone(), ElementType::F32));
    let [x, updates] = floats;
    let result = builder.apply(op, &[&x?, indices, &updates?])?;
    convert(builder, result, element)
}

fn scatter_nd(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let reduction = reduction(context)?;
    let [x, indices, updates] = [context.input(0)?, context.input(1)?, context.input(2)?];
    let depth = indices
        .dims
        .last()
        .and_then(|dim| dim.fixed())
        .filter(|&depth| depth > 0 && depth <= x.rank());
    let Some(depth) = depth else {
        refuse!("has indices {} into {}", show(&indices.dims), show(&x.dims));
    };
    let outer = &indices.dims[..indices.rank() - 1];
    let expected = [outer, &x.dims[depth..]].concat();
    if updates.dims != expected {
        refuse!(
            "has updates {}, expected {}",
            show(&updates.dims),
            show(&expected)
        );
    }
    let replaces = reduction == ScatterReduction::Replace;
    if let (Data::Columns(columns), true) = (&indices.data, replaces) {
        return replace_box(context.builder, &x, columns, &updates).map(|value| vec![value]);
    }
    let extents = fixed_extents(&x, 0..depth)?;
    let builder = &mut *context.builder;
    let table = flattened(builder, &x, depth)?;
    let new = flattened(builder, &updates, outer.len())?;
    let known = match indices.as_integers() {
        Some(_) => Some(positions(&indices, &extents)?),
        None => None,
    };
    let result = match known {
        Some(positions) if replaces => replace(builder, &table, &positions, &new)?,
        known => {
            let positions = match known {
                Some(known) => {
                    let shape = [known.len()];
                    let known: Vec<Linear> = known.into_iter().map(Linear::new).collect();
                    Value::integers(ElementType::I64, &shape, known)?
                }
                None => computed_positions(builder, &indices, &x.dims[..depth])?,
            };
            scatter_rows(builder, reduction, [&table, &positions, &new])?
        }
    };
    reshape_to(builder, &result, &x.dims).map(|value| vec![value])
}

/// Scatters `new`, one slice of `table` for each of the positions.
fn scatter_rows(
    builder: &mut Builder,
    reduction: ScatterReduction,
    [table, positions, new]: [&Value; 3],
) -> Result<Value, Refusal> {
    let merged = |dims: &[Dim]| product(dims.iter().map(|&dim| dim.into()));
    let (count, width) = (Linear::from(new.dims[0]), merged(&table.dims[1..])?);
    let positions = reshape_to(builder, positions, &dims(&[count, Linear::new(1)])?)?;
    let places = dims(&[count, width])?;
    let positions = expand_dims(builder, &positions, &places)?;
    let table = reshape_to(builder, table, &dims(&[table.dims[0].into(), width])?)?;
    let new = reshape_to(builder, new, &places)?;
    let op = ScatterElements { axis: 0, reduction };
    scatter(builder, op, [&table, &positions, &new])
}

fn scatter_elements(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let reduction = reduction(context)?;
    let [x, indices, updates] = [context.input(0)?, context.input(1)?, context.input(2)?];
    let axis = axis(context.int_or("axis", 0), x.rank())?;
    if updates.dims != indices.dims {
        refuse!(
            "has updates {}, expected {}",
            show(&updates.dims),
            show(&indices.dims)
        );
    }
    let builder = &mut *context.builder;
    let is_fixed = !x.dims.iter().any(|dim| dim.is_batch());
    let known = indices.as_integers().is_some() && is_fixed;
    if known && reduction == ScatterReduction::Replace {
        let shape = fixed_extents(&x, 0..x.rank())?;
        let positions = element_positions(&indices, &shape, axis)?;
        let table = flattened(builder, &x, x.rank())?;
        let new = flattened(builder, &updates, updates.rank())?;
        let result = replace(builder, &table, &positions, &new)?;
        return reshape_to(builder, &result, &x.dims).map(|value| vec![value]);
    }
    if known {
        // Indices beyond an end are refused here; ops make them those of the end.
        element_positions(&indices, &fixed_extents(&x, 0..x.rank())?, axis)?;
    }
    let op = ScatterElements { axis, reduction };
    scatter(builder, op, [&x, &indices, &updates]).map(|value| vec![value])
}
