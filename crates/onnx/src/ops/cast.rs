//! Conversions between element types.

use hipvit_graph::op::Elementwise;
use hipvit_graph::tensor::Tensor;

use super::Group;
use super::elementwise::made;
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::Linear;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{Data, Value};

pub(super) const OPS: Group = &[("Cast", cast), ("CastLike", cast_like)];

fn cast(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    context.ignore(&["saturate", "round_mode"]);
    let code = context.int_or("to", 0);
    let element = i32::try_from(code).ok().and_then(ElementType::from_code);
    let Some(element) = element else {
        refuse!("converts to elements of type {code}, which is not supported");
    };
    let x = context.input(0)?;
    convert(context.builder, x, element).map(|value| vec![value])
}

fn cast_like(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    context.ignore(&["saturate", "round_mode"]);
    let element = context.input(1)?.element;
    let x = context.input(0)?;
    convert(context.builder, x, element).map(|value| vec![value])
}

/// Converts the elements of `x`. Graphs compute all floating-point types in the plan's dtype.
pub(super) fn convert(builder: &mut Builder, x: Value, element: ElementType) -> Result<Value, Refusal> {
    let data = match &x.data {
        Data::Integers(_) if element.is_float() => return floats(&x, element),
        Data::Integers(integers) => {
            let converted = integers.iter().map(|&integer| convert_integer(integer, element));
            let converted: Option<Vec<Linear>> = converted.collect();
            let Some(converted) = converted else {
                refuse!("compares extents that depend on the batch size with 0");
            };
            Data::Integers(converted.into())
        }
        Data::Constant(_) if element.is_float() => x.data,
        Data::Constant(constant) => {
            let numbers = constant.tensor.to_f32();
            let integer = |&number: &f32| match element {
                ElementType::Bool => Linear::new((number != 0.0).into()),
                // Beyond the limits, the result is that of the limit.
                _ => Linear::new(number as i64),
            };
            Data::Integers(numbers.iter().map(integer).collect())
        }
        Data::Ramp(_) | Data::Columns(_) if element.is_integer() => x.data,
        _ => return computed(builder, x, element),
    };
    Ok(Value {
        element,
        dims: x.dims,
        data,
    })
}

fn floats(x: &Value, element: ElementType) -> Result<Value, Refusal> {
    let Some(numbers) = x.numbers() else {
        refuse!("converts extents that depend on the batch size to {element}");
    };
    let numbers: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
    let tensor = Tensor::from_f32(x.fixed_shape()?, numbers).ok_or("does not fit its shape")?;
    Ok(Value::constant(
        element,
        tensor,
        hipvit_graph::Provenance::computed("integers", []),
    ))
}

/// Converts to another integer type. `None` if the result depends on the batch size in another than a linear way.
fn convert_integer(integer: Linear, element: ElementType) -> Option<Linear> {
    match element {
        ElementType::Bool => match integer.known() {
            Some(number) => Some(Linear::new((number != 0).into())),
            // A positive multiple of the batch size is never 0.
            None if integer.batch > 0 && integer.constant >= 0 => Some(Linear::new(1)),
            None => None,
        },
        _ => Some(integer),
    }
}

fn computed(builder: &mut Builder, x: Value, element: ElementType) -> Result<Value, Refusal> {
    let is_integer = x.element.is_integer();
    let op = if element == ElementType::Bool && x.element != ElementType::Bool {
        made(Elementwise::unary(|x| x.to_bool().to_float()))?
    } else if element.is_integer() && !is_integer {
        made(Elementwise::unary(|x| x.trunc()))?.into_integers()
    } else if is_integer && !element.is_integer() {
        made(Elementwise::unary(|x| x))?
    } else {
        // Both are integers, or both are floats or truth values: the graph computes them alike.
        return Ok(Value { element, ..x });
    };
    let op = if is_integer {
        op.with_integer_operands(&[0])
    } else {
        op
    };
    let result = builder.apply(op, &[&x])?;
    Ok(Value { element, ..result })
}
