//! Operators that change the shape of a tensor or the order of its axes.

use hipvit_graph::op::{Op, Permute};

use crate::builder::Builder;
use crate::context::{Context, Group};
use crate::dim::{Dim, Linear};
use crate::error::{Refusal, refuse};
use crate::shape::{MOST_AXES, axis, broadcast, dims, product, show};
use crate::value::{Data, Rows, Value};

pub(super) const OPS: Group = &[
    ("DepthToSpace", depth_to_space),
    ("Dropout", identity),
    ("Expand", expand),
    ("Flatten", flatten),
    ("Identity", identity),
    ("Reshape", reshape),
    ("SpaceToDepth", space_to_depth),
    ("Squeeze", squeeze),
    ("Tile", tile),
    ("Transpose", transpose),
    ("Unsqueeze", unsqueeze),
];

fn identity(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    context.ignore(&["ratio", "seed"]);
    if context.node.op == "Dropout" {
        let training = context
            .optional(2)
            .is_some_and(|training| training.number() != Some(0.0));
        if training || context.wants(1) {
            refuse!("drops elements as in training, which is not supported");
        }
    }
    Ok(vec![context.input(0)?])
}

fn reshape(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let given = context.input(1)?.linear_integers("extents")?;
    let allow_zero = context.flag("allowzero", false);
    let mut extents = Vec::with_capacity(given.len());
    let mut open = None;
    for (index, &extent) in given.iter().enumerate() {
        extents.push(match extent.known() {
            Some(-1) if open.is_none() => {
                open = Some(index);
                Linear::new(1)
            }
            Some(-1) => refuse!("leaves two extents of the shape open"),
            Some(0) if !allow_zero => match x.dims.get(index) {
                Some(&dim) => dim.into(),
                None => refuse!("copies extent {index} of an operand with {} axes", x.rank()),
            },
            _ => extent,
        });
    }
    if let Some(index) = open {
        let all = product(x.dims.iter().map(|&dim| dim.into()))?;
        let others = product(extents.iter().copied())?;
        extents[index] = match all.checked_div(others) {
            Some(extent) if extent.checked_mul(others) == Some(all) => extent,
            _ => refuse!(
                "cannot reshape {} to an unknown extent times {others:?}",
                show(&x.dims)
            ),
        };
    }
    reshape_to(context.builder, &x, &dims(&extents)?).map(|value| vec![value])
}

/// Reshapes `x`. Returns it unchanged if it has these extents.
pub(crate) fn reshape_to(builder: &mut Builder, x: &Value, dims: &[Dim]) -> Result<Value, Refusal> {
    if x.dims == dims {
        return Ok(x.clone());
    }
    let before = product(x.dims.iter().map(|&dim| dim.into()))?;
    if before != product(dims.iter().map(|&dim| dim.into()))? {
        refuse!("cannot reshape {} to {}", show(&x.dims), show(dims));
    }
    if let Some(constant) = x.as_constant() {
        let shape: Vec<usize> = dims.iter().map(|dim| dim.at_one()).collect();
        let tensor = constant
            .tensor
            .reshaped(shape)
            .ok_or("has another number of elements")?;
        // Rows of int8 stay if they have the same elements.
        let rows = constant
            .rows
            .clone()
            .filter(|rows| rows.axis == 0 && x.dims.first() == dims.first());
        return Ok(Value::constant(x.element, tensor, constant.provenance.clone()).with_rows(rows));
    }
    if let Data::Ramp(ramp) = &x.data
        && let Some(ramp) = ramp.reshaped(&x.dims, dims)
    {
        return Ok(Value {
            element: x.element,
            dims: dims.to_vec(),
            data: Data::Ramp(ramp),
        });
    }
    if let Some(integers) = x.as_integers() {
        let shape: Vec<usize> = dims.iter().map(|dim| dim.at_one()).collect();
        return Value::integers(x.element, &shape, integers);
    }
    // A shape between two others is left out.
    if let Some((Op::Reshape(_), source)) = builder.move_of(x).cloned() {
        return reshape_to(builder, &source, dims);
    }
    builder.reshape(x, dims)
}

