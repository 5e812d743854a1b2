//! Conversions between element types.

use hipvit_graph::op::Elementwise;

use crate::builder::Builder;
use crate::context::{Context, Group};
use crate::conversion;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::Value;

pub(super) const OPS: Group = &[("Cast", cast), ("CastLike", cast_like)];

fn cast(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    context.ignore(&["saturate", "round_mode"]);
    let code = context.int_or("to", 0);
    let element = ElementType::from_code(code);
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
    match conversion::convert(&x, element)? {
        Some(converted) => Ok(converted),
        None => computed(builder, x, element),
    }
}

fn computed(builder: &mut Builder, x: Value, element: ElementType) -> Result<Value, Refusal> {
    let is_integer = x.element.is_integer();
    let op = if element == ElementType::Bool && x.element != ElementType::Bool {
        Elementwise::unary(|x| x.to_bool().to_float())
    } else if element.is_integer() && !is_integer {
        Elementwise::unary(|x| x.trunc()).map(Elementwise::into_integers)
    } else if is_integer && !element.is_integer() {
        Elementwise::unary(|x| x)
    } else {
        // Both are integers, or both are floats or truth values: the graph computes them alike.
        return Ok(Value { element, ..x });
    };
    let op = op.map_err(|error| error.to_string())?;
    let op = if is_integer {
        op.with_integer_operands(&[0])
    } else {
        op
    };
    let result = builder.apply(op, &[&x])?;
    Ok(Value { element, ..result })
}
