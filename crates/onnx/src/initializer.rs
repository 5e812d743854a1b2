//! Tensors of the file as values.

use std::sync::Arc;

use bytes::Bytes;
use half::{bf16, f16};
use hipvit_graph::{DType, Provenance, tensor::Tensor};

use crate::dim::Linear;
use crate::element::ElementType;
use crate::error::{Refusal, refuse};
use crate::proto::TensorProto;
use crate::shape::{MOST_AXES, count};
use crate::source::Source;
use crate::value::{MOST_INTEGERS, Value};

/// `data_location` of a tensor in another file.
const EXTERNAL: i32 = 1;

/// Reads a tensor. Floating-point elements stay where they are in the file; f64 is rounded to f32.
pub(crate) fn read(source: &Source, tensor: &TensorProto) -> Result<Value, Refusal> {
    let Some(element) = ElementType::from_code(tensor.data_type.into()) else {
        refuse!(
            "has elements of type {}, which is not supported",
            type_name(tensor.data_type)
        );
    };
    let extent = |&dim: &i64| usize::try_from(dim).map_err(|_| format!("has the negative extent {dim}"));
    let shape = tensor
        .dims
        .iter()
        .map(extent)
        .collect::<Result<Vec<usize>, _>>()?;
    if shape.len() > MOST_AXES {
        refuse!("has {} axes, but at most {MOST_AXES} are supported", shape.len());
    }
    let elements = count(&shape)?;
    let size = elements.checked_mul(element.size()).ok_or("is too large")?;
    let raw = raw_bytes(source, tensor, size)?;
    if let Some(raw) = &raw
        && raw.len() != size
    {
        refuse!(
            "has {} bytes, but its shape {shape:?} of {element} takes {size}",
            raw.len()
        );
    }
    if element.is_float() {
        let constant = floats(element, &shape, raw, tensor)?;
        let name = Provenance::from(tensor.name.as_str());
        return Ok(Value::constant(element, constant, name));
    }
    if elements > MOST_INTEGERS {
        refuse!("has {elements} integers, but at most {MOST_INTEGERS} are supported");
    }
    let integers = match raw {
        Some(raw) => raw_integers(element, &raw),
        None => typed_integers(element, tensor),
    };
    if integers.len() != elements {
        refuse!("has {} elements, but its shape is {shape:?}", integers.len());
    }
    let integers: Vec<Linear> = integers.into_iter().map(Linear::new).collect();
    Value::integers(element, &shape, integers)
}

/// Returns the elements that are stored as bytes. `None` if they are in a list of numbers.
fn raw_bytes(source: &Source, tensor: &TensorProto, size: usize) -> Result<Option<Bytes>, Refusal> {
    if tensor.data_location == EXTERNAL {
        return source.external(tensor, size).map(Some);
    }
    let has_numbers = !(tensor.float_data.is_empty()
        && tensor.int32_data.is_empty()
        && tensor.int64_data.is_empty()
        && tensor.double_data.is_empty()
        && tensor.uint64_data.is_empty());
    Ok((!has_numbers).then(|| tensor.raw_data.clone()))
}

fn floats(
    element: ElementType,
    shape: &[usize],
    raw: Option<Bytes>,
    tensor: &TensorProto,
) -> Result<Tensor, Refusal> {
    let stored = |dtype, bytes: Bytes| {
        let len = bytes.len();
        Tensor::view(shape, dtype, Arc::new(bytes), 0..len)
    };
    let owned = |values: Vec<f32>| Tensor::from_f32(shape, values);
    let bits = |number: &i32| *number as u16;
    let read = match (element, raw) {
        (ElementType::F16, Some(raw)) => stored(DType::F16, raw),
        (ElementType::BF16, Some(raw)) => stored(DType::BF16, raw),
        (ElementType::F64, Some(raw)) => {
            let numbers = raw.as_chunks::<8>().0.iter();
            owned(numbers.map(|&bytes| f64::from_le_bytes(bytes) as f32).collect())
        }
        (_, Some(raw)) => stored(DType::F32, raw),
        (ElementType::F16, None) => {
            let numbers = tensor.int32_data.iter();
            owned(numbers.map(|x| f16::from_bits(bits(x)).to_f32()).collect())
        }
        (ElementType::BF16, None) => {
            let numbers = tensor.int32_data.iter();
            owned(numbers.map(|x| bf16::from_bits(bits(x)).to_f32()).collect())
        }
        (ElementType::F64, None) => owned(tensor.double_data.iter().map(|&x| x as f32).collect()),
        (_, None) => owned(tensor.float_data.clone()),
    };
    read.ok_or_else(|| format!("does not have as many elements as its shape {shape:?}").into())
}

fn raw_integers(element: ElementType, raw: &[u8]) -> Vec<i64> {
    match element {
        ElementType::I64 => raw.as_chunks().0.iter().map(|&b| i64::from_le_bytes(b)).collect(),
        ElementType::U64 => raw
            .as_chunks()
            .0
            .iter()
            .map(|&b| saturated(u64::from_le_bytes(b)))
            .collect(),
        ElementType::I32 => raw
            .as_chunks()
            .0
            .iter()
            .map(|&b| i32::from_le_bytes(b).into())
            .collect(),
        ElementType::U32 => raw
            .as_chunks()
            .0
            .iter()
            .map(|&b| u32::from_le_bytes(b).into())
            .collect(),
        ElementType::I16 => raw
            .as_chunks()
            .0
            .iter()
            .map(|&b| i16::from_le_bytes(b).into())
            .collect(),
        ElementType::U16 => raw
            .as_chunks()
            .0
            .iter()
            .map(|&b| u16::from_le_bytes(b).into())
            .collect(),
        ElementType::I8 => raw.iter().map(|&b| b.cast_signed().into()).collect(),
        ElementType::Bool => raw.iter().map(|&b| i64::from(b != 0)).collect(),
        _ => raw.iter().map(|&b| b.into()).collect(),
    }
}

fn typed_integers(element: ElementType, tensor: &TensorProto) -> Vec<i64> {
    match element {
        ElementType::I64 => tensor.int64_data.clone(),
        ElementType::U64 | ElementType::U32 => tensor.uint64_data.iter().map(|&x| saturated(x)).collect(),
        ElementType::Bool => tensor.int32_data.iter().map(|&x| i64::from(x != 0)).collect(),
        _ => tensor.int32_data.iter().map(|&x| x.into()).collect(),
    }
}

fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the name of an element type that is not supported.
fn type_name(code: i32) -> String {
    let names = [
        (8, "string"),
        (14, "complex64"),
        (15, "complex128"),
        (17, "float8e4m3fn"),
        (18, "float8e4m3fnuz"),
        (19, "float8e5m2"),
        (20, "float8e5m2fnuz"),
        (21, "uint4"),
        (22, "int4"),
    ];
    let name = names.iter().find(|(known, _)| *known == code);
    name.map_or_else(|| code.to_string(), |(_, name)| (*name).to_owned())
}
