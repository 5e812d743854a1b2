//! Attributes and their values, from hipBLASLt's numbers to cuBLASLt's.

use std::ffi::c_void;

use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t as Desc,
    cublasLtMatmulPreferenceAttributes_t as Preference, cublasLtMatrixLayout_t,
    cublasLtMatrixLayoutAttribute_t as Layout,
};
use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipblaslt::{
    hipblasComputeType_t, hipblasLtEpilogue_t, hipblasLtMatmulDescAttributes_t,
    hipblasLtMatmulPreferenceAttributes_t, hipblasLtMatrixLayoutAttribute_t,
    hipblasLtMatrixTransformDescAttributes_t, hipblasLtOrder_t, hipblasLtPointerMode_t, hipblasOperation_t,
    hipblasStatus_t,
};

use super::status::check;
use crate::library::call;

const NOT_SUPPORTED: hipblasStatus_t = hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED;

/// An element type's value: CUDA's and HIP's are the same, except AMD's own types, which are above them.
pub(super) fn datatype(datatype: hipDataType) -> Result<u32, hipblasStatus_t> {
    if datatype.0 < 1000 {
        Ok(datatype.0)
    } else {
        Err(hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED)
    }
}

/// Reads a `T` from the `size` bytes at `at`.
pub(super) unsafe fn value<T: Copy>(at: *const c_void, size: usize) -> Result<T, hipblasStatus_t> {
    if at.is_null() || size < size_of::<T>() {
        return Err(hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE);
    }
    // SAFETY: there are enough bytes, and the caller vouches for the type.
    Ok(unsafe { at.cast::<T>().read_unaligned() })
}

/// Writes 4 bytes to `to`, which has `size`, and their number to `written`.
pub(super) unsafe fn set_value(
    to: *mut c_void,
    size: usize,
    written: *mut usize,
    value: u32,
) -> Result<(), hipblasStatus_t> {
    if to.is_null() || size < size_of::<u32>() {
        return Err(hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE);
    }
    // SAFETY: there are 4 bytes; `written` is null or may be written.
    unsafe {
        to.cast::<u32>().write_unaligned(value);
        if !written.is_null() {
            written.write(size_of::<u32>());
        }
    }
    Ok(())
}

pub(super) fn compute(of: hipblasComputeType_t) -> Result<u32, hipblasStatus_t> {
    let compute = match of {
        hipblasComputeType_t::HIPBLAS_COMPUTE_16F => Compute::CUBLAS_COMPUTE_16F,
        hipblasComputeType_t::HIPBLAS_COMPUTE_16F_PEDANTIC => Compute::CUBLAS_COMPUTE_16F_PEDANTIC,
        hipblasComputeType_t::HIPBLAS_COMPUTE_32F => Compute::CUBLAS_COMPUTE_32F,
        hipblasComputeType_t::HIPBLAS_COMPUTE_32F_PEDANTIC => Compute::CUBLAS_COMPUTE_32F_PEDANTIC,
        hipblasComputeType_t::HIPBLAS_COMPUTE_32F_FAST_16F => Compute::CUBLAS_COMPUTE_32F_FAST_16F,
        hipblasComputeType_t::HIPBLAS_COMPUTE_32F_FAST_16BF => Compute::CUBLAS_COMPUTE_32F_FAST_16BF,
        hipblasComputeType_t::HIPBLAS_COMPUTE_32F_FAST_TF32 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        hipblasComputeType_t::HIPBLAS_COMPUTE_64F => Compute::CUBLAS_COMPUTE_64F,
        hipblasComputeType_t::HIPBLAS_COMPUTE_64F_PEDANTIC => Compute::CUBLAS_COMPUTE_64F_PEDANTIC,
        hipblasComputeType_t::HIPBLAS_COMPUTE_32I => Compute::CUBLAS_COMPUTE_32I,
        hipblasComputeType_t::HIPBLAS_COMPUTE_32I_PEDANTIC => Compute::CUBLAS_COMPUTE_32I_PEDANTIC,
        _ => return Err(NOT_SUPPORTED),
    };
    Ok(compute as u32)
}

