//! Algorithms. cuBLASLt's has 64 bytes and hipBLASLt's only 16, so the first 8 hold an index into a table of cuBLASLt's
//! algorithms. Equal algorithms share an index, so the table does not grow with the number of searches.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use cudarc::cublaslt::sys::{cublasLtMatmulAlgo_t, cublasLtMatmulHeuristicResult_t};
use hipvit_sys::hipblaslt::{hipblasLtMatmulAlgo_t, hipblasLtMatmulHeuristicResult_t, hipblasStatus_t};

/// Marks an algorithm as one of those kept here, so that other bytes are not mistaken for an index.
const MARK: u64 = 0x6875_6261_5F6C_7401;

#[derive(Default)]
struct Kept {
    algorithms: Vec<[u64; 8]>,
    numbers: HashMap<[u64; 8], usize>,
}

static KEPT: RwLock<Option<Kept>> = RwLock::new(None);

fn keep(algorithm: [u64; 8]) -> usize {
    let mut kept = KEPT.write().unwrap_or_else(PoisonError::into_inner);
    let Kept { algorithms, numbers } = kept.get_or_insert_default();
    *numbers.entry(algorithm).or_insert_with(|| {
        algorithms.push(algorithm);
        algorithms.len() - 1
    })
}

/// cuBLASLt's result as hipBLASLt's.
///
/// # Safety
/// cuBLASLt wrote the result.
pub(super) unsafe fn result(
    found: *const cublasLtMatmulHeuristicResult_t,
) -> hipblasLtMatmulHeuristicResult_t {
    // SAFETY: fields of the result; the status is read as a number, as any may be there.
    let (algorithm, workspace, status, waves) = unsafe {
        (
            (*found).algo.data,
            (*found).workspaceSize,
            (&raw const (*found).state).cast::<u32>().read(),
            (*found).wavesCount,
        )
    };
    hipblasLtMatmulHeuristicResult_t {
        algo: numbered(keep(algorithm), workspace),
        workspaceSize: workspace,
        state: super::status::translate(status),
        wavesCount: waves,
        reserved: [0; 4],
    }
}

fn numbered(number: usize, workspace: usize) -> hipblasLtMatmulAlgo_t {
    let mut data = [0; 16];
    data[..8].copy_from_slice(&MARK.to_ne_bytes());
    data[8..].copy_from_slice(&(number as u64).to_ne_bytes());
    hipblasLtMatmulAlgo_t {
        data,
        max_workspace_bytes: workspace,
    }
}

/// The algorithm of an index.
pub(super) fn known(algorithm: &hipblasLtMatmulAlgo_t) -> Result<cublasLtMatmulAlgo_t, hipblasStatus_t> {
    let (mark, number) = algorithm.data.split_at(8);
    if mark != MARK.to_ne_bytes() {
        return Err(hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE);
    }
    let number = number.try_into().map(u64::from_ne_bytes).unwrap_or(u64::MAX);
    let kept = KEPT.read().unwrap_or_else(PoisonError::into_inner);
    kept.as_ref()
        .and_then(|kept| kept.algorithms.get(usize::try_from(number).ok()?))
        .map(|data| cublasLtMatmulAlgo_t { data: *data })
        .ok_or(hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_algorithm_comes_back_whole_and_is_kept_once() {
        let (first, second) = ([1; 8], [2; 8]);
        let number = keep(first);
        assert_ne!(keep(second), number);
        assert_eq!(keep(first), number);
        assert_eq!(
            known(&numbered(number, 0)).map(|algorithm| algorithm.data),
            Ok(first)
        );
    }

    #[test]
    fn bytes_that_are_no_algorithm_are_invalid() {
        let invalid = Err(hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE);
        assert_eq!(known(&hipblasLtMatmulAlgo_t::default()), invalid);
        assert_eq!(known(&numbered(usize::MAX, 0)), invalid);
    }
}
