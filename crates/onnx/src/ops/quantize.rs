//! Quantised tensors: `DequantizeLinear` of weights is computed at import, and a tensor that is quantised and dequantised is rounded.

use std::sync::Arc;

use hipvit_graph::op::Levels;
use hipvit_graph::pattern::{Float, floats};
use hipvit_graph::tensor::Tensor;
use hipvit_graph::{DType, Provenance};

use super::layout::reshape_to;
use crate::context::{Context, Group};
use crate::dim::Dim;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::shape::{axis, show};
use crate::value::{Rows, Value};

pub(super) const OPS: Group = &[("DequantizeLinear", dequantize), ("QuantizeLinear", quantize)];

/// Scale and zero point, for the tensor or for each index of an axis.
struct Grid {
    scale: Value,
    zero: Option<Value>,
}

/// Reads the operands after the first one, in a shape that broadcasts to the tensor's.
fn grid(context: &mut Context<'_>, x: &Value) -> Result<Grid, Refusal> {
    let given = context.int_or("axis", 1);
    let block = context.int_or("block_size", 0);
    context.ignore(&["saturate", "precision"]);
    if block != 0 {
        refuse!("has a scale for each block of {block} elements, which is not supported");
    }
    let (scale, zero) = (context.input(1)?, context.optional(2));
    let shape_of = |value: &Value| -> Result<Vec<Dim>, Refusal> {
        match value.dims[..] {
            [] | [Dim::Fixed(1)] => Ok(Vec::new()),
            [extent] => {
                let axis = axis(given, x.rank())?;
                if x.dims[axis] != extent {
                    refuse!("has {extent} scales for axis {axis} of {}", show(&x.dims));
                }
                let mut dims = vec![Dim::Fixed(1); x.rank()];
                dims[axis] = extent;
                Ok(dims)
            }
            _ => refuse!("has scales of shape {}", show(&value.dims)),
        }
    };
    let of_scale = shape_of(&scale)?;
    let scale = reshape_to(context.builder, &scale, &of_scale)?;
    let zero = match zero {
        // Without an offset, the zero point has no effect.
        Some(zero)
            if zero
                .numbers()
                .is_some_and(|all| all.iter().all(|&zero| zero == 0.0)) =>
        {
            None
        }
        Some(zero) => {
            let dims = shape_of(&zero)?;
            let zero = reshape_to(context.builder, &zero, &dims)?;
            Some(super::cast::convert(context.builder, zero, ElementType::F32)?)
        }
        None => None,
    };
    Ok(Grid { scale, zero })
}

/// Returns the smallest and largest number of a quantised type.
fn limits(element: ElementType) -> Result<[f32; 2], Refusal> {
    Ok(match element {
        ElementType::I8 => [-128.0, 127.0],
        ElementType::U8 => [0.0, 255.0],
        ElementType::I16 => [-32768.0, 32767.0],
        ElementType::U16 => [0.0, 65535.0],
        _ => refuse!("quantises to elements of type {element}, which is not supported"),
    })
}

fn quantize(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let code = context.int_or("output_dtype", 0);
    let given = ElementType::from_code(code);
    let element = context
        .optional(2)
        .map(|zero| zero.element)
        .or(given)
        .unwrap_or(ElementType::U8);
    let [low, high] = limits(element)?;
    let Grid { scale, zero } = grid(context, &x)?;
    let builder = &mut *context.builder;
    // A number that is known is part of the expression.
    let known = scale
        .number()
        .filter(|_| scale.rank() == 0)
        .map(|scale| scale as f32);
    let offset = zero
        .as_ref()
        .map(|zero| zero.number().filter(|_| zero.rank() == 0).map(|zero| zero as f32));
    let mut operands = vec![&x];
    let mut operand = |value: Option<f32>, tensor| match value {
        Some(value) => Float::from(value),
        None => {
            operands.push(tensor);
            floats::operand(operands.len() as u32 - 1)
        }
    };
    let mut level = (floats::operand(0) / operand(known, &scale)).round();
    if let (Some(tensor), Some(offset)) = (&zero, offset) {
        level = level + operand(offset, tensor);
    }
    let level = level.clip(low, high);
    let result = builder.elementwise(level, &operands, element)?;
    // hipvit's levels go from 0 to 255.
    let zero = match &zero {
        None => Some(0.0),
        Some(zero) => zero.number(),
    };
    if let (Some(scale), Some(zero), ElementType::I8 | ElementType::U8) = (known, zero, element)
        && scale >= f32::MIN_POSITIVE
    {
        let zero = (zero as f32 - low) as u8;
        builder.note_rounded(&result, x.clone(), Levels::Fixed { scale, zero });
    }
    Ok(vec![result])
}