/// Longest sum of a GEMM with E5M2 whose matrix cores keep it: an error of 128 truncations, below 1 %.
const LONGEST_FAST_SUM: u64 = 4096;

/// Lets FP8 GEMMs keep their sums in the matrix cores, as AMD's do, instead of adding them up in f32 every few instructions. On
/// Hopper the sums then have 14 bits, an error that is small compared with the rounding of E4M3's 4 bits. The GEMMs are faster;
/// frameworks choose this for forward passes. GEMMs with E5M2 are those of gradients. The gradient of a weight sums over the tokens of all
/// images, whose truncations would add up to several per cent. Other types have no such algorithms.
///
/// # Safety
/// All are handles of cuBLASLt, `factors` those of the layouts of A and B.
pub(super) unsafe fn accumulate_fast(
    desc: cublasLtMatmulDesc_t,
    factors: [cublasLtMatrixLayout_t; 2],
) -> Result<(), hipblasStatus_t> {
    let float8 = [hipDataType::HIP_R_8F_E4M3, hipDataType::HIP_R_8F_E5M2];
    let [a, _] = factors;
    // SAFETY: the caller answers for the handles.
    let types = unsafe { [element_type(factors[0])?, element_type(factors[1])?] };
    // SAFETY: the caller answers for the handle. FP8 GEMMs transpose A, whose rows are then those of the sums.
    let is_short = unsafe { rows(a) }? <= LONGEST_FAST_SUM;
    let is_forward = types.iter().all(|datatype| *datatype == float8[0]);
    let on = i8::from(types.iter().all(|datatype| float8.contains(datatype)) && (is_forward || is_short));
    // SAFETY: the caller answers for the handle; the attribute is a byte, which is copied.
    check(unsafe {
        let attribute = Desc::CUBLASLT_MATMUL_DESC_FAST_ACCUM as u32;
        let from = (&raw const on).cast();
        call!(
            CUBLASLT,
            cublaslt,
            cublasLtMatmulDescSetAttribute(desc, attribute, from, size_of_val(&on))
        )
    })
}

/// The number of rows of a layout.
///
/// # Safety
/// It is a handle of cuBLASLt.
unsafe fn rows(layout: cublasLtMatrixLayout_t) -> Result<u64, hipblasStatus_t> {
    let (mut rows, mut written) = (0_u64, 0);
    let attribute = Layout::CUBLASLT_MATRIX_LAYOUT_ROWS as u32;
    let to = (&raw mut rows).cast();
    // SAFETY: the caller answers for the handle; the attribute is a number of 8 bytes.
    check(unsafe {
        call!(
            CUBLASLT,
            cublaslt,
            cublasLtMatrixLayoutGetAttribute(layout, attribute, to, size_of_val(&rows), &mut written)
        )
    })?;
    Ok(rows)
}

/// The element type of a layout.
///
/// # Safety
/// It is a handle of cuBLASLt.
pub(super) unsafe fn element_type(layout: cublasLtMatrixLayout_t) -> Result<hipDataType, hipblasStatus_t> {
    let (mut datatype, mut written) = (0_u32, 0);
    let attribute = Layout::CUBLASLT_MATRIX_LAYOUT_TYPE as u32;
    let to = (&raw mut datatype).cast();
    // SAFETY: the caller answers for the handle; the attribute is a number of 4 bytes.
    check(unsafe {
        call!(
            CUBLASLT,
            cublaslt,
            cublasLtMatrixLayoutGetAttribute(layout, attribute, to, size_of_val(&datatype), &mut written)
        )
    })?;
    Ok(hipDataType(datatype))
}

