//! Gathering of slices and elements by indices. Indices that are known become one gather of rows.

use hipvit_graph::op::{Gather, GatherElements};
use hipvit_graph::pattern::{Float, floats};

use super::Group;
use super::constant::product;
use super::elementwise::apply;
use super::layout::{dims, expand_dims, reshape_to};
use super::parts::take_range;
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::{Dim, Linear};
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::ramp::Ramp;
use crate::value::{Data, Value, axis, show};

pub(super) const OPS: Group = &[
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("OneHot", one_hot),
];

/// Largest number of slices that computed indices of several axes name. Their positions are computed in f32.
const MOST_POSITIONS: usize = 1 << 24;

fn gather(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let indices = context.input(1)?;
    let axis = axis(context.int_or("axis", 0), x.rank())?;
    if indices.element.is_float() || indices.element == ElementType::Bool {
        refuse!("has indices of type {}", indices.element);
    }
    if let Data::Ramp(ramp) = &indices.data
        && let Some(view) = view(context.builder, &x, axis, &indices, ramp)?
    {
        return Ok(vec![view]);
    }
    let Some(integers) = indices.as_integers() else {
        return context
            .builder
            .apply(Gather { axis }, &[&x, &indices])
            .map(|value| vec![value]);
    };
    let extent = x.dims[axis].at_one() as i64;
    let mut places = Vec::with_capacity(integers.len());
    for index in integers {
        let known = index
            .known()
            .filter(|_| !x.dims[axis].is_batch() || index.constant >= 0);
        let known = known.map(|index| {
            if index < 0 {
                index.saturating_add(extent)
            } else {
                index
            }
        });
        match known.filter(|index| (0..extent).contains(index)) {
            Some(index) => places.push(index),
            None => refuse!(
                "reads index {}, but axis {axis} is that of {}",
                index.constant,
                show(&x.dims)
            ),
        }
    }
    if let Some(&start) = places.first()
        && places
            .iter()
            .enumerate()
            .all(|(offset, &index)| index == start + offset as i64)
        && indices.rank() <= 1
    {
        let part = take_range(context.builder, &x, axis, start as usize, places.len())?;
        if indices.rank() == 1 {
            return Ok(vec![part]);
        }
        let mut dims = part.dims.clone();
        dims.remove(axis);
        return reshape_to(context.builder, &part, &dims).map(|value| vec![value]);
    }
    if places.is_empty() || x.dims[axis].is_batch() {
        refuse!(
            "gathers {} indices along axis {axis} of {}",
            places.len(),
            show(&x.dims)
        );
    }
    let places: Vec<Linear> = places.into_iter().map(Linear::new).collect();
    let indices = Value::integers(ElementType::I64, &indices.fixed_shape()?, places)?;
    context
        .builder
        .apply(Gather { axis }, &[&x, &indices])
        .map(|value| vec![value])
}

/// Gathers all indices of an axis in order, as another shape. `None` if these are not all indices in order.
fn view(
    builder: &mut Builder,
    x: &Value,
    axis: usize,
    indices: &Value,
    ramp: &Ramp,
) -> Result<Option<Value>, Refusal> {
    let all = product(indices.dims.iter().map(|&dim| dim.into()))?;
    if !ramp.is_every_index(&indices.dims) || all != x.dims[axis].into() {
        return Ok(None);
    }
    let (before, after) = (&x.dims[..axis], &x.dims[axis + 1..]);
    let dims = [before, &indices.dims, after].concat();
    reshape_to(builder, x, &dims).map(Some)
}

