//! Operations that a GEMM fuses before it writes its result.

use hipvit_sys::hipblaslt::hipblasLtEpilogue_t;

/// Operation on the result of a GEMM before it is written. The bias is a vector of `n` elements. Its dtype is that of the output, or
/// [`Gemm::wide`](super::Gemm::wide) if A and B are E4M3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// No operation.
    None,
    /// Adds the bias.
    Bias,
    /// GELU in the tanh form.
    Gelu,
    /// Adds the bias, then GELU in the tanh form.
    BiasGelu,
    /// Adds the bias, then ReLU.
    BiasRelu,
}

impl Epilogue {
    pub(super) fn has_bias(self) -> bool {
        matches!(self, Self::Bias | Self::BiasGelu | Self::BiasRelu)
    }

    pub(super) fn raw(self) -> hipblasLtEpilogue_t {
        match self {
            Self::None => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_DEFAULT,
            Self::Bias => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_BIAS,
            Self::Gelu => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU,
            Self::BiasGelu => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU_BIAS,
            Self::BiasRelu => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_RELU_BIAS,
        }
    }
}