pub(super) fn of_layout(of: hipblasLtMatrixLayoutAttribute_t) -> Result<u32, hipblasStatus_t> {
    use hipblasLtMatrixLayoutAttribute_t as Hip;
    let attribute = match of {
        Hip::HIPBLASLT_MATRIX_LAYOUT_BATCH_COUNT => Layout::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
        Hip::HIPBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET => {
            Layout::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
        }
        Hip::HIPBLASLT_MATRIX_LAYOUT_TYPE => Layout::CUBLASLT_MATRIX_LAYOUT_TYPE,
        Hip::HIPBLASLT_MATRIX_LAYOUT_ORDER => Layout::CUBLASLT_MATRIX_LAYOUT_ORDER,
        Hip::HIPBLASLT_MATRIX_LAYOUT_ROWS => Layout::CUBLASLT_MATRIX_LAYOUT_ROWS,
        Hip::HIPBLASLT_MATRIX_LAYOUT_COLS => Layout::CUBLASLT_MATRIX_LAYOUT_COLS,
        Hip::HIPBLASLT_MATRIX_LAYOUT_LD => Layout::CUBLASLT_MATRIX_LAYOUT_LD,
        _ => return Err(NOT_SUPPORTED),
    };
    Ok(attribute as u32)
}

/// Column and row order have cuBLASLt's values; AMD's swizzled orders and its own element types have no counterpart.
pub(super) unsafe fn check_layout(
    attribute: hipblasLtMatrixLayoutAttribute_t,
    from: *const c_void,
    size: usize,
) -> Result<(), hipblasStatus_t> {
    use hipblasLtMatrixLayoutAttribute_t as Hip;
    match attribute {
        Hip::HIPBLASLT_MATRIX_LAYOUT_ORDER => {
            // SAFETY: this attribute is a 4-byte number.
            let order = unsafe { value::<u32>(from, size) }?;
            if order > hipblasLtOrder_t::HIPBLASLT_ORDER_ROW.0 {
                Err(NOT_SUPPORTED)
            } else {
                Ok(())
            }
        }
        // SAFETY: as above.
        Hip::HIPBLASLT_MATRIX_LAYOUT_TYPE => unsafe { value::<u32>(from, size) }
            .and_then(|number| datatype(hipDataType(number)))
            .map(drop),
        _ => Ok(()),
    }
}

pub(super) fn of_desc(of: hipblasLtMatmulDescAttributes_t) -> Result<u32, hipblasStatus_t> {
    use hipblasLtMatmulDescAttributes_t as Hip;
    let attribute = match of {
        Hip::HIPBLASLT_MATMUL_DESC_TRANSA => Desc::CUBLASLT_MATMUL_DESC_TRANSA,
        Hip::HIPBLASLT_MATMUL_DESC_TRANSB => Desc::CUBLASLT_MATMUL_DESC_TRANSB,
        Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE => Desc::CUBLASLT_MATMUL_DESC_EPILOGUE,
        Hip::HIPBLASLT_MATMUL_DESC_BIAS_POINTER => Desc::CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        Hip::HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE => Desc::CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        Hip::HIPBLASLT_MATMUL_DESC_A_SCALE_POINTER => Desc::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
        Hip::HIPBLASLT_MATMUL_DESC_B_SCALE_POINTER => Desc::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
        Hip::HIPBLASLT_MATMUL_DESC_C_SCALE_POINTER => Desc::CUBLASLT_MATMUL_DESC_C_SCALE_POINTER,
        Hip::HIPBLASLT_MATMUL_DESC_D_SCALE_POINTER => Desc::CUBLASLT_MATMUL_DESC_D_SCALE_POINTER,
        Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER => {
            Desc::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER
        }
        Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER => Desc::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
        Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD => Desc::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
        Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE => {
            Desc::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE
        }
        Hip::HIPBLASLT_MATMUL_DESC_POINTER_MODE => Desc::CUBLASLT_MATMUL_DESC_POINTER_MODE,
        Hip::HIPBLASLT_MATMUL_DESC_AMAX_D_POINTER => Desc::CUBLASLT_MATMUL_DESC_AMAX_D_POINTER,
        Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE => {
            Desc::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE
        }
        Hip::HIPBLASLT_MATMUL_DESC_A_SCALE_MODE => Desc::CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
        Hip::HIPBLASLT_MATMUL_DESC_B_SCALE_MODE => Desc::CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
        _ => return Err(NOT_SUPPORTED),
    };
    Ok(attribute as u32)
}

/// Maps a value of hipBLASLt's to cuBLASLt's.
type Renumber = fn(u32) -> Result<u32, hipblasStatus_t>;

