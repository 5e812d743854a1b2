//! hipSPARSELt, computed on the CPU: sums in f32, results rounded once.
//!
//! It supports gfx942 and gfx950, and a handle or descriptor is the caller's memory, as in the real library. Supported are f16
//! and bf16 in columns whose length and number are multiples of 8, with a structured A that is transposed. A bias and an
//! activation of ReLU or GELU in the tanh form are supported too. A compressed matrix has the layout of [`compressed`]; the real
//! library's is not documented.

mod compressed;
mod objects;
mod status;

use std::ffi::c_void;

use gcnrun::{FaultKind, Memory};
use hip_provider::hipsparselt::run;
use hip_provider::{export, not_offered};
use hipvit_sys::hip::{hipDataType, hipStream_t};
use hipvit_sys::hipsparselt::{
    hipsparseLtComputetype_t, hipsparseLtHandle_t, hipsparseLtMatDescriptor_t, hipsparseLtMatmulAlg_t,
    hipsparseLtMatmulAlgAttribute_t, hipsparseLtMatmulAlgSelection_t,
    hipsparseLtMatmulDescAttribute_t as Attribute, hipsparseLtMatmulDescriptor_t, hipsparseLtMatmulPlan_t,
    hipsparseLtSparsity_t, hipsparseOperation_t, hipsparseOrder_t, hipsparseStatus_t,
    hipsparseltVersionMajor, hipsparseltVersionMinor, hipsparseltVersionPatch,
};
use ndarray::{ArrayView2, ShapeBuilder as _};

use self::objects::{Algorithm, Handle, Layout, Matmul, Object as _, Plan};
use self::status::{INVALID, NOT_INITIALIZED, NOT_SUPPORTED, translate};
use crate::compute::{Element, Factor, Matrix, Vector, submit, taint, write};
use crate::hip;
use crate::hipblaslt::Activation;

/// The extents of 16-bit matrices must be multiples of this.
const MULTIPLE: usize = 8;
/// Algorithms, which all compute the same.
const ALGORITHMS: i32 = 2;

fn transposed(operation: hipsparseOperation_t) -> Result<bool, hipsparseStatus_t> {
    match operation {
        hipsparseOperation_t::HIPSPARSE_OPERATION_NON_TRANSPOSE => Ok(false),
        hipsparseOperation_t::HIPSPARSE_OPERATION_TRANSPOSE => Ok(true),
        _ => Err(NOT_SUPPORTED),
    }
}

fn element(datatype: hipDataType) -> Result<Element, hipsparseStatus_t> {
    match datatype {
        hipDataType::HIP_R_16F => Ok(Element::F16),
        hipDataType::HIP_R_16BF => Ok(Element::Bf16),
        _ => Err(NOT_SUPPORTED),
    }
}

fn layout(
    [rows, columns, leading]: [i64; 3],
    kind: hipDataType,
    order: hipsparseOrder_t,
    structured: bool,
) -> Result<Layout, hipsparseStatus_t> {
    let [rows, columns, leading] = [rows, columns, leading].map(usize::try_from);
    let (Ok(rows), Ok(columns), Ok(leading)) = (rows, columns, leading) else {
        return Err(INVALID);
    };
    if rows == 0 || columns == 0 || leading < rows {
        return Err(INVALID);
    }
    let multiples = [rows, columns, leading]
        .iter()
        .all(|size| size.is_multiple_of(MULTIPLE));
    if order != hipsparseOrder_t::HIPSPARSE_ORDER_COL || !multiples {
        return Err(NOT_SUPPORTED);
    }
    Ok(Layout {
        rows,
        columns,
        leading,
        element: element(kind)?,
        structured,
    })
}

/// Reads a `T` from the `size` bytes at `at`.
///
/// # Safety
/// `at` is null or has these bytes, of a `T`.
unsafe fn value<T: Copy>(at: *const c_void, size: usize) -> Result<T, hipsparseStatus_t> {
    if at.is_null() || size < size_of::<T>() {
        return Err(INVALID);
    }
    // SAFETY: the caller guarantees that `at` has `size` readable bytes.
    Ok(unsafe { at.cast::<T>().read_unaligned() })
}

/// Writes a `T` to the `size` bytes at `to`.
///
/// # Safety
/// `to` is null or has these bytes, which may be written.
unsafe fn set_value<T>(to: *mut c_void, size: usize, value: T) -> Result<(), hipsparseStatus_t> {
    if to.is_null() || size < size_of::<T>() {
        return Err(INVALID);
    }
    // SAFETY: as the caller says, there are enough.
    unsafe { to.cast::<T>().write_unaligned(value) };
    Ok(())
}

