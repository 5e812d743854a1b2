//! Names of the dtypes that a model can compute in.

use std::str::FromStr;

use crate::dtype::DType;
use crate::error::{Error, Result};

/// Dtypes that a model can compute in, each with its accepted names. [`Display`](std::fmt::Display) writes the first name.
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
/// # fn main() -> hipvit_graph::Result<()> {
/// use hipvit_graph::DType;
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