/// Returns the function that maps an attribute's value, or `None` if its bytes are passed unchanged.
pub(super) fn to_cuda(of: hipblasLtMatmulDescAttributes_t) -> Option<Renumber> {
    use hipblasLtMatmulDescAttributes_t as Hip;
    match of {
        Hip::HIPBLASLT_MATMUL_DESC_TRANSA | Hip::HIPBLASLT_MATMUL_DESC_TRANSB => Some(operation),
        Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE => Some(epilogue),
        Hip::HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE | Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE => {
            Some(|number| datatype(hipDataType(number)))
        }
        Hip::HIPBLASLT_MATMUL_DESC_POINTER_MODE => Some(pointer_mode),
        _ => None,
    }
}

pub(super) fn operation(of: u32) -> Result<u32, hipblasStatus_t> {
    match hipblasOperation_t(of) {
        hipblasOperation_t::HIPBLAS_OP_N => Ok(0),
        hipblasOperation_t::HIPBLAS_OP_T => Ok(1),
        hipblasOperation_t::HIPBLAS_OP_C => Ok(2),
        _ => Err(hipblasStatus_t::HIPBLAS_STATUS_INVALID_ENUM),
    }
}

pub(super) fn to_hip_operation(of: u32) -> u32 {
    hipblasOperation_t::HIPBLAS_OP_N.0 + of
}

/// Epilogues have cuBLASLt's values, except AMD's own, which are above them.
fn epilogue(of: u32) -> Result<u32, hipblasStatus_t> {
    if of < hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_SWISH_EXT.0 {
        Ok(of)
    } else {
        Err(NOT_SUPPORTED)
    }
}

/// hipBLASLt's three modes have cuBLASLt's values.
fn pointer_mode(of: u32) -> Result<u32, hipblasStatus_t> {
    match hipblasLtPointerMode_t(of) {
        hipblasLtPointerMode_t::HIPBLASLT_POINTER_MODE_HOST
        | hipblasLtPointerMode_t::HIPBLASLT_POINTER_MODE_DEVICE
        | hipblasLtPointerMode_t::HIPBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST => Ok(of),
        _ => Err(hipblasStatus_t::HIPBLAS_STATUS_INVALID_ENUM),
    }
}

pub(super) fn of_preference(of: hipblasLtMatmulPreferenceAttributes_t) -> Result<u32, hipblasStatus_t> {
    use hipblasLtMatmulPreferenceAttributes_t as Hip;
    let attribute = match of {
        Hip::HIPBLASLT_MATMUL_PREF_SEARCH_MODE => Preference::CUBLASLT_MATMUL_PREF_SEARCH_MODE,
        Hip::HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES => {
            Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
        }
        _ => return Err(NOT_SUPPORTED),
    };
    Ok(attribute as u32)
}

pub(super) fn is_transform_operation(of: hipblasLtMatrixTransformDescAttributes_t) -> bool {
    use hipblasLtMatrixTransformDescAttributes_t as Hip;
    matches!(
        of,
        Hip::HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSA | Hip::HIPBLASLT_MATRIX_TRANSFORM_DESC_TRANSB
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_renumbered() {
        use hipblasLtMatmulDescAttributes_t as Hip;
        let renumbered = |attribute, value| to_cuda(attribute).map(|renumber| renumber(value));
        let transpose = hipblasOperation_t::HIPBLAS_OP_T.0;
        assert_eq!(
            renumbered(Hip::HIPBLASLT_MATMUL_DESC_TRANSB, transpose),
            Some(Ok(1))
        );
        assert_eq!(to_hip_operation(1), transpose);
        let gelu_bias = hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU_BIAS.0;
        assert_eq!(
            renumbered(Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE, gelu_bias),
            Some(Ok(
                cudarc::cublaslt::sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS as u32
            ))
        );
        let swish = hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_SWISH_EXT.0;
        assert_eq!(
            renumbered(Hip::HIPBLASLT_MATMUL_DESC_EPILOGUE, swish),
            Some(Err(NOT_SUPPORTED))
        );
        assert_eq!(renumbered(Hip::HIPBLASLT_MATMUL_DESC_BIAS_POINTER, 0), None);
    }
}