fn dequantize(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let code = context.int_or("output_dtype", 0);
    let Grid { scale, zero } = grid(context, &x)?;
    let given = ElementType::from_code(code);
    let element = given.unwrap_or(scale.element);
    if x.is_known() {
        return dequantized(context, &x, &scale, zero.as_ref(), element).map(|value| vec![value]);
    }
    let mut operands = vec![&x];
    let mut level = floats::operand(0);
    if let Some(zero) = &zero {
        operands.push(zero);
        level = level - floats::operand(1);
    }
    operands.push(&scale);
    let value = level * floats::operand(operands.len() as u32 - 1);
    let result = context.builder.elementwise(value, &operands, element)?;
    let builder = &mut *context.builder;
    if let Some((before, levels)) = builder.before_rounding(&x).transpose()? {
        // The parameters of both nodes are those of one rounding.
        let Levels::Fixed {
            scale: own,
            zero: offset,
        } = levels
        else {
            return Ok(vec![result]);
        };
        let [low, _] = limits(x.element)?;
        let given = zero.as_ref().map_or(Some(0.0), Value::number);
        let is_same = scale.number() == Some(own.into()) && given == Some(f64::from(f32::from(offset) + low));
        if is_same {
            builder.note_rounded(&result, before, levels);
        }
    }
    Ok(vec![result])
}

/// Computes the numbers of a quantised weight.
fn dequantized(
    context: &Context<'_>,
    x: &Value,
    scale: &Value,
    zero: Option<&Value>,
    element: ElementType,
) -> Result<Value, Refusal> {
    let shape = x.fixed_shape()?;
    let of = |value: &Value| match value.numbers() {
        Some(numbers) => Ok(numbers),
        None => Err(Refusal::from(
            "has a scale that depends on the input, which is not supported",
        )),
    };
    let (levels, scales) = (of(x)?, of(scale)?);
    let zeros = zero.map(of).transpose()?;
    // The parameters repeat along the axes after theirs.
    let axis = scale.dims.iter().position(|dim| dim.at_one() != 1).unwrap_or(0);
    let inner: usize = shape.iter().skip(axis + 1).product();
    let index = |at: usize, count: usize| if count == 1 { 0 } else { at / inner.max(1) % count };
    let values: Vec<f32> = levels
        .iter()
        .enumerate()
        .map(|(at, level)| {
            let zero = zeros.as_ref().map_or(0.0, |zeros| zeros[index(at, zeros.len())]);
            (level - zero) as f32 * scales[index(at, scales.len())] as f32
        })
        .collect();
    let rows = match (x.element, zeros) {
        (ElementType::I8, None) => int8_rows(&levels, &shape, &scales, axis),
        _ => None,
    };
    let tensor = Tensor::from_f32(shape, values).ok_or("does not fit its shape")?;
    let provenance = Provenance::from(context.node.inputs[0].as_str());
    let provenance = Provenance::computed(context.node.outputs[0].as_str(), [provenance]);
    Ok(Value::constant(element, tensor, provenance).with_rows(rows))
}

/// Returns the levels of a matrix or a kernel with its channels, the axis of the scales, first.
fn int8_rows(levels: &[f64], shape: &[usize], scales: &[f64], axis: usize) -> Option<Rows> {
    let channels = *shape.get(axis)?;
    let columns = levels.len() / channels.max(1);
    let byte = |level: f64| (level as i8).cast_unsigned();
    let bytes: Vec<u8> = match (axis, shape.len()) {
        (0, _) => levels.iter().map(|&level| byte(level)).collect(),
        (1, 2) => (0..levels.len())
            .map(|index| byte(levels[index % columns * channels + index / columns]))
            .collect(),
        _ => return None,
    };
    let scales: Vec<f32> = (0..channels)
        .map(|channel| scales[channel % scales.len()] as f32)
        .collect();
    let length = bytes.len();
    let tensor = Tensor::scaled([channels, columns], DType::I8, Arc::new(bytes), 0..length, scales)?;
    Some(Rows { axis, tensor })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::path::Path;

    use hipvit_graph::DType;
    use hipvit_graph::op::{Levels, Op, Rounding};

    use crate::{Options, load};

    #[test]
    fn dequantised_operands_of_linear_layers_are_multiplied_in_int8() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/onnx"));
        let model = load(&folder.join("resnet_qdq/model.onnx"), &Options::default()).unwrap();
        let mut count = 0;
        for node in model.graph.nodes() {
            if let Op::Linear(linear) = &node.op {
                let is_fixed = matches!(linear.rounding, Some(Rounding::Int8(Levels::Fixed { .. })));
                assert!(is_fixed, "{}: {:?}", node.name, linear.rounding);
                assert_eq!(
                    model.graph.value(node.inputs[1]).dtype,
                    DType::I8,
                    "{}",
                    node.name
                );
                count += 1;
            }
        }
        assert!(count >= 5, "{count} linear layers");
    }
}
