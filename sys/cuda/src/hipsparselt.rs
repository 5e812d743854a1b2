//! hipSPARSELt on cuSPARSELt from 0.5. The functions, their arguments and most values are the same; the others are mapped. cudarc
//! has no cuSPARSELt, so the function types are hipSPARSELt's, whose handles and enumerations C passes alike.
//!
//! A handle or descriptor is the caller's memory, which hipSPARSELt makes larger than cuSPARSELt needs; cuSPARSELt wants it aligned to
//! 16 bytes.

use std::ffi::c_void;

use hip_provider::export;
use hip_provider::hipsparselt::run;
use hipvit_sys::hip::{hipDataType, hipStream_t};
use hipvit_sys::hipsparselt::{
    hipsparseLtComputetype_t, hipsparseLtHandle_t, hipsparseLtMatDescAttribute_t, hipsparseLtMatDescriptor_t,
    hipsparseLtMatmulAlg_t, hipsparseLtMatmulAlgAttribute_t, hipsparseLtMatmulAlgSelection_t,
    hipsparseLtMatmulDescAttribute_t, hipsparseLtMatmulDescriptor_t, hipsparseLtMatmulPlan_t,
    hipsparseLtPruneAlg_t, hipsparseLtSparsity_t, hipsparseOperation_t, hipsparseOrder_t, hipsparseStatus_t,
    prototypes,
};

use crate::hip::bound;
use crate::library::{CUSPARSELT, Missing, Symbol};

const INVALID: hipsparseStatus_t = hipsparseStatus_t::HIPSPARSE_STATUS_INVALID_VALUE;
const NOT_INITIALIZED: hipsparseStatus_t = hipsparseStatus_t::HIPSPARSE_STATUS_NOT_INITIALIZED;
const NOT_SUPPORTED: hipsparseStatus_t = hipsparseStatus_t::HIPSPARSE_STATUS_NOT_SUPPORTED;

/// Maximum number of algorithms to report. cuSPARSELt 0.8.0 counts 52 for f16, and the algorithms from this index on fault on an
/// H200. For bf16 it has 21.
const ALGORITHMS: i32 = 36;

/// The first version whose compute types have the numbers below.
const OLDEST: i32 = 500;

/// cuSPARSELt's statuses are cuSPARSE's, whose numbers are hipSPARSE's.
fn check(called: Result<hipsparseStatus_t, Missing>) -> Result<(), hipsparseStatus_t> {
    match called {
        Ok(hipsparseStatus_t::HIPSPARSE_STATUS_SUCCESS) => Ok(()),
        Ok(status) => Err(status),
        Err(Missing::Library) => Err(NOT_INITIALIZED),
        Err(Missing::Function) => Err(NOT_SUPPORTED),
    }
}

/// Runs an exported function that works on the thread's device.
fn on_device(body: impl FnOnce() -> Result<(), hipsparseStatus_t>) -> hipsparseStatus_t {
    run(|| {
        bound().map_err(|_| NOT_INITIALIZED)?;
        body()
    })
}

/// Calls a function of cuSPARSELt by the type of hipSPARSELt's. Use it inside an unsafe block.
macro_rules! sparse {
    ($cuda:ident as $hip:ident($($argument:expr),* $(,)?)) => {{
        static SYMBOL: Symbol = Symbol::new(&CUSPARSELT, stringify!($cuda));
        match SYMBOL.function::<prototypes::$hip>() {
            Ok(function) => check(Ok(function($($argument),*))),
            Err(missing) => check(Err(missing)),
        }
    }};
}

/// Memory for one of cuSPARSELt's objects.
fn aligned<T>(object: *const T) -> Result<(), hipsparseStatus_t> {
    if !object.is_null() && object.addr().is_multiple_of(16) {
        Ok(())
    } else {
        Err(INVALID)
    }
}

/// An element type's value: CUDA's and HIP's are the same, except AMD's own types, which are above them.
fn datatype(datatype: hipDataType) -> Result<hipDataType, hipsparseStatus_t> {
    if datatype.0 < 1000 {
        Ok(datatype)
    } else {
        Err(NOT_SUPPORTED)
    }
}