/// `D = activation(alpha·Aᵀ·B + beta·C + bias)`.
#[derive(Clone, Copy, Debug)]
struct Call {
    matmul: Matmul,
    alpha: f32,
    beta: f32,
    /// Addresses of A, B, C and D.
    addresses: [u64; 4],
}

impl Call {
    fn run(&self, memory: &Memory) -> Result<(), FaultKind> {
        let Matmul { a, b, c, d, .. } = self.matmul;
        let [at_a, at_b, at_c, at_d] = self.addresses;
        let (m, n, k) = (d.rows, d.columns, a.rows);
        let left = compressed::expand(memory, at_a, &a)?;
        let right = Factor::new(at_b, b.element, [k, n], b.leading, self.matmul.transposed_b);
        let right = right.values::<f32>(memory)?;
        let views = (
            ArrayView2::from_shape((m, k), &left),
            ArrayView2::from_shape((k, n).f(), &right),
        );
        let product = match views {
            (Ok(left), Ok(right)) => crate::compute::multiply(&left, &right, m, n),
            _ => None,
        };
        let mut result = product.ok_or_else(|| FaultKind::Configuration {
            what: format!("a matmul of [{m}, {k}] and [{k}, {n}]"),
        })?;
        let matrix = |address, layout: Layout| Matrix {
            address,
            element: layout.element,
            rows: m,
            columns: n,
            leading: layout.leading,
        };
        let old = if self.beta == 0.0 {
            None
        } else {
            Some(matrix(at_c, c).load::<f32>(memory)?)
        };
        let bias = match self.matmul.bias {
            0 => None,
            address => Some(
                Vector {
                    address,
                    element: d.element,
                    len: m,
                    increment: 1,
                }
                .load::<f32>(memory)?,
            ),
        };
        for (index, value) in result.iter_mut().enumerate() {
            *value *= self.alpha;
            if let Some(old) = &old {
                *value += self.beta * old[index];
            }
            if let Some(bias) = &bias {
                *value += bias[index % m];
            }
            *value = self.matmul.activation().of(f64::from(*value)) as f32;
        }
        matrix(at_d, d).store(memory, &result)
    }
}

impl Matmul {
    fn activation(&self) -> Activation {
        match (self.gelu, self.relu) {
            (true, _) => Activation::Gelu,
            (_, true) => Activation::Relu,
            _ => Activation::None,
        }
    }
}