fn flatten(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let at = context.int_or("axis", 1);
    let at = if at == x.rank() as i64 {
        x.rank()
    } else {
        axis(at, x.rank())?
    };
    let (outer, inner) = x.dims.split_at(at);
    let outer = product(outer.iter().map(|&dim| dim.into()))?;
    let inner = product(inner.iter().map(|&dim| dim.into()))?;
    reshape_to(context.builder, &x, &dims(&[outer, inner])?).map(|value| vec![value])
}

fn squeeze(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let axes = context.axes(1, x.rank())?;
    let mut dims = Vec::with_capacity(x.rank());
    for (index, &dim) in x.dims.iter().enumerate() {
        let is_one = dim == Dim::Fixed(1);
        match &axes {
            Some(axes) if axes.contains(&index) && !is_one => {
                refuse!("removes axis {index} of {}, whose extent is not 1", show(&x.dims))
            }
            Some(axes) if axes.contains(&index) => {}
            None if is_one => {}
            _ => dims.push(dim),
        }
    }
    reshape_to(context.builder, &x, &dims).map(|value| vec![value])
}

fn unsqueeze(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let given = match (context.ints("axes"), context.optional(1)) {
        (Some(axes), _) => axes.to_vec(),
        (None, Some(axes)) => axes.known_integers("axes")?,
        (None, None) => refuse!("lacks its axes"),
    };
    let rank = x.rank() + given.len();
    if rank > MOST_AXES {
        refuse!("has {rank} axes, but at most {MOST_AXES} are supported");
    }
    let axes = given
        .iter()
        .map(|&one| axis(one, rank))
        .collect::<Result<Vec<_>, _>>()?;
    let mut old = x.dims.iter().copied();
    let mut dims = Vec::with_capacity(rank);
    for index in 0..rank {
        let dim = if axes.contains(&index) {
            Some(Dim::Fixed(1))
        } else {
            old.next()
        };
        dims.extend(dim);
    }
    if dims.len() != rank {
        refuse!("has an axis twice in {given:?}");
    }
    reshape_to(context.builder, &x, &dims).map(|value| vec![value])
}

fn transpose(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let axes = match context.ints("perm") {
        Some(axes) => axes
            .iter()
            .map(|&one| axis(one, x.rank()))
            .collect::<Result<Vec<_>, _>>()?,
        None => (0..x.rank()).rev().collect(),
    };
    permute(context.builder, &x, &axes).map(|value| vec![value])
}

/// Orders the axes of `x` so that axis `i` of the result is axis `axes[i]`.
pub(super) fn permute(builder: &mut Builder, x: &Value, axes: &[usize]) -> Result<Value, Refusal> {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    if !sorted.iter().copied().eq(0..x.rank()) {
        refuse!("orders the {} axes of its operand by {axes:?}", x.rank());
    }
    if axes.iter().copied().eq(0..x.rank()) {
        return Ok(x.clone());
    }
    // Two permutations in a row are one, or none.
    if let Some((Op::Permute(first), source)) = builder.move_of(x).cloned() {
        let axes: Vec<usize> = axes.iter().map(|&axis| first.axes[axis]).collect();
        return permute(builder, &source, &axes);
    }
    // Axes of one element move without a copy. A pass of the graph does that where permutations do not cancel.
    let moved = |axes: &[usize]| -> Vec<usize> {
        axes.iter()
            .copied()
            .filter(|&axis| x.dims[axis] != Dim::Fixed(1))
            .collect()
    };
    if x.is_known() && moved(axes).is_sorted() {
        let dims: Vec<Dim> = axes.iter().map(|&axis| x.dims[axis]).collect();
        return reshape_to(builder, x, &dims);
    }
    let permuted = builder.apply(Permute { axes: axes.to_vec() }, &[x])?;
    // The columns of a matrix become its rows.
    let rows = x.as_constant().and_then(|constant| constant.rows.clone());
    let rows = rows.filter(|_| x.rank() == 2).map(|rows| Rows {
        axis: 1 - rows.axis,
        ..rows
    });
    Ok(permuted.with_rows(rows))
}

fn expand(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let extents = context.input(1)?.linear_integers("extents")?;
    expand_to(context, &x, &extents).map(|value| vec![value])
}

/// Repeats the elements of `x` by the rules of broadcasting, to these extents or larger ones.
pub(super) fn expand_to(context: &mut Context<'_>, x: &Value, extents: &[Linear]) -> Result<Value, Refusal> {
    let target = broadcast(&x.dims, &dims(extents)?)?;
    expand_dims(context.builder, x, &target)
}

