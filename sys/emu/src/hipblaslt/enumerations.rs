//! Values of hipBLASLt's enumerations that the emulator supports.

use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipblaslt::{hipblasOperation_t, hipblasStatus_t};

use crate::compute::{Element, Encoding, Float8};

/// True for the two transposing operations, which are the same for real numbers.
pub(super) fn is_transposed(operation: u32) -> Result<bool, hipblasStatus_t> {
    match hipblasOperation_t(operation) {
        hipblasOperation_t::HIPBLAS_OP_N => Ok(false),
        hipblasOperation_t::HIPBLAS_OP_T | hipblasOperation_t::HIPBLAS_OP_C => Ok(true),
        _ => Err(hipblasStatus_t::HIPBLAS_STATUS_INVALID_ENUM),
    }
}

/// Returns the element type of a value.
pub(super) fn element(datatype: hipDataType) -> Result<Element, hipblasStatus_t> {
    Ok(match datatype {
        hipDataType::HIP_R_16F => Element::F16,
        hipDataType::HIP_R_16BF => Element::Bf16,
        hipDataType::HIP_R_32F => Element::F32,
        hipDataType::HIP_R_64F => Element::F64,
        hipDataType::HIP_R_8I => Element::I8,
        hipDataType::HIP_R_32I => Element::I32,
        hipDataType::HIP_R_8F_E4M3 => Element::F8(Float8::e4m3(Encoding::Ocp)),
        hipDataType::HIP_R_8F_E4M3_FNUZ => Element::F8(Float8::e4m3(Encoding::Fnuz)),
        hipDataType::HIP_R_8F_E5M2 => Element::F8(Float8::e5m2(Encoding::Ocp)),
        hipDataType::HIP_R_8F_E5M2_FNUZ => Element::F8(Float8::e5m2(Encoding::Fnuz)),
        _ => return Err(hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED),
    })
}

/// The encoding of 8-bit floats that an architecture multiplies.
pub(super) fn float8(arch: &str) -> Option<Encoding> {
    match arch {
        "gfx940" | "gfx941" | "gfx942" => Some(Encoding::Fnuz),
        "gfx950" | "gfx1200" | "gfx1201" => Some(Encoding::Ocp),
        _ => None,
    }
}
