//! Constants, and tensors that are made of a shape or a range.

use hipvit_graph::tensor::Tensor;

use super::layout::expand_to;
use crate::context::{Context, Group};
use crate::dim::Linear;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::initializer;
use crate::ramp::Ramp;
use crate::shape::{product, show};
use crate::value::{Data, MOST_FLOATS, MOST_INTEGERS, Value};

pub(super) const OPS: Group = &[
    ("Constant", constant),
    ("ConstantOfShape", constant_of_shape),
    ("EyeLike", eye_like),
    ("Range", range),
    ("Shape", shape),
    ("Size", size),
];

fn constant(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let floats = |values: &[f32], shape: Vec<usize>| {
        let tensor = Tensor::from_f32(shape, values.to_vec()).ok_or("does not fit its shape")?;
        Ok::<_, Refusal>(Value::constant(
            ElementType::F32,
            tensor,
            context.node.name.as_str(),
        ))
    };
    let value = if let Some(tensor) = context.tensor("value") {
        let value = initializer::read(context.source, tensor)?;
        match value.as_constant() {
            // A constant's tensor has no name of its own.
            Some(constant) => Value::constant(
                value.element,
                constant.tensor.clone(),
                context.node.outputs[0].as_str(),
            ),
            None => value,
        }
    } else if let Some(float) = context.float("value_float") {
        floats(&[float], Vec::new())?
    } else if let Some(values) = context.floats("value_floats") {
        floats(values, vec![values.len()])?
    } else if let Some(int) = context.int("value_int") {
        Value::integers(ElementType::I64, &[], vec![Linear::new(int)])?
    } else if let Some(ints) = context.ints("value_ints") {
        Value::list(ints.iter().copied().map(Linear::new))
    } else {
        refuse!("has no value of a type that is supported");
    };
    Ok(vec![value])
}

fn constant_of_shape(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let shape = context.input(0)?.linear_integers("extents")?;
    let value = match context.tensor("value") {
        Some(tensor) => initializer::read(context.source, tensor)?,
        None => Value::scalar(ElementType::F32, 0.0),
    };
    if value.dims.iter().any(|dim| dim.at_one() != 1) {
        refuse!("has a value of several elements");
    }
    let scalar = match value.as_integers() {
        Some(integers) => Value::integers(value.element, &[], integers)?,
        None => Value::scalar(value.element, value.number().unwrap_or(0.0) as f32),
    };
    expand_to(context, &scalar, &shape).map(|value| vec![value])
}

fn eye_like(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let element = match context.int("dtype") {
        None => x.element,
        Some(code) => match ElementType::from_code(code) {
            Some(element) => element,
            None => refuse!("makes elements of type {code}, which is not supported"),
        },
    };
    let shape = x.fixed_shape()?;
    let [rows, columns] = shape[..] else {
        refuse!("takes a matrix, got {}", show(&x.dims));
    };
    let limit = MOST_INTEGERS.min(MOST_FLOATS);
    if rows.checked_mul(columns).is_none_or(|elements| elements > limit) {
        refuse!("has too many elements, {}", show(&x.dims));
    }
    let diagonal = context.int_or("k", 0);
    let places = (0..rows as i64).flat_map(|row| (0..columns as i64).map(move |column| (row, column)));
    let ones = places.map(|(row, column)| f64::from(u8::from(Some(column) == row.checked_add(diagonal))));
    numbers(context, element, &shape, ones).map(|value| vec![value])
}

/// Returns a tensor of known numbers.
fn numbers(
    context: &Context<'_>,
    element: ElementType,
    shape: &[usize],
    numbers: impl Iterator<Item = f64>,
) -> Result<Value, Refusal> {
    if element.is_float() {
        let tensor = Tensor::from_f32(shape, numbers.map(|x| x as f32).collect::<Vec<_>>());
        let tensor = tensor.ok_or("does not fit its shape")?;
        return Ok(Value::constant(element, tensor, context.node.name.as_str()));
    }
    let integers: Vec<Linear> = numbers.map(|x| Linear::new(x as i64)).collect();
    Value::integers(element, shape, integers)
}

fn range(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let operands = [context.input(0)?, context.input(1)?, context.input(2)?];
    if let Some(ramp) = ramp(&operands) {
        return Ok(vec![ramp]);
    }
    let [start, limit, delta] = operands.each_ref().map(Value::number);
    let (Some(start), Some(limit), Some(delta)) = (start, limit, delta) else {
        refuse!("has limits that depend on the input or the batch size, not fixed ones");
    };
    let count = ((limit - start) / delta).ceil().max(0.0);
    if !count.is_finite() || count > MOST_INTEGERS.min(MOST_FLOATS) as f64 {
        refuse!("goes from {start} to {limit} by {delta}, which is too long");
    }
    let count = count as usize;
    let element = operands[0].element;
    let steps = (0..count).map(|index| start + index as f64 * delta);
    numbers(context, element, &[count], steps).map(|value| vec![value])
}

/// Returns the range of integers from 0 to a multiple of the batch size.
fn ramp(operands: &[Value; 3]) -> Option<Value> {
    let only = |value: &Value| value.as_integers().and_then(|integers| integers.first().copied());
    let [start, limit, delta] = operands.each_ref().map(only);
    let (start, delta) = (start?, delta?);
    let count = limit?.checked_sub(start)?.checked_div(delta)?;
    let dim = count.dim().filter(|dim| dim.is_batch())?;
    Some(Value {
        element: operands[0].element,
        dims: vec![dim],
        data: Data::Ramp(Ramp {
            start,
            strides: vec![delta],
        }),
    })
}

/// Refuses a value whose number of rows depends on the data.
fn check_extents(context: &Context<'_>, x: &Value) -> Result<(), Refusal> {
    match context.builder.rows(x) {
        Some(_) => refuse!("reads the number of results of NonMaxSuppression, which is not supported"),
        None => Ok(()),
    }
}

fn shape(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    check_extents(context, &x)?;
    let rank = x.rank();
    let clamp = |index: i64| -> usize {
        let index = if index < 0 {
            index.saturating_add(rank as i64)
        } else {
            index
        };
        index.clamp(0, rank as i64) as usize
    };
    let start = clamp(context.int_or("start", 0));
    let end = clamp(context.int_or("end", rank as i64)).max(start);
    Ok(vec![Value::list(
        x.dims[start..end].iter().map(|&dim| dim.into()),
    )])
}

fn size(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    check_extents(context, &x)?;
    let size = product(x.dims.iter().map(|&dim| dim.into()))?;
    Ok(vec![Value::integers(ElementType::I64, &[], vec![size])?])
}
