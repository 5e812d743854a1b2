//! Element types.

use std::fmt;

/// The element types that activations and weights can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// Unsigned bytes: pixels before normalisation.
    U8,
    /// Signed bytes: weights that are multiplied by a scale for each row.
    I8,
    /// 8-bit floating point, E4M3 in OCP's encoding (gfx950, gfx12, NVIDIA from compute capability 8.9).
    F8E4M3,
    /// E4M3 in the FNUZ encoding of gfx942: the same bits are half the value.
    F8E4M3Fnuz,
    /// Signed 32-bit integers: what a GEMM of bytes sums.
    I32,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// bfloat16: single precision's exponent, 8 bits of significand.
    BF16,
}

impl DType {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::F8E4M3 | Self::F8E4M3Fnuz => 1,
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
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
        })
    }
}
