//! Algorithms. There are two, whose results may differ in the last bit, as those of the real library do. The real library's
//! kernels either multiply by scales or do not, so one that was chosen before the scales were set would leave them out. So each
//! algorithm is for problems with certain scales, and other calls are refused.

use hipvit_sys::hipblaslt::{hipblasLtMatmulAlgo_t, hipblasLtMatmulHeuristicResult_t, hipblasStatus_t};

/// Identifies algorithms of this library.
const MARK: u64 = 0x6869_705F_656D_7501;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    /// One sum over `k`. Needs no workspace.
    Whole,
    /// Split k: sums over both halves. The workspace holds the first.
    Split,
}

impl Algorithm {
    /// All, the likely fastest first.
    pub(super) const ALL: [Self; 2] = [Self::Whole, Self::Split];

    /// Bytes of workspace for `count` results.
    pub(super) fn workspace(self, count: usize) -> usize {
        match self {
            Self::Whole => 0,
            Self::Split => count * size_of::<f32>(),
        }
    }

    /// Returns the result for a problem of `count` results with these [scales](super::matmul::Problem::scaling).
    pub(super) fn result(self, count: usize, scaling: u64) -> hipblasLtMatmulHeuristicResult_t {
        let number: u64 = match self {
            Self::Whole => 0,
            Self::Split => 1,
        };
        let workspace = self.workspace(count);
        let mut data = [0; 16];
        data[..8].copy_from_slice(&MARK.to_ne_bytes());
        data[8..].copy_from_slice(&(scaling << 1 | number).to_ne_bytes());
        hipblasLtMatmulHeuristicResult_t {
            algo: hipblasLtMatmulAlgo_t {
                data,
                max_workspace_bytes: workspace,
            },
            workspaceSize: workspace,
            state: hipblasStatus_t::HIPBLAS_STATUS_SUCCESS,
            wavesCount: 1.0,
            reserved: [0; 4],
        }
    }

    /// The algorithm that a caller got from the heuristics, if it was for such scales.
    pub(super) fn known(algorithm: &hipblasLtMatmulAlgo_t, scaling: u64) -> Result<Self, hipblasStatus_t> {
        let known = Self::ALL
            .into_iter()
            .find(|known| known.result(0, scaling).algo.data == algorithm.data);
        known.ok_or(hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_bytes_are_not_an_algorithm() {
        let refused = Err(hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE);
        for algorithm in Algorithm::ALL {
            let of_scaling = algorithm.result(7, 3).algo;
            assert_eq!(Algorithm::known(&of_scaling, 3), Ok(algorithm));
            assert_eq!(Algorithm::known(&of_scaling, 0), refused);
        }
        assert_eq!(Algorithm::known(&hipblasLtMatmulAlgo_t::default(), 0), refused);
    }
}
