//! Replaces calls of MIOpen by calls of builtin kernels.

use super::KernelError;
use super::call::Call;
use super::lower::one;

impl Call {
    /// Replaces MIOpen's part of the call by builtin kernels.
    pub(crate) fn own(&self) -> Result<Vec<Self>, KernelError> {
        match self {
            Self::Patches(call) => one(call.extract),
            Self::Projection(call) => one(Self::Linear(call.linear)),
            Self::Attention(call) => call.own(),
            Self::PatternAttention(call) => Ok(call.calls(None)),
            Self::Conv(call) => call.own(),
            call => one(call.clone()),
        }
    }
}