/// Repeats the elements of `x` to exactly these extents.
pub(crate) fn expand_dims(builder: &mut Builder, x: &Value, target: &[Dim]) -> Result<Value, Refusal> {
    if x.dims == target {
        return Ok(x.clone());
    }
    if target.iter().any(|dim| dim.is_batch())
        && let Some(ramp) = x.as_ramp()
    {
        return Ok(Value {
            element: x.element,
            dims: target.to_vec(),
            data: Data::Ramp(ramp.expanded(target.len())),
        });
    }
    builder.expand(x, target)
}

fn tile(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let repeats = context.input(1)?.linear_integers("repeats")?;
    if repeats.len() != x.rank() {
        refuse!("repeats {} axes of {}", repeats.len(), show(&x.dims));
    }
    let mut before = Vec::new();
    let mut repeated = Vec::new();
    let mut after = Vec::new();
    for (&dim, &times) in x.dims.iter().zip(repeats.iter()) {
        if times != Linear::new(1) {
            before.push(Linear::new(1));
            repeated.push(times);
        }
        before.push(dim.into());
        repeated.push(dim.into());
        after.push(product([dim.into(), times])?);
    }
    let builder = &mut *context.builder;
    let x = reshape_to(builder, &x, &dims(&before)?)?;
    let x = expand_dims(builder, &x, &dims(&repeated)?)?;
    reshape_to(builder, &x, &dims(&after)?).map(|value| vec![value])
}

/// Returns the extents and the block of an operator between depth and space.
fn blocks(context: &Context<'_>) -> Result<(Value, [Dim; 4], usize), Refusal> {
    let x = context.input(0)?;
    let block = usize::try_from(context.int_or("blocksize", 0))
        .ok()
        .filter(|&block| block > 0);
    let dims: Option<[Dim; 4]> = x.dims.as_slice().try_into().ok();
    match (dims, block) {
        (Some(dims), Some(block)) => Ok((x, dims, block)),
        _ => refuse!(
            "takes images [N, C, H, W] and a block size, got {}",
            show(&x.dims)
        ),
    }
}

fn depth_to_space(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let (x, [n, c, h, w], block) = blocks(context)?;
    let b = Dim::Fixed(block);
    let of = |extents: [Linear; 4]| dims(&extents);
    let [channels, rows, columns] = [c, h, w].map(Linear::from);
    let squared = Linear::new((block * block) as i64);
    let Some(depth) = channels
        .checked_div(squared)
        .filter(|depth| depth.checked_mul(squared) == Some(channels))
    else {
        refuse!(
            "cannot divide {} channels into blocks of {block}×{block}",
            c.at_one()
        );
    };
    let depth = dims(&[depth])?[0];
    let (split, axes) = match context.string_or("mode", "DCR").as_str() {
        "DCR" => ([n, b, b, depth, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n, depth, b, b, h, w], [0, 1, 4, 2, 5, 3]),
        mode => refuse!("has the mode {mode}"),
    };
    let builder = &mut *context.builder;
    let x = reshape_to(builder, &x, &split)?;
    let x = permute(builder, &x, &axes)?;
    let b = Linear::from(b);
    let result = of([
        n.into(),
        depth.into(),
        product([rows, b])?,
        product([columns, b])?,
    ])?;
    reshape_to(builder, &x, &result).map(|value| vec![value])
}

fn space_to_depth(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let (x, [n, c, h, w], block) = blocks(context)?;
    let b = Linear::new(block as i64);
    let part = |dim: Dim| {
        Linear::from(dim)
            .checked_div(b)
            .filter(|part| part.checked_mul(b) == Some(dim.into()))
    };
    let (Some(rows), Some(columns)) = (part(h), part(w)) else {
        refuse!("cannot divide {} into blocks of {block}×{block}", show(&x.dims));
    };
    let builder = &mut *context.builder;
    let x = reshape_to(builder, &x, &dims(&[n.into(), c.into(), rows, b, columns, b])?)?;
    let x = permute(builder, &x, &[0, 3, 5, 1, 2, 4])?;
    let depth = product([c.into(), b, b])?;
    reshape_to(builder, &x, &dims(&[n.into(), depth, rows, columns])?).map(|value| vec![value])
}