fn compute(of: hipsparseLtComputetype_t) -> Result<hipsparseLtComputetype_t, hipsparseStatus_t> {
    use hipsparseLtComputetype_t as Hip;
    Ok(hipsparseLtComputetype_t(match of {
        Hip::HIPSPARSELT_COMPUTE_32I => 0,
        Hip::HIPSPARSELT_COMPUTE_16F => 1,
        Hip::HIPSPARSELT_COMPUTE_32F => 2,
        _ => return Err(NOT_SUPPORTED),
    }))
}

/// The activations, factors and the bias have cuSPARSELt's numbers, AMD's own attributes are above them.
fn of_matmul(
    of: hipsparseLtMatmulDescAttribute_t,
) -> Result<hipsparseLtMatmulDescAttribute_t, hipsparseStatus_t> {
    use hipsparseLtMatmulDescAttribute_t as Hip;
    match of {
        Hip::HIPSPARSELT_MATMUL_SPARSE_MAT_POINTER => Ok(hipsparseLtMatmulDescAttribute_t(9)),
        _ if of.0 <= Hip::HIPSPARSELT_MATMUL_BIAS_POINTER.0 => Ok(of),
        _ => Err(NOT_SUPPORTED),
    }
}

/// The numbers are cuSPARSELt's, but for the modes of splitting k, which it counts from 1: they are left out.
fn of_algorithm(of: hipsparseLtMatmulAlgAttribute_t) -> Result<(), hipsparseStatus_t> {
    match of {
        hipsparseLtMatmulAlgAttribute_t::HIPSPARSELT_MATMUL_SPLIT_K_MODE => Err(NOT_SUPPORTED),
        _ => Ok(()),
    }
}

