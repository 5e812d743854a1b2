//! Optimisations that can be disabled one by one.

/// Optimisations for speed or memory. Each can be disabled to measure its gain: `hipvit bench --ladder`. Results stay within the tolerance
/// of the dtype. All are enabled by default. The replay of HIP graphs is an option of executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Optimizations {
    /// Fold scales, prune tokens, pack Q, K and V, and fuse activations and residuals into linear layers.
    pub fusion: bool,
    /// Compute attention in one kernel, instead of two GEMMs per head and a softmax. GPUs only.
    pub fused_attention: bool,
    /// Compute bias, activation and residual in the epilogue of a GEMM, if a library has it. GPUs only.
    pub epilogues: bool,
    /// Reuse the arena's memory of activations that are no longer needed, and let results overwrite operands.
    pub memory_reuse: bool,
    /// Use the measured candidate for a step instead of the default one. GPUs only.
    pub selection: bool,
}

impl Default for Optimizations {
    fn default() -> Self {
        Self {
            fusion: true,
            fused_attention: true,
            epilogues: true,
            memory_reuse: true,
            selection: true,
        }
    }
}

impl Optimizations {
    /// No optimisation.
    pub const NONE: Self = Self {
        fusion: false,
        fused_attention: false,
        epilogues: false,
        memory_reuse: false,
        selection: false,
    };
}
