//! Names of element types.

/// Returns the name that numpy and torch give an element type.
pub fn long_name(dtype: hipvit::DType) -> &'static str {
    match dtype {
        hipvit::DType::F16 => "float16",
        hipvit::DType::BF16 => "bfloat16",
        _ => "float32",
    }
}
