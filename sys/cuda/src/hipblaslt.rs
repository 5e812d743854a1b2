//! hipBLASLt on cuBLASLt. Handles, layouts, descriptors and preferences are cuBLASLt's, cast; attributes and their values
//! are mapped where they differ.
//!
//! The GELU of an epilogue is the tanh form, as AMD's is. Epilogues and scales that cuBLASLt lacks, such as swish, are
//! rejected as not supported.

mod algorithm;
mod attributes;
mod status;

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;

use cudarc::cublaslt::sys::{cublasLtMatmulDescAttributes_t as Desc, cublasLtMatmulHeuristicResult_t};
use hip_provider::export::copy_text;
use hip_provider::hipblaslt::run;
use hip_provider::{export, not_offered};
use hipvit_sys::hip::{hipDataType, hipStream_t};
use hipvit_sys::hipblaslt::{
    hipblasComputeType_t, hipblasLtHandle_t, hipblasLtMatmulAlgo_t, hipblasLtMatmulDesc_t,
    hipblasLtMatmulDescAttributes_t, hipblasLtMatmulHeuristicResult_t, hipblasLtMatmulPreference_t,
    hipblasLtMatmulPreferenceAttributes_t, hipblasLtMatrixLayout_t, hipblasLtMatrixLayoutAttribute_t,
    hipblasLtMatrixTransformDesc_t, hipblasLtMatrixTransformDescAttributes_t, hipblasStatus_t,
};

use self::attributes::{datatype, set_value, value};
use self::status::{lt, on_device};
use crate::hip::device_arch;
use crate::library::call;

export! { hipblaslt, hipblasStatus_t, on_device;
    fn hipblasLtCreate(handle: *mut hipblasLtHandle_t) {
        lt!(cublasLtCreate(handle.cast()))
    }

    fn hipblasLtDestroy(handle: hipblasLtHandle_t) {
        lt!(cublasLtDestroy(handle.cast()))
    }

    fn hipblasLtMatmulAlgoGetHeuristic(
        handle: hipblasLtHandle_t, desc: hipblasLtMatmulDesc_t, a: hipblasLtMatrixLayout_t,
        b: hipblasLtMatrixLayout_t, c: hipblasLtMatrixLayout_t, d: hipblasLtMatrixLayout_t,
        preference: hipblasLtMatmulPreference_t, wanted: i32, results: *mut hipblasLtMatmulHeuristicResult_t,
        count: *mut i32,
    ) {
        let capacity = usize::try_from(wanted).unwrap_or_default();
        if capacity == 0 || results.is_null() || count.is_null() {
            return Err(hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE);
        }
        let mut found: Vec<MaybeUninit<cublasLtMatmulHeuristicResult_t>> = vec![MaybeUninit::zeroed(); capacity];
        let mut number = 0;
        count.write(0);
        attributes::accumulate_fast(desc.cast(), [a.cast(), b.cast()])?;
        lt!(cublasLtMatmulAlgoGetHeuristic(
            handle.cast(), desc.cast(), a.cast(), b.cast(), c.cast(), d.cast(), preference.cast(), wanted,
            found.as_mut_ptr().cast(), &mut number,
        ))?;
        let number = usize::try_from(number).unwrap_or_default().min(capacity);
        for (index, result) in found.iter().take(number).enumerate() {
            results.add(index).write(algorithm::result(result.as_ptr()));
        }
        count.write(number as i32);
        Ok(())
    }

    fn hipblasLtMatmul(
        handle: hipblasLtHandle_t, desc: hipblasLtMatmulDesc_t, alpha: *const c_void, a: *const c_void,
        a_layout: hipblasLtMatrixLayout_t, b: *const c_void, b_layout: hipblasLtMatrixLayout_t, beta: *const c_void,
        c: *const c_void, c_layout: hipblasLtMatrixLayout_t, d: *mut c_void, d_layout: hipblasLtMatrixLayout_t,
        algo: *const hipblasLtMatmulAlgo_t, workspace: *mut c_void, size: usize, stream: hipStream_t,
    ) {
        // Without an algorithm cuBLASLt uses its heuristic's first.
        let algo = match algo.as_ref() {
            Some(algo) => Some(algorithm::known(algo)?),
            None => None,
        };
        let algo = algo.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // If D's type differs from C's, they cannot share memory. hipBLASLt accepts such a C if it is not read; cuBLASLt requires
        // null.
        let apart = attributes::element_type(c_layout.cast())? != attributes::element_type(d_layout.cast())?;
        let c = if apart && c == d.cast_const() { std::ptr::null() } else { c };
        lt!(cublasLtMatmul(
            handle.cast(), desc.cast(), alpha, a, a_layout.cast(), b, b_layout.cast(), beta, c, c_layout.cast(), d,
            d_layout.cast(), algo, workspace, size, stream.cast(),
        ))
    }

    fn hipblasLtMatrixTransform(
        handle: hipblasLtHandle_t, desc: hipblasLtMatrixTransformDesc_t, alpha: *const c_void, a: *const c_void,
        a_layout: hipblasLtMatrixLayout_t, beta: *const c_void, b: *const c_void, b_layout: hipblasLtMatrixLayout_t,
        c: *mut c_void, c_layout: hipblasLtMatrixLayout_t, stream: hipStream_t,
    ) {
        lt!(cublasLtMatrixTransform(
            handle.cast(), desc.cast(), alpha, a, a_layout.cast(), beta, b, b_layout.cast(), c, c_layout.cast(),
            stream.cast(),
        ))
    }

    /// The architecture's name, such as `sm_90`, in memory from `malloc` that the caller frees, as with AMD's.
    fn hipblasLtGetArchName(to: *mut *mut c_char) {
        unsafe extern "C" {
            fn malloc(size: usize) -> *mut c_void;
        }
        let name = device_arch().ok_or(hipblasStatus_t::HIPBLAS_STATUS_NOT_INITIALIZED)?;
        let memory = malloc(name.len() + 1).cast::<c_char>();
        if memory.is_null() {
            return Err(hipblasStatus_t::HIPBLAS_STATUS_ALLOC_FAILED);
        }
        copy_text(name.as_bytes(), memory, name.len() + 1);
        to.write(memory);
        Ok(())
    }
}