/// Returns extents that do not depend on the batch size.
pub(super) fn fixed_extents(x: &Value, axes: std::ops::Range<usize>) -> Result<Vec<usize>, Refusal> {
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
pub(super) fn position(indices: &[i64], extents: &[usize]) -> Result<i64, Refusal> {
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
pub(super) fn flattened(builder: &mut Builder, x: &Value, end: usize) -> Result<Value, Refusal> {
    let (indexed, rest) = x.dims.split_at(end);
    let rows = product(indexed.iter().map(|&dim| dim.into()))?;
    let extents: Vec<Dim> = dims(&[rows])?.into_iter().chain(rest.iter().copied()).collect();
    reshape_to(builder, x, &extents)
}

/// Takes rows, slices of the first axis, by their positions.
pub(super) fn rows(builder: &mut Builder, x: &Value, positions: Vec<i64>) -> Result<Value, Refusal> {
    let len = positions.len();
    let positions: Vec<Linear> = positions.into_iter().map(Linear::new).collect();
    let positions = Value::integers(ElementType::I64, &[len], positions)?;
    builder.apply(Gather { axis: 0 }, &[x, &positions])
}

/// Returns the positions of the slices that `indices [.., k]` name in axes of these extents.
pub(super) fn positions(indices: &Value, extents: &[usize]) -> Result<Vec<i64>, Refusal> {
    let given = indices.known_integers("indices")?;
    given
        .chunks(extents.len().max(1))
        .map(|index| position(index, extents))
        .collect()
}

fn gather_nd(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, indices] = [context.input(0)?, context.input(1)?];
    let batch = usize::try_from(context.int_or("batch_dims", 0)).unwrap_or(usize::MAX);
    if let (Data::Columns(columns), 0) = (&indices.data, batch) {
        let view = by_columns(context.builder, &x, &indices, columns)?;
        if let Some(view) = view {
            return Ok(vec![view]);
        }
    }
    let Some((&last, outer)) = indices.dims.split_last() else {
        refuse!("has indices without axes");
    };
    let depth = last
        .fixed()
        .filter(|&depth| depth > 0 && batch.saturating_add(depth) <= x.rank());
    let is_common = batch <= outer.len() && x.dims.get(..batch) == outer.get(..batch);
    let Some(depth) = depth.filter(|_| is_common && !indices.dims.contains(&Dim::Fixed(0))) else {
        refuse!(
            "has indices {} into {} with {batch} common axes, which is not supported",
            show(&indices.dims),
            show(&x.dims)
        );
    };
    let builder = &mut *context.builder;
    let slice = &x.dims[batch + depth..];
    let result = [outer, slice].concat();
    let taken = if batch > 0 {
        gather_in_each(builder, &x, &indices, [batch, depth])?
    } else {
        let table = flattened(builder, &x, depth)?;
        if indices.as_integers().is_some() {
            let extents = fixed_extents(&x, 0..depth)?;
            rows(builder, &table, positions(&indices, &extents)?)?
        } else {
            let positions = computed_positions(builder, &indices, &x.dims[..depth])?;
            builder.apply(Gather { axis: 0 }, &[&table, &positions])?
        }
    };
    reshape_to(builder, &taken, &result).map(|value| vec![value])
}

/// Gathers slices from the part of `x` at the same place of the first `batch` axes. `depth` axes behind them are indexed.
fn gather_in_each(
    builder: &mut Builder,
    x: &Value,
    indices: &Value,
    [batch, depth]: [usize; 2],
) -> Result<Value, Refusal> {
    let (common, rest) = x.dims.split_at(batch);
    let (indexed, slice) = rest.split_at(depth);
    let outer = &indices.dims[batch..indices.rank() - 1];
    let merged = |dims: &[Dim]| product(dims.iter().map(|&dim| dim.into()));
    let [parts, extent, width, count] = [common, indexed, slice, outer].map(merged);
    let [parts, extent, width, count] = [parts?, extent?, width?, count?];
    let table = reshape_to(builder, x, &dims(&[parts, extent, width])?)?;
    let positions = if indices.as_integers().is_some() {
        let extents = fixed_extents(x, batch..batch + depth)?;
        let known = positions(indices, &extents)?;
        let shape = [known.len()];
        Value::integers(
            ElementType::I64,
            &shape,
            known.into_iter().map(Linear::new).collect::<Vec<_>>(),
        )?
    } else {
        computed_positions(builder, indices, indexed)?
    };
    let one = Linear::new(1);
    let positions = reshape_to(builder, &positions, &dims(&[parts, count, one])?)?;
    let positions = expand_dims(builder, &positions, &dims(&[parts, count, width])?)?;
    builder.apply(GatherElements { axis: 1 }, &[&table, &positions])
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

/// Returns the positions of the slices that the computed `indices [.., k]` name in axes of these extents. Negative indices count from the end of
/// their axis; those of the first axis stay negative, as ops read them.
pub(super) fn computed_positions(
    builder: &mut Builder,
    indices: &Value,
    extents: &[Dim],
) -> Result<Value, Refusal> {
    let last = indices.rank() - 1;
    let outer = &indices.dims[..last];
    let most = extents
        .iter()
        .try_fold(1usize, |product, dim| product.checked_mul(dim.at_one()));
    if extents.len() > 1 && most.is_none_or(|most| most > MOST_POSITIONS) {
        refuse!(
            "has computed indices into {}, which are too many elements",
            show(extents)
        );
    }
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
                let (extent, index) = (extent as f32, floats::operand(1));
                let from_start = Float::select(&index.less(0.0), index.clone() + extent, index);
                let expression = floats::operand(0) * extent + from_start;
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

/// Returns the positions in a tensor of shape `shape` of the elements that `indices` name along `axis`.
pub(super) fn element_positions(indices: &Value, shape: &[usize], axis: usize) -> Result<Vec<i64>, Refusal> {
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
