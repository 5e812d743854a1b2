//! Conversions of known elements between element types.

use hipvit_graph::tensor::Tensor;

use crate::dim::Linear;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::value::{Data, Value};

/// Converts the elements of `x`. `None` if a run computes them.
pub(crate) fn convert(x: &Value, element: ElementType) -> Result<Option<Value>, Refusal> {
    let data = match &x.data {
        Data::Integers(_) if element.is_float() => return floats(x, element).map(Some),
        Data::Integers(integers) => {
            let converted = integers.iter().map(|&integer| convert_integer(integer, element));
            let converted: Option<Vec<Linear>> = converted.collect();
            let Some(converted) = converted else {
                refuse!("compares extents that depend on the batch size with 0");
            };
            Data::Integers(converted.into())
        }
        Data::Constant(_) if element.is_float() => x.data.clone(),
        Data::Constant(constant) => {
            let numbers = constant.tensor.to_f32();
            let integer = |&number: &f32| match element {
                ElementType::Bool => Linear::new((number != 0.0).into()),
                // Beyond the limits, the result is that of the limit.
                _ => Linear::new(number as i64),
            };
            Data::Integers(numbers.iter().map(integer).collect())
        }
        Data::Ramp(_) | Data::Columns(_) if element.is_integer() => x.data.clone(),
        _ => return Ok(None),
    };
    Ok(Some(Value {
        element,
        dims: x.dims.clone(),
        data,
    }))
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
