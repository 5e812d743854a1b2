//! hipBLASLt, computed on the CPU: sums in f32 (f64 for f64; exactly for i8), results rounded once.
//!
//! Matrices are column-major, as in the real library. Supported are:
//! - f32, f16, bf16, f64, i8 (into i32), and E4M3 and E5M2 in the encoding of the emulated GPU, if it has one;
//! - epilogues with a bias, an auxiliary output and an activation, whose GELU is the tanh form;
//! - scales per matrix, or per row of A and column of B.
//!
//! Narrower floats, gradients and blockwise scales are not supported. The real `hipblasLtCreate` exits the process if there is no
//! device: this one returns a status.

mod algorithm;
mod attributes;
mod enumerations;
mod epilogue;
mod matmul;
mod transform;

use std::ffi::{c_char, c_void};

use hip_provider::export::copy_text;
use hip_provider::hipblaslt::{put, run};
use hip_provider::{Objects, export};
use hipvit_sys::hip::{hipDataType, hipError_t, hipStream_t};
use hipvit_sys::hipblaslt::{
    HIPBLASLT_VERSION_MAJOR, HIPBLASLT_VERSION_MINOR, HIPBLASLT_VERSION_PATCH, hipblasComputeType_t,
    hipblasLtHandle_t, hipblasLtMatmulAlgo_t, hipblasLtMatmulDesc_t, hipblasLtMatmulDescAttributes_t,
    hipblasLtMatmulHeuristicResult_t, hipblasLtMatmulPreference_t, hipblasLtMatmulPreferenceAttributes_t,
    hipblasLtMatrixLayout_t, hipblasLtMatrixLayoutAttribute_t as LayoutAttribute,
    hipblasLtMatrixTransformDesc_t, hipblasLtMatrixTransformDescAttributes_t as TransformAttribute,
    hipblasStatus_t,
};

pub(crate) use self::epilogue::Activation;

use self::algorithm::Algorithm;
use self::attributes::Attributes;
use self::enumerations::float8;
use self::matmul::{Descriptor, Layout, Operands, Problem};
use self::transform::{Conversion, Term};
use crate::compute::{Element, Scalar, submit};
use crate::hip;

const INVALID: hipblasStatus_t = hipblasStatus_t::HIPBLAS_STATUS_INVALID_VALUE;
const NOT_INITIALIZED: hipblasStatus_t = hipblasStatus_t::HIPBLAS_STATUS_NOT_INITIALIZED;
const NOT_SUPPORTED: hipblasStatus_t = hipblasStatus_t::HIPBLAS_STATUS_NOT_SUPPORTED;

/// A handle has no state: every call names its stream.
static HANDLES: Objects<()> = Objects::new();
static LAYOUTS: Objects<Attributes> = Objects::new();
static DESCRIPTORS: Objects<Descriptor> = Objects::new();
static PREFERENCES: Objects<Attributes> = Objects::new();
static TRANSFORMS: Objects<Attributes> = Objects::new();

/// hipBLASLt's status for a status of HIP.
fn translate(status: hipError_t) -> hipblasStatus_t {
    match status {
        hipError_t::hipErrorOutOfMemory => hipblasStatus_t::HIPBLAS_STATUS_ALLOC_FAILED,
        hipError_t::hipErrorNoDevice | hipError_t::hipErrorNotInitialized => NOT_INITIALIZED,
        hipError_t::hipErrorInvalidValue | hipError_t::hipErrorInvalidHandle => INVALID,
        _ => hipblasStatus_t::HIPBLAS_STATUS_EXECUTION_FAILED,
    }
}

fn layout(of: hipblasLtMatrixLayout_t) -> Result<Layout, hipblasStatus_t> {
    Layout::new(&LAYOUTS.get(of).ok_or(INVALID)?)
}

fn problem(
    handle: hipblasLtHandle_t,
    desc: hipblasLtMatmulDesc_t,
    [a, b, c, d]: [hipblasLtMatrixLayout_t; 4],
) -> Result<Problem, hipblasStatus_t> {
    HANDLES.get(handle).ok_or(NOT_INITIALIZED)?;
    let description = DESCRIPTORS.get(desc).ok_or(INVALID)?;
    let layouts = [layout(a)?, layout(b)?, layout(c)?, layout(d)?];
    let device = hip::current().map_err(translate)?;
    let float8 = |layout: &Layout| match layout.element {
        Element::F8(format) => Some(format.encoding) == float8(device.part.arch),
        _ => true,
    };
    if layouts.iter().all(float8) {
        Problem::new(&description, layouts)
    } else {
        Err(NOT_SUPPORTED)
    }
}

