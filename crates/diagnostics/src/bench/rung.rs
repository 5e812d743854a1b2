//! Rungs of the ladder.

use hipvit::session::Device;
use hipvit::tensor::DType;

/// Rungs in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// f32, without fusion, eager launches, no reuse of memory.
    Naive,
    /// The row's dtype.
    Precision,
    /// Attention as one kernel.
    FusedAttention,
    /// Graph passes that pack, fold and fuse.
    Fusion,
    /// Bias, activation and residual in the GEMM.
    Epilogues,
    /// One arena whose memory is reused.
    MemoryPlan,
    /// Replay of captured graphs.
    Graphs,
    /// Measured selection among candidate kernels.
    Selection,
    /// Several batches in flight.
    Overlap,
}

impl Rung {
    /// All rungs.
    pub const ALL: [Self; 9] = [
        Self::Naive,
        Self::Precision,
        Self::FusedAttention,
        Self::Fusion,
        Self::Epilogues,
        Self::MemoryPlan,
        Self::Graphs,
        Self::Selection,
        Self::Overlap,
    ];

    /// Returns the name of the rung in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Precision => "dtype",
            Self::FusedAttention => "fused attention",
            Self::Fusion => "graph passes",
            Self::Epilogues => "epilogues",
            Self::MemoryPlan => "memory plan",
            Self::Graphs => "HIP graphs",
            Self::Selection => "selection",
            Self::Overlap => "overlap",
        }
    }

    /// Returns true if the rung differs from the previous one on this device in this dtype. The CPU has only
    /// f32 and one implementation of each op.
    pub fn applies(self, device: Device, dtype: DType) -> bool {
        match self {
            Self::Precision => dtype != DType::F32,
            _ => !self.needs_gpu() || device != Device::Cpu,
        }
    }

    /// Returns true if the CPU does not have the rung.
    pub fn needs_gpu(self) -> bool {
        matches!(
            self,
            Self::FusedAttention | Self::Epilogues | Self::Graphs | Self::Selection
        )
    }

    pub(super) fn reached(self, rung: Self) -> bool {
        self as usize >= rung as usize
    }
}
