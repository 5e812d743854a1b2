//! NumPy's files of numbers, as far as the examples need them.

use std::error::Error;
use std::fs;
use std::path::Path;

/// Reads an array. Returns its shape and its elements in row-major order.
pub(crate) fn read(path: &Path) -> Result<(Vec<usize>, Vec<f32>), Box<dyn Error>> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let long = bytes.get(6) != Some(&1);
    let start = if long { 12 } else { 10 };
    let length = if long {
        u32::from_le_bytes(bytes[8..12].try_into()?) as usize
    } else {
        u16::from_le_bytes(bytes[8..10].try_into()?) as usize
    };
    let header = std::str::from_utf8(&bytes[start..start + length])?;
    let between = |from: &str, to: char| {
        header
            .split_once(from)
            .and_then(|(_, rest)| rest.split(to).next())
    };
    let dtype = between("'descr': '", '\'').ok_or("no dtype")?;
    let shape = between("'shape': (", ')').ok_or("no shape")?;
    let shape = shape
        .split(',')
        .map(str::trim)
        .filter(|extent| !extent.is_empty());
    let shape = shape.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
    let data = &bytes[start + length..];
    let values = match dtype {
        "<f4" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_le_bytes(b))
            .collect(),
        "<f8" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| f64::from_le_bytes(b) as f32)
            .collect(),
        "<f2" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| half::f16::from_le_bytes(b).to_f32())
            .collect(),
        "<i8" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| i64::from_le_bytes(b) as f32)
            .collect(),
        "<i4" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| i32::from_le_bytes(b) as f32)
            .collect(),
        "<i2" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| i16::from_le_bytes(b).into())
            .collect(),
        "<u2" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| u16::from_le_bytes(b).into())
            .collect(),
        "<u4" => data
            .as_chunks()
            .0
            .iter()
            .map(|&b| u32::from_le_bytes(b) as f32)
            .collect(),
        "|i1" => data.iter().map(|&b| (b as i8).into()).collect(),
        "|u1" | "|b1" => data.iter().map(|&b| b.into()).collect(),
        other => return Err(format!("{}: dtype {other}", path.display()).into()),
    };
    Ok((shape, values))
}

/// Writes an array of f32.
pub(crate) fn write(path: &Path, shape: &[usize], values: &[f32]) -> Result<(), Box<dyn Error>> {
    let extents: String = shape.iter().map(|extent| format!("{extent},")).collect();
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({extents}), }}");
    // The header's length, with 10 bytes before it, is a multiple of 64.
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len())?.to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    Ok(fs::write(path, bytes)?)
}