export! { hipblaslt, hipblasStatus_t, run;
    /// cuBLASLt's version, such as 130002 for 13.0.2.
    fn hipblasLtGetVersion(_handle: hipblasLtHandle_t, version: *mut i32) {
        let found = call!(CUBLASLT, cublaslt, cublasLtGetVersion());
        version.write(match found {
            Ok(found) => i32::try_from(found).unwrap_or_default(),
            Err(_) => return Err(hipblasStatus_t::HIPBLAS_STATUS_NOT_INITIALIZED),
        });
        Ok(())
    }

    fn hipblasLtMatrixLayoutCreate(
        layout: *mut hipblasLtMatrixLayout_t, kind: hipDataType, rows: u64, columns: u64, leading: i64,
    ) {
        lt!(cublasLtMatrixLayoutCreate(layout.cast(), datatype(kind)?, rows, columns, leading))
    }

    fn hipblasLtMatrixLayoutDestroy(layout: hipblasLtMatrixLayout_t) {
        lt!(cublasLtMatrixLayoutDestroy(layout.cast()))
    }

    fn hipblasLtMatrixLayoutSetAttribute(
        layout: hipblasLtMatrixLayout_t, attribute: hipblasLtMatrixLayoutAttribute_t, from: *const c_void,
        size: usize,
    ) {
        attributes::check_layout(attribute, from, size)?;
        lt!(cublasLtMatrixLayoutSetAttribute(layout.cast(), attributes::of_layout(attribute)?, from, size))
    }

    fn hipblasLtMatrixLayoutGetAttribute(
        layout: hipblasLtMatrixLayout_t, attribute: hipblasLtMatrixLayoutAttribute_t, to: *mut c_void, size: usize,
        written: *mut usize,
    ) {
        lt!(cublasLtMatrixLayoutGetAttribute(layout.cast(), attributes::of_layout(attribute)?, to, size, written))
    }

    fn hipblasLtMatmulDescCreate(
        desc: *mut hipblasLtMatmulDesc_t, compute: hipblasComputeType_t, scale: hipDataType,
    ) {
        lt!(cublasLtMatmulDescCreate(desc.cast(), attributes::compute(compute)?, datatype(scale)?))
    }

    fn hipblasLtMatmulDescDestroy(desc: hipblasLtMatmulDesc_t) {
        lt!(cublasLtMatmulDescDestroy(desc.cast()))
    }

    fn hipblasLtMatmulDescSetAttribute(
        desc: hipblasLtMatmulDesc_t, attribute: hipblasLtMatmulDescAttributes_t, from: *const c_void, size: usize,
    ) {
        let number = attributes::of_desc(attribute)?;
        match attributes::to_cuda(attribute) {
            Some(renumber) => {
                let renumbered = renumber(value::<u32>(from, size)?)?;
                let from = (&raw const renumbered).cast();
                lt!(cublasLtMatmulDescSetAttribute(desc.cast(), number, from, size_of::<u32>()))
            }
            None => lt!(cublasLtMatmulDescSetAttribute(desc.cast(), number, from, size)),
        }
    }

    fn hipblasLtMatmulDescGetAttribute(
        desc: hipblasLtMatmulDesc_t, attribute: hipblasLtMatmulDescAttributes_t, to: *mut c_void, size: usize,
        written: *mut usize,
    ) {
        let number = attributes::of_desc(attribute)?;
        let Some(_) = attributes::to_cuda(attribute) else {
            return lt!(cublasLtMatmulDescGetAttribute(desc.cast(), number, to, size, written));
        };
        let (mut found, mut count) = (0_u32, 0);
        let at = (&raw mut found).cast();
        lt!(cublasLtMatmulDescGetAttribute(desc.cast(), number, at, size_of::<u32>(), &mut count))?;
        let operation = number == Desc::CUBLASLT_MATMUL_DESC_TRANSA as u32
            || number == Desc::CUBLASLT_MATMUL_DESC_TRANSB as u32;
        set_value(to, size, written, if operation { attributes::to_hip_operation(found) } else { found })
    }

    fn hipblasLtMatmulPreferenceCreate(preference: *mut hipblasLtMatmulPreference_t) {
        lt!(cublasLtMatmulPreferenceCreate(preference.cast()))
    }

    fn hipblasLtMatmulPreferenceDestroy(preference: hipblasLtMatmulPreference_t) {
        lt!(cublasLtMatmulPreferenceDestroy(preference.cast()))
    }

    fn hipblasLtMatmulPreferenceSetAttribute(
        preference: hipblasLtMatmulPreference_t, attribute: hipblasLtMatmulPreferenceAttributes_t,
        from: *const c_void, size: usize,
    ) {
        lt!(cublasLtMatmulPreferenceSetAttribute(
            preference.cast(), attributes::of_preference(attribute)?, from, size,
        ))
    }

    fn hipblasLtMatmulPreferenceGetAttribute(
        preference: hipblasLtMatmulPreference_t, attribute: hipblasLtMatmulPreferenceAttributes_t, to: *mut c_void,
        size: usize, written: *mut usize,
    ) {
        lt!(cublasLtMatmulPreferenceGetAttribute(
            preference.cast(), attributes::of_preference(attribute)?, to, size, written,
        ))
    }

    fn hipblasLtMatrixTransformDescCreate(desc: *mut hipblasLtMatrixTransformDesc_t, scale: hipDataType) {
        lt!(cublasLtMatrixTransformDescCreate(desc.cast(), datatype(scale)?))
    }

    fn hipblasLtMatrixTransformDescDestroy(desc: hipblasLtMatrixTransformDesc_t) {
        lt!(cublasLtMatrixTransformDescDestroy(desc.cast()))
    }

    /// Attributes have cuBLASLt's values; operations do not.
    fn hipblasLtMatrixTransformDescSetAttribute(
        desc: hipblasLtMatrixTransformDesc_t, attribute: hipblasLtMatrixTransformDescAttributes_t,
        from: *const c_void, size: usize,
    ) {
        if attributes::is_transform_operation(attribute) {
            let renumbered = attributes::operation(value::<u32>(from, size)?)?;
            let from = (&raw const renumbered).cast();
            return lt!(cublasLtMatrixTransformDescSetAttribute(desc.cast(), attribute.0, from, size_of::<u32>()));
        }
        lt!(cublasLtMatrixTransformDescSetAttribute(desc.cast(), attribute.0, from, size))
    }

    fn hipblasLtMatrixTransformDescGetAttribute(
        desc: hipblasLtMatrixTransformDesc_t, attribute: hipblasLtMatrixTransformDescAttributes_t, to: *mut c_void,
        size: usize, written: *mut usize,
    ) {
        lt!(cublasLtMatrixTransformDescGetAttribute(desc.cast(), attribute.0, to, size, written))?;
        if attributes::is_transform_operation(attribute) {
            let found = value::<u32>(to, size)?;
            return set_value(to, size, written, attributes::to_hip_operation(found));
        }
        Ok(())
    }
}

// cuBLASLt does not report a source revision.
not_offered! { hipblaslt, hipblasStatus_t, hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED;
    hipblasLtGetGitRevision
}
