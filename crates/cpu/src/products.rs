//! Precision of the products in linear layers and attention.

#[cfg(target_arch = "x86_64")]
use super::bf16;
use hipvit_graph::tensor::DType;

/// Operands of the products in linear layers and attention.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Products {
    /// f32.
    F32,
    /// Rounded to bf16.
    #[cfg(target_arch = "x86_64")]
    Bf16(bf16::Isa),
}

impl Products {
    /// Returns the operands for a compute precision. Uses bf16 only if the processor has instructions for it.
    pub(crate) fn new(dtype: DType) -> Self {
        match dtype {
            #[cfg(target_arch = "x86_64")]
            DType::BF16 => bf16::Isa::best().map_or(Self::F32, Self::Bf16),
            _ => Self::F32,
        }
    }
}
