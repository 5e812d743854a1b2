//! Conversion between the element types of graphs and of the HIP layer.

use crate::hip;
use crate::tensor::DType;

/// Returns the HIP layer's type of elements of type `dtype`.
pub fn to_hip(dtype: DType) -> hip::DType {
    match dtype {
        DType::U8 => hip::DType::U8,
        DType::I8 => hip::DType::I8,
        DType::F8E4M3 => hip::DType::F8E4M3,
        DType::F8E4M3Fnuz => hip::DType::F8E4M3Fnuz,
        DType::F8E5M2 => hip::DType::F8E5M2,
        DType::F8E5M2Fnuz => hip::DType::F8E5M2Fnuz,
        DType::I32 => hip::DType::I32,
        DType::F32 => hip::DType::F32,
        DType::F16 => hip::DType::F16,
        DType::BF16 => hip::DType::BF16,
    }
}

/// Returns the graphs' type of elements of the HIP layer's type `dtype`.
pub fn from_hip(dtype: hip::DType) -> DType {
    match dtype {
        hip::DType::U8 => DType::U8,
        hip::DType::I8 => DType::I8,
        hip::DType::F8E4M3 => DType::F8E4M3,
        hip::DType::F8E4M3Fnuz => DType::F8E4M3Fnuz,
        hip::DType::F8E5M2 => DType::F8E5M2,
        hip::DType::F8E5M2Fnuz => DType::F8E5M2Fnuz,
        hip::DType::I32 => DType::I32,
        hip::DType::F32 => DType::F32,
        hip::DType::F16 => DType::F16,
        hip::DType::BF16 => DType::BF16,
    }
}
