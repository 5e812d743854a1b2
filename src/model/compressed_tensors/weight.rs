//! Reads one quantised weight: its bytes, scales and zero points, and the rounding of its layer's inputs.

use std::collections::BTreeMap;

use safetensors::Dtype;

use super::{Group, Inputs, Kind, Scales, Scheme, scale_name};
use crate::error::{Error, Result};
use crate::float8::Float8;
use crate::model::stored::Stored;
use crate::ops::{Float8Scale, Levels, Rounding};
use crate::tensor::{DType, Tensor};

/// A quantised weight that was read.
pub(in crate::model) struct Loaded {
    pub(in crate::model) tensor: Tensor,
    /// Rounding of the layer's inputs, if they are rounded.
    pub(in crate::model) rounding: Option<Rounding>,
    /// Tensors of the layer that were not needed.
    pub(in crate::model) unused: Vec<String>,
}

/// Reads the weight `name` of a model with the given scheme. Takes its scales out of `tensors`.
///
/// # Errors
///
/// Returns [`Error::Tensor`] for the weight if the scheme does not describe it. Returns it for scales or zero points
/// that are missing or invalid.
pub(in crate::model) fn load(
    name: &str,
    weight: &Stored,
    scheme: &Scheme,
    tensors: &mut BTreeMap<String, Stored>,
) -> Result<Loaded> {
    let error = |reason: String| Error::tensor(&weight.file, name, reason);
    let dtype = weight.dtype;
    let layer = name.strip_suffix(".weight").unwrap_or(name);
    if scheme.ignores(layer) {
        let reason = format!(
            "is {dtype}, but `{}` says under `ignore` that it is not quantised",
            super::KEY
        );
        return Err(error(reason));
    }
    let Some(group) = scheme.group(layer, dtype) else {
        let reason = format!(
            "is {dtype}, but no group of `{}` has it as a target and this type",
            super::KEY
        );
        return Err(error(reason));
    };
    let &[rows, columns] = weight.shape.as_slice() else {
        return Err(error(format!("has shape {:?}, expected a matrix", weight.shape)));
    };
    let Some(bytes) = weight.data().filter(|bytes| bytes.len() == rows * columns) else {
        return Err(error("does not have the bytes of its shape".into()));
    };
    let block = match group.scales {
        Scales::Tensor => [rows, columns],
        Scales::Channel => [1, columns],
        Scales::Group(size) => [1, size],
        Scales::Block(block) => block,
    };
    let grid = [rows.div_ceil(block[0].max(1)), columns.div_ceil(block[1].max(1))];
    let scale_name = scale_name(name);
    let Some(scales) = tensors.remove(&scale_name) else {
        let reason = format!("is missing: `{name}` is {dtype} and needs its scales");
        return Err(Error::tensor(&weight.file, &scale_name, reason));
    };
    let scales = self::scales(&scale_name, &scales, grid)?;
    let zeros = match tensors.remove(&format!("{name}_zero_point")) {
        Some(zeros) => zero_points(&format!("{name}_zero_point"), &zeros, scales.len())?,
        None if group.kind == (Kind::Int8 { symmetric: false }) => {
            let reason = format!("is missing: `{name}` is not symmetric");
            return Err(Error::tensor(&weight.file, format!("{name}_zero_point"), reason));
        }
        None => vec![0.0; scales.len()],
    };
    let whole_rows = matches!(group.scales, Scales::Tensor | Scales::Channel);
    let stays = whole_rows && zeros.iter().all(|&zero| zero == 0.0);
    let (rounding, unused) = inputs(layer, group, tensors, stays)?;
    let tensor = if stays {
        let of_row = |row: usize| scales[(row / block[0].max(1)).min(scales.len() - 1)];
        let of_rows: Vec<f32> = (0..rows).map(of_row).collect();
        let stored = match group.kind {
            Kind::Int8 { .. } => DType::I8,
            Kind::Float8 => DType::F8E4M3,
        };
        let range = weight.range.clone();
        Tensor::scaled([rows, columns], stored, weight.bytes.clone(), range, of_rows)
    } else {
        let table = match group.kind {
            Kind::Int8 { .. } => std::array::from_fn(|bits| f32::from((bits as u8).cast_signed())),
            Kind::Float8 => Float8::E4M3.table(),
        };
        let grid_columns = if scales.len() == 1 { 0 } else { grid[1] };
        let grid_rows = if scales.len() == 1 { 0 } else { 1 };
        let mut values = Vec::with_capacity(bytes.len());
        for (row, bytes) in bytes.chunks(columns.max(1)).enumerate() {
            let first = row / block[0].max(1) * grid_columns;
            values.extend(bytes.iter().enumerate().map(|(column, &bits)| {
                let at = first + column / block[1].max(1) * grid_rows;
                (table[usize::from(bits)] - zeros[at]) * scales[at]
            }));
        }
        Tensor::from_f32([rows, columns], values)
    };
    let tensor = tensor.ok_or_else(|| error("does not have the bytes of its shape".into()))?;
    Ok(Loaded {
        tensor,
        rounding,
        unused,
    })
}

