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
    /// Writes the sum to the auxiliary matrix, then GELU in the tanh form.
    GeluAux,
    /// Adds the bias, writes the sum to the auxiliary matrix, then GELU in the tanh form.
    BiasGeluAux,
    /// Multiplies by the derivative of GELU in the tanh form at the auxiliary matrix.
    GeluGradient,
    /// Writes the sums of A's rows to the bias, of `m` elements: the gradient of a bias, if A is that of the biased rows, transposed.
    BiasGradient,
}

impl Epilogue {
    pub(super) fn has_bias(self) -> bool {
        !matches!(self, Self::None | Self::Gelu | Self::GeluAux | Self::GeluGradient)
    }

    /// Returns true if the epilogue reads or writes an auxiliary matrix, which has the dtype and layout of the result.
    pub(super) fn has_aux(self) -> bool {
        self.writes_aux() || self == Self::GeluGradient
    }

    pub(super) fn writes_aux(self) -> bool {
        matches!(self, Self::GeluAux | Self::BiasGeluAux)
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
            Self::GeluAux => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU_AUX,
            Self::BiasGeluAux => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU_AUX_BIAS,
            Self::GeluGradient => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_DGELU,
            // The library's B is A.
            Self::BiasGradient => hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_BGRADB,
        }
    }
}
