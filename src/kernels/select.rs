//! Selection among the builtin kernels for a call, by the device.

use super::bindings::PagedAttentionArgs;
use super::generated_call::GeneratedCall;
use super::{KernelCall, Kernels};

impl Kernels {
    /// Returns the kernel that computes `call` fastest on the device. With `reproducible`, the choice does not depend on the batch size.
    ///
    /// Attention whose blocks would leave most compute units idle uses another kernel, after a rotation. On NVIDIA GPUs, a separate kernel
    /// always rotates. Blocks share the keys of paged attention of few rows.
    pub(crate) fn select(
        &self,
        call: KernelCall,
        reproducible: bool,
    ) -> impl Iterator<Item = KernelCall> + use<> {
        let (element, compute_units) = (self.dtype.size(), self.device.properties().compute_units);
        let (before, kernel) = match call {
            KernelCall::Attention(arguments) if !reproducible => {
                let split = arguments.split(element, compute_units);
                (None, split.map_or(call, KernelCall::from))
            }
            KernelCall::AttentionRope(arguments) => {
                let split = arguments.attention.split(element, compute_units);
                match split.filter(|_| !reproducible) {
                    Some(split) => (Some(arguments.rope.into()), split.into()),
                    // Tiles are copied to LDS without registers, so a rotation would be another pass over them. DINOv3-B at batch 64 in
                    // bf16 would take 6.81 ms instead of 6.73, EVA-02-B 8.29 instead of 8.26 (H200, CUDA 13.1).
                    None if self.device.properties().arch().starts_with("sm_") => {
                        (Some(arguments.rope.into()), arguments.attention.into())
                    }
                    None => (None, call),
                }
            }
            KernelCall::PagedAttention(arguments) => (None, self.paged(arguments, reproducible).into()),
            _ => (None, call),
        };
        before.into_iter().chain([kernel])
    }

    /// Returns a launch of a generated program as the device computes it fastest. See [`select`](Self::select).
    pub(crate) fn select_generated(&self, call: &GeneratedCall, reproducible: bool) -> GeneratedCall {
        call.with_paged(|arguments| self.paged(arguments, reproducible))
    }

    fn paged(&self, arguments: PagedAttentionArgs, reproducible: bool) -> PagedAttentionArgs {
        if reproducible {
            arguments.whole()
        } else {
            arguments.split(self.device.properties().compute_units)
        }
    }
}