/// Returns the rounding of the layer's inputs if its weight stays in 8 bits, and the names of tensors that are not
/// needed.
fn inputs(
    layer: &str,
    group: &Group,
    tensors: &mut BTreeMap<String, Stored>,
    stays: bool,
) -> Result<(Option<Rounding>, Vec<String>)> {
    let [scale_name, zero_name] = ["scale", "zero_point"].map(|part| format!("{layer}.input_{part}"));
    let (scale, zero) = (tensors.remove(&scale_name), tensors.remove(&zero_name));
    let missing = |name: &str| {
        let reason = "is missing: its layer's activations are quantised by it";
        Error::tensor("the weights", name, reason)
    };
    let known = |scale: &Option<Stored>| {
        let scale = scale.as_ref().ok_or_else(|| missing(&scale_name))?;
        Ok::<f32, Error>(scales(&scale_name, scale, [1, 1])?[0])
    };
    let rounding = match group.inputs {
        Inputs::Static { symmetric } => {
            let scale = known(&scale)?;
            let zero = match (zero, symmetric) {
                (Some(zero), _) => zero_points(&zero_name, &zero, 1)?[0],
                (None, true) => 0.0,
                (None, false) => return Err(missing(&zero_name)),
            };
            // The file counts from −128 to 127, this crate from 0 to 255.
            let zero = (zero + 128.0) as u8;
            let rounding = Rounding::Int8(Levels::Fixed { scale, zero });
            return Ok((stays.then_some(rounding), Vec::new()));
        }
        Inputs::StaticFloat8 => {
            let rounding = Rounding::Float8(Float8Scale::Fixed(known(&scale)?));
            let unused = zero.map(|_| zero_name);
            return Ok((stays.then_some(rounding), unused.into_iter().collect()));
        }
        Inputs::Dynamic(levels) => Some(Rounding::Int8(levels)),
        Inputs::DynamicFloat8 => Some(Rounding::Float8(Float8Scale::Row)),
        Inputs::Full => None,
    };
    let present = [(scale_name, scale), (zero_name, zero)];
    let present = present
        .into_iter()
        .filter_map(|(name, tensor)| tensor.map(|_| name));
    Ok((rounding.filter(|_| stays), present.collect()))
}

/// Reads positive scales: one for each cell of `grid`, or one for all.
fn scales(name: &str, stored: &Stored, grid: [usize; 2]) -> Result<Vec<f32>> {
    let error = |reason: String| Error::tensor(&stored.file, name, reason);
    let count = match (stored.shape.as_slice(), grid) {
        ([] | [1] | [1, 1], [_, 1]) => 1,
        ([n], [rows, 1]) if *n == rows => rows,
        (shape, [rows, columns]) if shape == [rows, columns] => rows * columns,
        (shape, [rows, columns]) => {
            let or = if columns == 1 { " or [1]" } else { "" };
            return Err(error(format!(
                "has shape {shape:?}, expected [{rows}, {columns}]{or}"
            )));
        }
    };
    let dtype = match stored.dtype {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        other => return Err(error(format!("has dtype {other}, expected F32, F16 or BF16"))),
    };
    let values = Tensor::view([count], dtype, stored.bytes.clone(), stored.range.clone());
    let values = values.ok_or_else(|| error("does not have the bytes of its shape".into()))?;
    let values = values.to_f32().into_owned();
    // Division by a subnormal number may overflow.
    let bad = |value: &f32| !(value.is_normal() && *value > 0.0);
    match values.iter().position(bad) {
        Some(index) => {
            let value = values[index];
            Err(error(format!(
                "is {value} at index {index}, expected a positive number"
            )))
        }
        None => Ok(values),
    }
}

/// Reads zero points, which are signed bytes.
fn zero_points(name: &str, stored: &Stored, count: usize) -> Result<Vec<f32>> {
    let error = |reason: String| Error::tensor(&stored.file, name, reason);
    let values: Vec<f32> = match (stored.dtype, stored.data()) {
        (Dtype::I8, Some(bytes)) => bytes.iter().map(|bits| f32::from(bits.cast_signed())).collect(),
        // Older releases also wrote zero points of symmetric FP8 weights.
        (Dtype::F8_E4M3, Some(bytes)) => bytes.iter().map(|&bits| Float8::E4M3.to_f32(bits)).collect(),
        (dtype, _) => return Err(error(format!("has dtype {dtype}, expected I8"))),
    };
    if values.len() == count {
        Ok(values)
    } else {
        Err(error(format!(
            "has {} values, expected {count}, one for each scale",
            values.len()
        )))
    }
}
