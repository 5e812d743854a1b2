//! Names of dtypes.

/// Returns the name of a dtype in numpy and torch.
pub fn long_name(dtype: hipvit::DType) -> &'static str {
    match dtype {
        hipvit::DType::F16 => "float16",
        hipvit::DType::BF16 => "bfloat16",
        _ => "float32",
    }
}
