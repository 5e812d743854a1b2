//! The builtin kernels: fused attention and its tiles, the patch matrix, GEMMs with 2:4 sparse or int8 weights or few rows.

use super::{Call, Called, Candidate, Choice, SelectOptions, Submitter, linear, unusable};
use crate::error::{Error, Result};
use crate::kernels::{KernelCall, KernelError, Kernels, has_int8_gemm};

/// The builtin kernels.
pub(in crate::exec::hip) struct Builtin {
    /// True if the GPU has matrix instructions for int8.
    int8: bool,
}

impl Builtin {
    pub(in crate::exec::hip) fn new(arch: &str) -> Self {
        Self {
            int8: has_int8_gemm(arch),
        }
    }

    /// Returns the calls that compute `call`. `None` if it is the kernel of a linear layer.
    fn parts(choice: Choice, call: &Call) -> Option<Result<Vec<Call>, KernelError>> {
        match (choice, call) {
            (Choice::Builtin, call) => Some(call.own()),
            (Choice::Tile(tile), Call::PatternAttention(call)) => Some(Ok(call.calls(Some(tile)))),
            _ => None,
        }
    }

    /// Returns the kernel of a linear layer.
    fn gemm(choice: Choice, call: &Call) -> Result<KernelCall, KernelError> {
        let linear = linear(call)?;
        match choice {
            Choice::SparseGemm => Ok(linear.packed()?.into()),
            Choice::Gemv => Ok(linear.few_rows()?.into()),
            _ => Ok(linear.bytes()?.into()),
        }
    }
}

impl Candidate for Builtin {
    fn choices(&mut self, call: &Call, _options: SelectOptions) -> Vec<Choice> {
        let Call::Linear(linear) = call else {
            return vec![Choice::Builtin];
        };
        let shape = linear.shape();
        let int8 = (shape.int8.is_some() && self.int8).then_some(Choice::Int8);
        let sparse = (shape.int8.is_none() && shape.sparse).then_some(Choice::SparseGemm);
        let gemv = shape.has_few_rows().then_some(Choice::Gemv);
        int8.into_iter().chain(sparse).chain(gemv).collect()
    }

    fn prepare(&mut self, _choice: Choice, _call: &Call, _reproducible: bool) -> Result<(), KernelError> {
        Ok(())
    }

    fn submit(&mut self, choice: Choice, call: &Call, to: &mut Submitter<'_>) -> Result<Vec<Call>> {
        let parts = match call {
            // Libraries choose by the number of rows.
            Call::Conv(conv) if to.reproducible => Some(conv.own_by_image()),
            call => Self::parts(choice, call),
        };
        if let Some(parts) = parts {
            return parts.map_err(|reason| Error::kernel("call", reason));
        }
        to.launch(Self::gemm(choice, call).map_err(unusable)?)?;
        Ok(Vec::new())
    }

    fn describe(&self, choice: Choice, call: &Call, kernels: &Kernels) -> (Vec<Called>, Vec<Call>) {
        if let Some(parts) = Self::parts(choice, call) {
            return (Vec::new(), parts.unwrap_or_default());
        }
        let kernel = Self::gemm(choice, call).ok();
        let called = kernel.map(|kernel| Called::kernel(kernel, kernels));
        (called.into_iter().collect(), Vec::new())
    }
}