/// A factor.
///
/// # Safety
/// It is null or, unless it is on the device, a number of this type.
unsafe fn scalar(at: *const c_void, of: Element, on_device: bool) -> Result<Scalar, hipblasStatus_t> {
    if at.is_null() {
        return Err(INVALID);
    }
    // SAFETY: as the caller says.
    Ok(unsafe { Scalar::new(at, of, on_device) })
}

fn address(of: *const c_void) -> u64 {
    of.expose_provenance() as u64
}

export! { hipblaslt, hipblasStatus_t, run;
    /// Without a device the status is `HIPBLAS_STATUS_NOT_INITIALIZED`.
    fn hipblasLtCreate(handle: *mut hipblasLtHandle_t) {
        hip::current().map_err(|_| NOT_INITIALIZED)?;
        if handle.is_null() {
            return Err(hipblasStatus_t::HIPBLAS_STATUS_HANDLE_IS_NULLPTR);
        }
        put(handle, HANDLES.add(()))
    }

    fn hipblasLtDestroy(handle: hipblasLtHandle_t) {
        HANDLES.remove(handle).ok_or(hipblasStatus_t::HIPBLAS_STATUS_HANDLE_IS_NULLPTR)
    }

    /// The version of hipBLASLt whose interface is implemented, such as 100202 for 1.2.2.
    fn hipblasLtGetVersion(_handle: hipblasLtHandle_t, version: *mut i32) {
        let number = HIPBLASLT_VERSION_MAJOR * 100_000 + HIPBLASLT_VERSION_MINOR * 100 + HIPBLASLT_VERSION_PATCH;
        put(version, number as i32)
    }

    /// There is no git revision of the real library.
    fn hipblasLtGetGitRevision(_handle: hipblasLtHandle_t, to: *mut c_char) {
        if to.is_null() {
            return Err(INVALID);
        }
        copy_text(b"hip-emu", to, b"hip-emu".len() + 1);
        Ok(())
    }

    /// The processor's name, such as `gfx942`, allocated by `malloc`; the caller frees it.
    fn hipblasLtGetArchName(to: *mut *mut c_char) {
        unsafe extern "C" {
            fn malloc(size: usize) -> *mut c_void;
        }
        let name = hip::current().map_err(|_| NOT_INITIALIZED)?.part.arch;
        if to.is_null() {
            return Err(INVALID);
        }
        let memory = malloc(name.len() + 1).cast::<c_char>();
        if memory.is_null() {
            return Err(hipblasStatus_t::HIPBLAS_STATUS_ALLOC_FAILED);
        }
        copy_text(name.as_bytes(), memory, name.len() + 1);
        to.write(memory);
        Ok(())
    }

    fn hipblasLtMatrixLayoutCreate(
        to: *mut hipblasLtMatrixLayout_t, kind: hipDataType, rows: u64, columns: u64, leading: i64,
    ) {
        if to.is_null() {
            return Err(INVALID);
        }
        let mut attributes = Attributes::new(attributes::LAYOUT);
        for (attribute, value) in [
            (LayoutAttribute::HIPBLASLT_MATRIX_LAYOUT_TYPE, kind.0.into()),
            (LayoutAttribute::HIPBLASLT_MATRIX_LAYOUT_ROWS, rows),
            (LayoutAttribute::HIPBLASLT_MATRIX_LAYOUT_COLS, columns),
            (LayoutAttribute::HIPBLASLT_MATRIX_LAYOUT_LD, leading.cast_unsigned()),
        ] {
            attributes.put(attribute.0, value);
        }
        put(to, LAYOUTS.add(attributes))
    }

    fn hipblasLtMatrixLayoutDestroy(layout: hipblasLtMatrixLayout_t) {
        LAYOUTS.remove(layout).map(drop).ok_or(INVALID)
    }

    fn hipblasLtMatrixLayoutSetAttribute(
        layout: hipblasLtMatrixLayout_t, attribute: LayoutAttribute, from: *const c_void, size: usize,
    ) {
        LAYOUTS.change(layout, |attributes| attributes.read(attribute.0, from, size)).ok_or(INVALID)?
    }

    fn hipblasLtMatrixLayoutGetAttribute(
        layout: hipblasLtMatrixLayout_t, attribute: LayoutAttribute, to: *mut c_void, size: usize,
        written: *mut usize,
    ) {
        LAYOUTS.get(layout).ok_or(INVALID)?.write(attribute.0, to, size, written)
    }

    fn hipblasLtMatmulDescCreate(
        to: *mut hipblasLtMatmulDesc_t, compute: hipblasComputeType_t, scale: hipDataType,
    ) {
        if to.is_null() {
            return Err(INVALID);
        }
        let attributes = Attributes::new(attributes::MATMUL);
        put(to, DESCRIPTORS.add(Descriptor { compute, scale, attributes }))
    }

    fn hipblasLtMatmulDescDestroy(desc: hipblasLtMatmulDesc_t) {
        DESCRIPTORS.remove(desc).map(drop).ok_or(INVALID)
    }

    fn hipblasLtMatmulDescSetAttribute(
        desc: hipblasLtMatmulDesc_t, attribute: hipblasLtMatmulDescAttributes_t, from: *const c_void, size: usize,
    ) {
        DESCRIPTORS.change(desc, |desc| desc.attributes.read(attribute.0, from, size)).ok_or(INVALID)?
    }

    fn hipblasLtMatmulDescGetAttribute(
        desc: hipblasLtMatmulDesc_t, attribute: hipblasLtMatmulDescAttributes_t, to: *mut c_void, size: usize,
        written: *mut usize,
    ) {
        DESCRIPTORS.get(desc).ok_or(INVALID)?.attributes.write(attribute.0, to, size, written)
    }

    fn hipblasLtMatmulPreferenceCreate(to: *mut hipblasLtMatmulPreference_t) {
        if to.is_null() {
            return Err(INVALID);
        }
        put(to, PREFERENCES.add(Attributes::new(attributes::PREFERENCE)))
    }

    fn hipblasLtMatmulPreferenceDestroy(preference: hipblasLtMatmulPreference_t) {
        PREFERENCES.remove(preference).map(drop).ok_or(INVALID)
    }

    fn hipblasLtMatmulPreferenceSetAttribute(
        preference: hipblasLtMatmulPreference_t, attribute: hipblasLtMatmulPreferenceAttributes_t,
        from: *const c_void, size: usize,
    ) {
        PREFERENCES.change(preference, |attributes| attributes.read(attribute.0, from, size)).ok_or(INVALID)?
    }

    fn hipblasLtMatmulPreferenceGetAttribute(
        preference: hipblasLtMatmulPreference_t, attribute: hipblasLtMatmulPreferenceAttributes_t, to: *mut c_void,
        size: usize, written: *mut usize,
    ) {
        PREFERENCES.get(preference).ok_or(INVALID)?.write(attribute.0, to, size, written)
    }

    /// `HIPBLAS_STATUS_NOT_SUPPORTED` where the matmul itself would return it.
    fn hipblasLtMatmulAlgoGetHeuristic(
        handle: hipblasLtHandle_t, desc: hipblasLtMatmulDesc_t, a: hipblasLtMatrixLayout_t,
        b: hipblasLtMatrixLayout_t, c: hipblasLtMatrixLayout_t, d: hipblasLtMatrixLayout_t,
        preference: hipblasLtMatmulPreference_t, wanted: i32, results: *mut hipblasLtMatmulHeuristicResult_t,
        found: *mut i32,
    ) {
        let capacity = usize::try_from(wanted).unwrap_or_default();
        if capacity == 0 || results.is_null() {
            return Err(INVALID);
        }
        put(found, 0)?;
        let problem = problem(handle, desc, [a, b, c, d])?;
        let most = hipblasLtMatmulPreferenceAttributes_t::HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
        let workspace = PREFERENCES.get(preference).ok_or(INVALID)?.value(most.0);
        let count = problem.count();
        let fits = |algorithm: &&Algorithm| algorithm.workspace(count) as u64 <= workspace;
        let mut number = 0;
        for algorithm in problem.algorithms().iter().filter(fits).take(capacity) {
            results.add(number).write(algorithm.result(count, problem.scaling()));
            number += 1;
        }
        put(found, number as i32)
    }

    /// Without an algorithm the first one is used.
    fn hipblasLtMatmul(
        handle: hipblasLtHandle_t, desc: hipblasLtMatmulDesc_t, alpha: *const c_void, a: *const c_void,
        a_layout: hipblasLtMatrixLayout_t, b: *const c_void, b_layout: hipblasLtMatrixLayout_t, beta: *const c_void,
        c: *const c_void, c_layout: hipblasLtMatrixLayout_t, d: *mut c_void, d_layout: hipblasLtMatrixLayout_t,
        algo: *const hipblasLtMatmulAlgo_t, workspace: *mut c_void, size: usize, stream: hipStream_t,
    ) {
        let problem = problem(handle, desc, [a_layout, b_layout, c_layout, d_layout])?;
        let operands = Operands {
            alpha: scalar(alpha, problem.scalars.element, problem.alpha_on_device())?,
            a: address(a),
            b: address(b),
            beta: scalar(beta, problem.scalars.element, problem.scalars.on_device)?,
            c: address(c),
            d: address(d),
        };
        let algorithm = match algo.as_ref() {
            Some(algo) => Algorithm::known(algo, problem.scaling())?,
            None => Algorithm::Whole,
        };
        let needed = algorithm.workspace(problem.count());
        if !problem.algorithms().contains(&algorithm) || needed > 0 && (workspace.is_null() || size < needed) {
            return Err(INVALID);
        }
        if !problem.check(&operands)? {
            return Ok(());
        }
        let workspace = address(workspace);
        let work = move |memory: &_| problem.run(memory, &operands, algorithm, workspace);
        submit(stream, "hipblasLtMatmul", work).map_err(translate)
    }

    fn hipblasLtMatrixTransformDescCreate(to: *mut hipblasLtMatrixTransformDesc_t, scale: hipDataType) {
        if to.is_null() {
            return Err(INVALID);
        }
        let mut attributes = Attributes::new(attributes::TRANSFORM);
        attributes.put(TransformAttribute::HIPBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE.0, scale.0.into());
        put(to, TRANSFORMS.add(attributes))
    }

    fn hipblasLtMatrixTransformDescDestroy(desc: hipblasLtMatrixTransformDesc_t) {
        TRANSFORMS.remove(desc).map(drop).ok_or(INVALID)
    }

    fn hipblasLtMatrixTransformDescSetAttribute(
        desc: hipblasLtMatrixTransformDesc_t, attribute: TransformAttribute, from: *const c_void, size: usize,
    ) {
        TRANSFORMS.change(desc, |attributes| attributes.read(attribute.0, from, size)).ok_or(INVALID)?
    }

    fn hipblasLtMatrixTransformDescGetAttribute(
        desc: hipblasLtMatrixTransformDesc_t, attribute: TransformAttribute, to: *mut c_void, size: usize,
        written: *mut usize,
    ) {
        TRANSFORMS.get(desc).ok_or(INVALID)?.write(attribute.0, to, size, written)
    }

    /// A matrix without a layout is left out.
    fn hipblasLtMatrixTransform(
        handle: hipblasLtHandle_t, desc: hipblasLtMatrixTransformDesc_t, alpha: *const c_void, a: *const c_void,
        a_layout: hipblasLtMatrixLayout_t, beta: *const c_void, b: *const c_void, b_layout: hipblasLtMatrixLayout_t,
        c: *mut c_void, c_layout: hipblasLtMatrixLayout_t, stream: hipStream_t,
    ) {
        HANDLES.get(handle).ok_or(NOT_INITIALIZED)?;
        let (of, on_device, transposed) = transform::settings(&TRANSFORMS.get(desc).ok_or(INVALID)?)?;
        let mut terms = Vec::new();
        for (factor, at, described, transposed) in
            [(alpha, a, a_layout, transposed[0]), (beta, b, b_layout, transposed[1])]
        {
            if !described.is_null() {
                let factor = scalar(factor, of, on_device)?;
                terms.push(Term { factor, address: address(at), layout: layout(described)?, transposed });
            }
        }
        let conversion = Conversion { terms, address: address(c), layout: layout(c_layout)? };
        conversion.check()?;
        submit(stream, "hipblasLtMatrixTransform", move |memory| conversion.run(memory)).map_err(translate)
    }
}