export! { hipsparselt, hipsparseStatus_t, on_device;
    fn hipsparseLtInit(handle: *mut hipsparseLtHandle_t) {
        aligned(handle)?;
        sparse!(cusparseLtInit as hipsparseLtInit(handle))?;
        let mut version = 0;
        let read = sparse!(cusparseLtGetVersion as hipsparseLtGetVersion(handle, &mut version));
        if read.is_err() || version < OLDEST {
            sparse!(cusparseLtDestroy as hipsparseLtDestroy(handle))?;
            return Err(NOT_SUPPORTED);
        }
        Ok(())
    }

    fn hipsparseLtDestroy(handle: *const hipsparseLtHandle_t) {
        sparse!(cusparseLtDestroy as hipsparseLtDestroy(handle))
    }

    /// cuSPARSELt's version, such as 801 for 0.8.1.
    fn hipsparseLtGetVersion(handle: *const hipsparseLtHandle_t, version: *mut i32) {
        sparse!(cusparseLtGetVersion as hipsparseLtGetVersion(handle, version))
    }

    fn hipsparseLtDenseDescriptorInit(
        handle: *const hipsparseLtHandle_t, matrix: *mut hipsparseLtMatDescriptor_t, rows: i64, columns: i64,
        leading: i64, alignment: u32, kind: hipDataType, order: hipsparseOrder_t,
    ) {
        aligned(matrix)?;
        sparse!(cusparseLtDenseDescriptorInit as hipsparseLtDenseDescriptorInit(
            handle, matrix, rows, columns, leading, alignment, datatype(kind)?, order,
        ))
    }

    fn hipsparseLtStructuredDescriptorInit(
        handle: *const hipsparseLtHandle_t, matrix: *mut hipsparseLtMatDescriptor_t, rows: i64, columns: i64,
        leading: i64, alignment: u32, kind: hipDataType, order: hipsparseOrder_t, sparsity: hipsparseLtSparsity_t,
    ) {
        aligned(matrix)?;
        sparse!(cusparseLtStructuredDescriptorInit as hipsparseLtStructuredDescriptorInit(
            handle, matrix, rows, columns, leading, alignment, datatype(kind)?, order, sparsity,
        ))
    }

    fn hipsparseLtMatDescriptorDestroy(matrix: *const hipsparseLtMatDescriptor_t) {
        sparse!(cusparseLtMatDescriptorDestroy as hipsparseLtMatDescriptorDestroy(matrix))
    }

    fn hipsparseLtMatDescSetAttribute(
        handle: *const hipsparseLtHandle_t, matrix: *mut hipsparseLtMatDescriptor_t,
        attribute: hipsparseLtMatDescAttribute_t, from: *const c_void, size: usize,
    ) {
        sparse!(cusparseLtMatDescSetAttribute as hipsparseLtMatDescSetAttribute(handle, matrix, attribute, from, size))
    }

    fn hipsparseLtMatDescGetAttribute(
        handle: *const hipsparseLtHandle_t, matrix: *const hipsparseLtMatDescriptor_t,
        attribute: hipsparseLtMatDescAttribute_t, to: *mut c_void, size: usize,
    ) {
        sparse!(cusparseLtMatDescGetAttribute as hipsparseLtMatDescGetAttribute(handle, matrix, attribute, to, size))
    }

    fn hipsparseLtMatmulDescriptorInit(
        handle: *const hipsparseLtHandle_t, matmul: *mut hipsparseLtMatmulDescriptor_t,
        operation_a: hipsparseOperation_t, operation_b: hipsparseOperation_t, a: *const hipsparseLtMatDescriptor_t,
        b: *const hipsparseLtMatDescriptor_t, c: *const hipsparseLtMatDescriptor_t,
        d: *const hipsparseLtMatDescriptor_t, of: hipsparseLtComputetype_t,
    ) {
        aligned(matmul)?;
        sparse!(cusparseLtMatmulDescriptorInit as hipsparseLtMatmulDescriptorInit(
            handle, matmul, operation_a, operation_b, a, b, c, d, compute(of)?,
        ))
    }

    fn hipsparseLtMatmulDescSetAttribute(
        handle: *const hipsparseLtHandle_t, matmul: *mut hipsparseLtMatmulDescriptor_t,
        attribute: hipsparseLtMatmulDescAttribute_t, from: *const c_void, size: usize,
    ) {
        let set = sparse!(cusparseLtMatmulDescSetAttribute as hipsparseLtMatmulDescSetAttribute(
            handle, matmul, of_matmul(attribute)?, from, size,
        ));
        // The matrices' types lack this activation.
        let is_activation = attribute == hipsparseLtMatmulDescAttribute_t::HIPSPARSELT_MATMUL_ACTIVATION_GELU;
        set.map_err(|status| if is_activation && status == INVALID { NOT_SUPPORTED } else { status })
    }

    fn hipsparseLtMatmulDescGetAttribute(
        handle: *const hipsparseLtHandle_t, matmul: *const hipsparseLtMatmulDescriptor_t,
        attribute: hipsparseLtMatmulDescAttribute_t, to: *mut c_void, size: usize,
    ) {
        sparse!(cusparseLtMatmulDescGetAttribute as hipsparseLtMatmulDescGetAttribute(
            handle, matmul, of_matmul(attribute)?, to, size,
        ))
    }

    fn hipsparseLtMatmulAlgSelectionInit(
        handle: *const hipsparseLtHandle_t, algorithm: *mut hipsparseLtMatmulAlgSelection_t,
        matmul: *const hipsparseLtMatmulDescriptor_t, default: hipsparseLtMatmulAlg_t,
    ) {
        aligned(algorithm)?;
        sparse!(cusparseLtMatmulAlgSelectionInit as hipsparseLtMatmulAlgSelectionInit(
            handle, algorithm, matmul, default,
        ))
    }

    fn hipsparseLtMatmulAlgSetAttribute(
        handle: *const hipsparseLtHandle_t, algorithm: *mut hipsparseLtMatmulAlgSelection_t,
        attribute: hipsparseLtMatmulAlgAttribute_t, from: *const c_void, size: usize,
    ) {
        of_algorithm(attribute)?;
        sparse!(cusparseLtMatmulAlgSetAttribute as hipsparseLtMatmulAlgSetAttribute(
            handle, algorithm, attribute, from, size,
        ))
    }

    fn hipsparseLtMatmulAlgGetAttribute(
        handle: *const hipsparseLtHandle_t, algorithm: *const hipsparseLtMatmulAlgSelection_t,
        attribute: hipsparseLtMatmulAlgAttribute_t, to: *mut c_void, size: usize,
    ) {
        of_algorithm(attribute)?;
        sparse!(cusparseLtMatmulAlgGetAttribute as hipsparseLtMatmulAlgGetAttribute(
            handle, algorithm, attribute, to, size,
        ))?;
        if attribute == hipsparseLtMatmulAlgAttribute_t::HIPSPARSELT_MATMUL_ALG_CONFIG_MAX_ID {
            // The call above has written an int there.
            let count = to.cast::<i32>();
            count.write_unaligned(count.read_unaligned().min(ALGORITHMS));
        }
        Ok(())
    }

    fn hipsparseLtMatmulGetWorkspace(
        handle: *const hipsparseLtHandle_t, plan: *const hipsparseLtMatmulPlan_t, size: *mut usize,
    ) {
        sparse!(cusparseLtMatmulGetWorkspace as hipsparseLtMatmulGetWorkspace(handle, plan, size))
    }

    fn hipsparseLtMatmulPlanInit(
        handle: *const hipsparseLtHandle_t, plan: *mut hipsparseLtMatmulPlan_t,
        matmul: *const hipsparseLtMatmulDescriptor_t, algorithm: *const hipsparseLtMatmulAlgSelection_t,
    ) {
        aligned(plan)?;
        sparse!(cusparseLtMatmulPlanInit as hipsparseLtMatmulPlanInit(handle, plan, matmul, algorithm))
    }

    fn hipsparseLtMatmulPlanDestroy(plan: *const hipsparseLtMatmulPlan_t) {
        sparse!(cusparseLtMatmulPlanDestroy as hipsparseLtMatmulPlanDestroy(plan))
    }

    fn hipsparseLtMatmul(
        handle: *const hipsparseLtHandle_t, plan: *const hipsparseLtMatmulPlan_t, alpha: *const c_void,
        a: *const c_void, b: *const c_void, beta: *const c_void, c: *const c_void, d: *mut c_void,
        workspace: *mut c_void, streams: *mut hipStream_t, count: i32,
    ) {
        sparse!(cusparseLtMatmul as hipsparseLtMatmul(
            handle, plan, alpha, a, b, beta, c, d, workspace, streams, count,
        ))
    }

    fn hipsparseLtMatmulSearch(
        handle: *const hipsparseLtHandle_t, plan: *mut hipsparseLtMatmulPlan_t, alpha: *const c_void,
        a: *const c_void, b: *const c_void, beta: *const c_void, c: *const c_void, d: *mut c_void,
        workspace: *mut c_void, streams: *mut hipStream_t, count: i32,
    ) {
        sparse!(cusparseLtMatmulSearch as hipsparseLtMatmulSearch(
            handle, plan, alpha, a, b, beta, c, d, workspace, streams, count,
        ))
    }

    fn hipsparseLtSpMMAPrune(
        handle: *const hipsparseLtHandle_t, matmul: *const hipsparseLtMatmulDescriptor_t, from: *const c_void,
        to: *mut c_void, rule: hipsparseLtPruneAlg_t, stream: hipStream_t,
    ) {
        sparse!(cusparseLtSpMMAPrune as hipsparseLtSpMMAPrune(handle, matmul, from, to, rule, stream))
    }

    fn hipsparseLtSpMMAPruneCheck(
        handle: *const hipsparseLtHandle_t, matmul: *const hipsparseLtMatmulDescriptor_t, from: *const c_void,
        valid: *mut i32, stream: hipStream_t,
    ) {
        sparse!(cusparseLtSpMMAPruneCheck as hipsparseLtSpMMAPruneCheck(handle, matmul, from, valid, stream))
    }

    fn hipsparseLtSpMMAPrune2(
        handle: *const hipsparseLtHandle_t, matrix: *const hipsparseLtMatDescriptor_t, is_a: i32,
        operation: hipsparseOperation_t, from: *const c_void, to: *mut c_void, rule: hipsparseLtPruneAlg_t,
        stream: hipStream_t,
    ) {
        sparse!(cusparseLtSpMMAPrune2 as hipsparseLtSpMMAPrune2(
            handle, matrix, is_a, operation, from, to, rule, stream,
        ))
    }

    fn hipsparseLtSpMMAPruneCheck2(
        handle: *const hipsparseLtHandle_t, matrix: *const hipsparseLtMatDescriptor_t, is_a: i32,
        operation: hipsparseOperation_t, from: *const c_void, valid: *mut i32, stream: hipStream_t,
    ) {
        sparse!(cusparseLtSpMMAPruneCheck2 as hipsparseLtSpMMAPruneCheck2(
            handle, matrix, is_a, operation, from, valid, stream,
        ))
    }

    fn hipsparseLtSpMMACompressedSize(
        handle: *const hipsparseLtHandle_t, plan: *const hipsparseLtMatmulPlan_t, size: *mut usize,
        buffer: *mut usize,
    ) {
        sparse!(cusparseLtSpMMACompressedSize as hipsparseLtSpMMACompressedSize(handle, plan, size, buffer))
    }

    fn hipsparseLtSpMMACompress(
        handle: *const hipsparseLtHandle_t, plan: *const hipsparseLtMatmulPlan_t, from: *const c_void,
        to: *mut c_void, buffer: *mut c_void, stream: hipStream_t,
    ) {
        sparse!(cusparseLtSpMMACompress as hipsparseLtSpMMACompress(handle, plan, from, to, buffer, stream))
    }

    fn hipsparseLtSpMMACompressedSize2(
        handle: *const hipsparseLtHandle_t, matrix: *const hipsparseLtMatDescriptor_t, size: *mut usize,
        buffer: *mut usize,
    ) {
        sparse!(cusparseLtSpMMACompressedSize2 as hipsparseLtSpMMACompressedSize2(handle, matrix, size, buffer))
    }

    fn hipsparseLtSpMMACompress2(
        handle: *const hipsparseLtHandle_t, matrix: *const hipsparseLtMatDescriptor_t, is_a: i32,
        operation: hipsparseOperation_t, from: *const c_void, to: *mut c_void, buffer: *mut c_void,
        stream: hipStream_t,
    ) {
        sparse!(cusparseLtSpMMACompress2 as hipsparseLtSpMMACompress2(
            handle, matrix, is_a, operation, from, to, buffer, stream,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_renumbered() {
        use hipsparseLtComputetype_t as Compute;
        use hipsparseLtMatmulDescAttribute_t as Attribute;
        assert_eq!(
            compute(Compute::HIPSPARSELT_COMPUTE_32I),
            Ok(hipsparseLtComputetype_t(0))
        );
        assert_eq!(
            compute(Compute::HIPSPARSELT_COMPUTE_16F),
            Ok(hipsparseLtComputetype_t(1))
        );
        assert_eq!(compute(Compute::HIPSPARSELT_COMPUTE_TF32), Err(NOT_SUPPORTED));
        let bias = Attribute::HIPSPARSELT_MATMUL_BIAS_POINTER;
        assert_eq!(of_matmul(bias), Ok(bias));
        let pointer = Attribute::HIPSPARSELT_MATMUL_SPARSE_MAT_POINTER;
        assert_eq!(of_matmul(pointer), Ok(hipsparseLtMatmulDescAttribute_t(9)));
        assert_eq!(
            of_matmul(Attribute::HIPSPARSELT_MATMUL_BIAS_TYPE),
            Err(NOT_SUPPORTED)
        );
        assert_eq!(datatype(hipDataType::HIP_R_16BF), Ok(hipDataType::HIP_R_16BF));
        assert_eq!(datatype(hipDataType::HIP_R_8F_E4M3_FNUZ), Err(NOT_SUPPORTED));
    }

    #[test]
    fn objects_are_aligned() {
        let memory = [0_u128; 2];
        let at = memory.as_ptr().cast::<u8>();
        assert_eq!(aligned(at), Ok(()));
        assert_eq!(aligned(at.wrapping_add(8)), Err(INVALID));
        assert_eq!(aligned(std::ptr::null::<u8>()), Err(INVALID));
    }
}