export! { hipsparselt, hipsparseStatus_t, run;
    /// On other GPUs than the library is for, the status is `HIPSPARSE_STATUS_ARCH_MISMATCH`.
    fn hipsparseLtInit(handle: *mut hipsparseLtHandle_t) {
        let device = hip::current().map_err(|_| NOT_INITIALIZED)?;
        match device.part.arch {
            "gfx942" | "gfx950" => Handle.put(handle),
            _ => Err(hipsparseStatus_t::HIPSPARSE_STATUS_ARCH_MISMATCH),
        }
    }

    fn hipsparseLtDestroy(handle: *const hipsparseLtHandle_t) {
        Handle::get(handle).map(drop)
    }

    /// The version of hipSPARSELt whose interface is implemented, such as 206 for 0.2.6.
    fn hipsparseLtGetVersion(handle: *const hipsparseLtHandle_t, version: *mut i32) {
        Handle::get(handle)?;
        let number = hipsparseltVersionMajor * 100_000 + hipsparseltVersionMinor * 100 + hipsparseltVersionPatch;
        set_value(version.cast(), size_of::<i32>(), number as i32)
    }

    fn hipsparseLtDenseDescriptorInit(
        handle: *const hipsparseLtHandle_t, matrix: *mut hipsparseLtMatDescriptor_t, rows: i64, columns: i64,
        leading: i64, _alignment: u32, kind: hipDataType, order: hipsparseOrder_t,
    ) {
        Handle::get(handle)?;
        layout([rows, columns, leading], kind, order, false)?.put(matrix)
    }

    fn hipsparseLtStructuredDescriptorInit(
        handle: *const hipsparseLtHandle_t, matrix: *mut hipsparseLtMatDescriptor_t, rows: i64, columns: i64,
        leading: i64, _alignment: u32, kind: hipDataType, order: hipsparseOrder_t, _sparsity: hipsparseLtSparsity_t,
    ) {
        Handle::get(handle)?;
        layout([rows, columns, leading], kind, order, true)?.put(matrix)
    }

    fn hipsparseLtMatDescriptorDestroy(matrix: *const hipsparseLtMatDescriptor_t) {
        Layout::get(matrix).map(drop)
    }

    fn hipsparseLtMatmulDescriptorInit(
        handle: *const hipsparseLtHandle_t, matmul: *mut hipsparseLtMatmulDescriptor_t,
        operation_a: hipsparseOperation_t, operation_b: hipsparseOperation_t, a: *const hipsparseLtMatDescriptor_t,
        b: *const hipsparseLtMatDescriptor_t, c: *const hipsparseLtMatDescriptor_t,
        d: *const hipsparseLtMatDescriptor_t, compute: hipsparseLtComputetype_t,
    ) {
        Handle::get(handle)?;
        let [a, b, c, d] = [Layout::get(a)?, Layout::get(b)?, Layout::get(c)?, Layout::get(d)?];
        let transposed_b = transposed(operation_b)?;
        let dense = [b, c, d].iter().all(|layout| !layout.structured && layout.element == a.element);
        if !transposed(operation_a)? || !a.structured || !dense
            || compute != hipsparseLtComputetype_t::HIPSPARSELT_COMPUTE_32F
        {
            return Err(NOT_SUPPORTED);
        }
        let (k, n) = if transposed_b { (b.columns, b.rows) } else { (b.rows, b.columns) };
        if k != a.rows || [c, d].iter().any(|layout| (layout.rows, layout.columns) != (a.columns, n)) {
            return Err(INVALID);
        }
        Matmul { a, b, c, d, transposed_b, bias: 0, gelu: false, relu: false }.put(matmul)
    }

    fn hipsparseLtMatmulDescSetAttribute(
        handle: *const hipsparseLtHandle_t, matmul: *mut hipsparseLtMatmulDescriptor_t, attribute: Attribute,
        from: *const c_void, size: usize,
    ) {
        Handle::get(handle)?;
        let mut of = Matmul::get(matmul)?;
        match attribute {
            Attribute::HIPSPARSELT_MATMUL_BIAS_POINTER => of.bias = value::<u64>(from, size)?,
            Attribute::HIPSPARSELT_MATMUL_ACTIVATION_GELU => of.gelu = value::<i32>(from, size)? != 0,
            Attribute::HIPSPARSELT_MATMUL_ACTIVATION_RELU => of.relu = value::<i32>(from, size)? != 0,
            _ => return Err(NOT_SUPPORTED),
        }
        of.put(matmul)
    }

    fn hipsparseLtMatmulDescGetAttribute(
        handle: *const hipsparseLtHandle_t, matmul: *const hipsparseLtMatmulDescriptor_t, attribute: Attribute,
        to: *mut c_void, size: usize,
    ) {
        Handle::get(handle)?;
        let of = Matmul::get(matmul)?;
        match attribute {
            Attribute::HIPSPARSELT_MATMUL_BIAS_POINTER => set_value(to, size, of.bias),
            Attribute::HIPSPARSELT_MATMUL_ACTIVATION_GELU => set_value(to, size, i32::from(of.gelu)),
            Attribute::HIPSPARSELT_MATMUL_ACTIVATION_RELU => set_value(to, size, i32::from(of.relu)),
            _ => Err(NOT_SUPPORTED),
        }
    }

    fn hipsparseLtMatmulAlgSelectionInit(
        handle: *const hipsparseLtHandle_t, algorithm: *mut hipsparseLtMatmulAlgSelection_t,
        matmul: *const hipsparseLtMatmulDescriptor_t, _default: hipsparseLtMatmulAlg_t,
    ) {
        Handle::get(handle)?;
        Matmul::get(matmul)?;
        Algorithm { number: 0 }.put(algorithm)
    }

    fn hipsparseLtMatmulAlgSetAttribute(
        handle: *const hipsparseLtHandle_t, algorithm: *mut hipsparseLtMatmulAlgSelection_t,
        attribute: hipsparseLtMatmulAlgAttribute_t, from: *const c_void, size: usize,
    ) {
        Handle::get(handle)?;
        Algorithm::get(algorithm)?;
        match attribute {
            hipsparseLtMatmulAlgAttribute_t::HIPSPARSELT_MATMUL_ALG_CONFIG_ID => {
                let number = value::<i32>(from, size)?;
                if !(0..ALGORITHMS).contains(&number) {
                    return Err(INVALID);
                }
                Algorithm { number }.put(algorithm)
            }
            _ => Err(NOT_SUPPORTED),
        }
    }

    fn hipsparseLtMatmulAlgGetAttribute(
        handle: *const hipsparseLtHandle_t, algorithm: *const hipsparseLtMatmulAlgSelection_t,
        attribute: hipsparseLtMatmulAlgAttribute_t, to: *mut c_void, size: usize,
    ) {
        use hipsparseLtMatmulAlgAttribute_t as Of;
        Handle::get(handle)?;
        let of = Algorithm::get(algorithm)?;
        match attribute {
            Of::HIPSPARSELT_MATMUL_ALG_CONFIG_ID => set_value(to, size, of.number),
            Of::HIPSPARSELT_MATMUL_ALG_CONFIG_MAX_ID => set_value(to, size, ALGORITHMS),
            _ => Err(NOT_SUPPORTED),
        }
    }

    /// Returns 0: no workspace is needed.
    fn hipsparseLtMatmulGetWorkspace(
        handle: *const hipsparseLtHandle_t, plan: *const hipsparseLtMatmulPlan_t, size: *mut usize,
    ) {
        Handle::get(handle)?;
        Plan::get(plan)?;
        set_value(size.cast(), size_of::<usize>(), 0_usize)
    }

    fn hipsparseLtMatmulPlanInit(
        handle: *const hipsparseLtHandle_t, plan: *mut hipsparseLtMatmulPlan_t,
        matmul: *const hipsparseLtMatmulDescriptor_t, algorithm: *const hipsparseLtMatmulAlgSelection_t,
    ) {
        Handle::get(handle)?;
        Algorithm::get(algorithm)?;
        Plan { matmul: Matmul::get(matmul)? }.put(plan)
    }

    fn hipsparseLtMatmulPlanDestroy(plan: *const hipsparseLtMatmulPlan_t) {
        Plan::get(plan).map(drop)
    }

    /// Uses the first of several streams.
    fn hipsparseLtMatmul(
        handle: *const hipsparseLtHandle_t, plan: *const hipsparseLtMatmulPlan_t, alpha: *const c_void,
        a: *const c_void, b: *const c_void, beta: *const c_void, c: *const c_void, d: *mut c_void,
        _workspace: *mut c_void, streams: *mut hipStream_t, count: i32,
    ) {
        Handle::get(handle)?;
        let call = Call {
            matmul: Plan::get(plan)?.matmul,
            alpha: value(alpha, size_of::<f32>())?,
            beta: value(beta, size_of::<f32>())?,
            addresses: [a, b, c, d.cast_const()].map(|at| at.expose_provenance() as u64),
        };
        let [at_a, at_b, at_c, at_d] = call.addresses;
        if at_a == 0 || at_b == 0 || at_d == 0 || at_c == 0 && call.beta != 0.0 {
            return Err(INVALID);
        }
        let stream = if count > 0 && !streams.is_null() { streams.read() } else { std::ptr::null_mut() };
        submit(stream, "hipsparseLtMatmul", move |memory: &_| call.run(memory)).map_err(translate)
    }

    fn hipsparseLtSpMMACompressedSize2(
        handle: *const hipsparseLtHandle_t, matrix: *const hipsparseLtMatDescriptor_t, size: *mut usize,
        buffer: *mut usize,
    ) {
        Handle::get(handle)?;
        let of = Layout::get(matrix)?;
        if !of.structured {
            return Err(INVALID);
        }
        set_value(size.cast(), size_of::<usize>(), compressed::bytes(&of))?;
        set_value(buffer.cast(), size_of::<usize>(), 0_usize)
    }

    /// A matrix that is not 2:4 sparse is a fault.
    fn hipsparseLtSpMMACompress2(
        handle: *const hipsparseLtHandle_t, matrix: *const hipsparseLtMatDescriptor_t, is_a: i32,
        operation: hipsparseOperation_t, from: *const c_void, to: *mut c_void, _buffer: *mut c_void,
        stream: hipStream_t,
    ) {
        Handle::get(handle)?;
        let of = Layout::get(matrix)?;
        if is_a == 0 || !transposed(operation)? {
            return Err(NOT_SUPPORTED);
        }
        if !of.structured || from.is_null() || to.is_null() {
            return Err(INVALID);
        }
        let [from, to] = [from, to.cast_const()].map(|at| at.expose_provenance() as u64);
        let work = move |memory: &_| {
            let bytes = compressed::compress(memory, from, &of)?;
            // A probe stores nothing; what is compressed of a marked matrix counts as unmarked.
            if taint::is_probe() { Ok(()) } else { write(memory, to, &bytes) }
        };
        submit(stream, "hipsparseLtSpMMACompress2", work).map_err(translate)
    }
}

// Batches, the search for an algorithm, pruning, and compression by a plan, which the second functions replace.
not_offered! { hipsparselt, hipsparseStatus_t, hipsparseStatus_t::HIPSPARSE_STATUS_NOT_SUPPORTED;
    hipsparseLtMatDescSetAttribute hipsparseLtMatDescGetAttribute hipsparseLtMatmulSearch
    hipsparseLtSpMMAPrune hipsparseLtSpMMAPruneCheck hipsparseLtSpMMAPrune2 hipsparseLtSpMMAPruneCheck2
    hipsparseLtSpMMACompressedSize hipsparseLtSpMMACompress
}
