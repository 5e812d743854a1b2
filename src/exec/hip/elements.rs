//! Elements in the device's format.

use half::{bf16, f16};

use crate::float8::{Float8, Overflow};
use crate::tensor::DType;

/// Appends values rounded to `dtype`, in the device's format.
pub fn append(bytes: &mut Vec<u8>, values: &[f32], dtype: DType) {
    match dtype {
        DType::F16 => bytes.extend(values.iter().flat_map(|&v| f16::from_f32(v).to_ne_bytes())),
        DType::BF16 => bytes.extend(values.iter().flat_map(|&v| bf16::from_f32(v).to_ne_bytes())),
        DType::F8E4M3 | DType::F8E4M3Fnuz => {
            let format = match dtype {
                DType::F8E4M3 => Float8::E4M3,
                _ => Float8::E4M3Fnuz,
            };
            bytes.extend(values.iter().map(|&v| format.from_f32(v, Overflow::Saturate)));
        }
        _ => bytes.extend_from_slice(bytemuck::cast_slice(values)),
    }
}

/// Converts elements of `dtype` to f32.
pub fn unpack(bytes: &[u8], dtype: DType) -> Vec<f32> {
    match dtype {
        DType::F16 => halves(bytes).map(|b| f16::from_bits(b).to_f32()).collect(),
        DType::BF16 => halves(bytes).map(|b| bf16::from_bits(b).to_f32()).collect(),
        DType::U8 => bytes.iter().map(|&b| f32::from(b)).collect(),
        DType::I32 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| i32::from_ne_bytes(b) as f32)
            .collect(),
        _ => bytes
            .as_chunks()
            .0
            .iter()
            .map(|&b| f32::from_ne_bytes(b))
            .collect(),
    }
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.as_chunks().0.iter().map(|&b| u16::from_ne_bytes(b))
}
