//! Element types of tensors.

use std::fmt;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// Unsigned 8-bit integer, used for pixels before normalisation.
    U8,
    /// Signed 8-bit integer, used for weights with one scale per row.
    I8,
    /// 8-bit floating point, E4M3 in OCP's encoding. Supported by gfx950, gfx12, and NVIDIA GPUs of compute capability 8.9 or higher.
    F8E4M3,
    /// 8-bit floating point, E4M3 in the FNUZ encoding of gfx942. A bit pattern has half the value that it has in [`DType::F8E4M3`].
    F8E4M3Fnuz,
    /// 8-bit floating point, E5M2 in OCP's encoding. Supported by the GPUs that support [`DType::F8E4M3`]. Used for gradients.
    F8E5M2,
    /// 8-bit floating point, E5M2 in the FNUZ encoding of gfx942. A bit pattern has half the value that it has in [`DType::F8E5M2`].
    F8E5M2Fnuz,
    /// Signed 32-bit integer, used for the accumulators of an int8 GEMM.
    I32,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: the exponent range of f32, with 8 bits of significand.
    BF16,
}

impl DType {
    /// Returns the size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::F8E4M3 | Self::F8E4M3Fnuz | Self::F8E5M2 | Self::F8E5M2Fnuz => 1,
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::I32 => 4,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::F8E4M3 => "f8e4m3",
            Self::F8E4M3Fnuz => "f8e4m3fnuz",
            Self::F8E5M2 => "f8e5m2",
            Self::F8E5M2Fnuz => "f8e5m2fnuz",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
        })
    }
}
