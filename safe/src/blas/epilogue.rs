//! Operations that a GEMM fuses before it writes its result.

use hipvit_sys::hipblaslt::hipblasLtEpilogue_t;

use super::Gemm;

/// Operation on the result of a GEMM before it is written. The bias is a vector of `n` elements, unless noted. Its dtype is that of the output, or
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
    /// Writes the sums of A's rows to the bias, of `m` elements: the gradient of a bias, if A is that of the biased rows, transposed.
    BiasGradient,
}

impl Epilogue {
    pub(super) fn has_bias(self) -> bool {
        !matches!(self, Self::None | Self::Gelu)
    }

    /// Returns the elements of the bias.
    pub(super) fn bias_elements(self, gemm: &Gemm) -> usize {
        match self {
            Self::BiasGradient => gemm.m,
            _ => gemm.n,
        }
    }

    pub(super) fn raw(self) -> hipblasLtEpilogue_t {
        match self {
            Self::None => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_DEFAULT,
            Self::Bias => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_BIAS,
            Self::Gelu => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU,
            Self::BiasGelu => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU_BIAS,
            Self::BiasRelu => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_RELU_BIAS,
            // The library's B is A.
            Self::BiasGradient => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_BGRADB,
        }
    }
}
