//! Element types of tensors.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

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
    /// Returns the format with the encoding of an E4M3 format that has two bits of mantissa: E5M2. `None` for other dtypes.
    #[must_use]
    pub const fn e5m2(self) -> Option<Self> {
        match self {
            Self::F8E4M3 => Some(Self::F8E5M2),
            Self::F8E4M3Fnuz => Some(Self::F8E5M2Fnuz),
            _ => None,
        }
    }

    /// Returns the size of an element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::F8E4M3 | Self::F8E4M3Fnuz | Self::F8E5M2 | Self::F8E5M2Fnuz => 1,
            Self::F16 | Self::BF16 => 2,
            Self::F32 | Self::I32 => 4,
        }
    }
}

/// Dtypes that a model can compute in, each with its accepted names. [`Display`](fmt::Display) writes the first name.
const PRECISIONS: [(DType, &[&str]); 3] = [
    (DType::F32, &["f32", "float32", "fp32", "float"]),
    (DType::F16, &["f16", "float16", "fp16", "half"]),
    (DType::BF16, &["bf16", "bfloat16"]),
];

/// Parses the name of a dtype that a model can compute in. Case is ignored, and the prefix `torch.` is optional.
///
/// The names are `f32`, `float32`, `fp32`, `float`, `f16`, `float16`, `fp16`, `half`, `bf16` and `bfloat16`.
///
/// ```
/// # fn main() -> hip_safe::Result<()> {
/// use hip_safe::DType;
///
/// assert_eq!("torch.bfloat16".parse::<DType>()?, DType::BF16);
/// assert_eq!("FP16".parse::<DType>()?, DType::F16);
/// # Ok(()) }
/// ```
impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_prefix("torch.").unwrap_or(&lower);
        let found = PRECISIONS.iter().find(|(_, names)| names.contains(&name));
        found.map(|&(dtype, _)| dtype).ok_or_else(|| {
            let names = PRECISIONS.map(|(_, names)| format!("{} ({})", names[0], names[1..].join(", ")));
            Error::argument(
                "dtype",
                format_args!("`{text}` is not one of {}", names.join(", ")),
            )
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_libraries_are_parsed() {
        for (dtype, names) in PRECISIONS {
            assert_eq!(names[0], dtype.to_string());
            for name in names {
                for text in [
                    (*name).to_owned(),
                    name.to_uppercase(),
                    format!("torch.{name}"),
                    format!("Torch.{name}"),
                ] {
                    assert_eq!(text.parse::<DType>().unwrap(), dtype, "{text}");
                }
            }
        }
        for wrong in ["", "f64", "double", "int8", "u8", "torch.", "tf32", " f32"] {
            let error = wrong.parse::<DType>().unwrap_err().to_string();
            assert!(
                error.contains(&format!(
                    "`{wrong}` is not one of f32 (float32, fp32, float), f16 ("
                )),
                "{error}"
            );
        }
    }
}
