//! GEMM.
//!
//! GEMMs that rocBLAS computes in f16 are summed in f32 here, and rounded once.

use std::ffi::c_void;

use gcnrun::{FaultKind, Memory};
use hip_provider::export;
use hip_provider::rocblas::{put, run};
use hipvit_sys::rocblas::{
    rocblas_datatype, rocblas_gemm_algo, rocblas_gemm_flags_, rocblas_half, rocblas_handle,
    rocblas_operation, rocblas_status, rocblas_stride,
};
use rayon::prelude::*;

use super::{Handle, INVALID_POINTER, element, is_transposed, size};
use crate::compute::{Batch, Element, Factor, Matrix, Real, Scalar, gemm, write};

/// The only solution, for callers that list solutions.
const SOLUTION: i32 = 1;

const F32: rocblas_datatype = rocblas_datatype::rocblas_datatype_f32_r;
const F16: rocblas_datatype = rocblas_datatype::rocblas_datatype_f16_r;

/// One of the matrices A, B, C and D, as a caller gives it.
#[derive(Clone, Copy)]
struct Argument {
    /// Address of the first matrix, or of the array of all addresses.
    at: *const c_void,
    datatype: rocblas_datatype,
    leading: i32,
    /// Elements from one matrix of the batch to the next; `None` if `at` is an array of addresses.
    stride: Option<i64>,
}

impl Argument {
    fn one(at: *const c_void, datatype: rocblas_datatype, leading: i32) -> Self {
        Self {
            at,
            datatype,
            leading,
            stride: Some(0),
        }
    }

    fn strided(at: *const c_void, datatype: rocblas_datatype, leading: i32, stride: i64) -> Self {
        Self {
            at,
            datatype,
            leading,
            stride: Some(stride),
        }
    }

    fn array(at: *const c_void, datatype: rocblas_datatype, leading: i32) -> Self {
        Self {
            at,
            datatype,
            leading,
            stride: None,
        }
    }

    fn operand(&self) -> Result<Operand, rocblas_status> {
        Ok(Operand {
            batch: Batch::new(self.at.expose_provenance() as u64, self.stride),
            element: element(self.datatype)?,
            leading: size(self.leading)?,
        })
    }
}

/// A call's arguments except the matrices.
#[derive(Clone, Copy)]
struct Call {
    operations: [rocblas_operation; 2],
    /// m, n and k.
    sizes: [i32; 3],
    alpha: *const c_void,
    beta: *const c_void,
    compute: rocblas_datatype,
    batch: i32,
}

/// A matrix operand of a batch.
#[derive(Clone, Copy)]
struct Operand {
    batch: Batch,
    element: Element,
    leading: usize,
}

/// A validated GEMM: `D = alpha·op(A)·op(B) + beta·C`, for each matrix of a batch.
struct Gemm {
    transposed: [bool; 2],
    sizes: [usize; 3],
    alpha: Scalar,
    beta: Scalar,
    a: Operand,
    b: Operand,
    c: Operand,
    d: Operand,
    count: usize,
    /// In f64.
    wide: bool,
    workspace: Option<(u64, usize)>,
}

/// Returns true for types that are computed in f64; an error if rocBLAS does not support the types.
fn is_wide([a, b, c, d]: [rocblas_datatype; 4], compute: rocblas_datatype) -> Result<bool, rocblas_status> {
    use Element::{Bf16, F16, F32, F64, I8, I32};
    if a != b || c != d {
        return Err(rocblas_status::rocblas_status_not_implemented);
    }
    match (element(a)?, element(c)?, element(compute)?) {
        (F32, F32, F32) | (F16, F16, F16) | (F16 | Bf16, F32, F32) | (F16, F16, F32) | (Bf16, Bf16, F32) => {
            Ok(false)
        }
        (F64, F64, F64) | (I8, I32, I32) => Ok(true),
        _ => Err(rocblas_status::rocblas_status_not_implemented),
    }
}

/// Checks a call as rocBLAS does, in its order: `None` if there is nothing to do.
///
/// # Safety
/// In host pointer mode, alpha and beta are null or numbers of the type computed in.
unsafe fn checked(
    handle: &Handle,
    call: &Call,
    [a, b, c, d]: [Argument; 4],
) -> Result<Option<Gemm>, rocblas_status> {
    const INVALID_SIZE: rocblas_status = rocblas_status::rocblas_status_invalid_size;
    let transposed = [
        is_transposed(call.operations[0])?,
        is_transposed(call.operations[1])?,
    ];
    let [m, n, k] = call.sizes;
    if m < 0 || n < 0 || k < 0 || call.batch < 0 {
        return Err(INVALID_SIZE);
    }
    let least_a = if transposed[0] { k } else { m };
    let least_b = if transposed[1] { n } else { k };
    if c.leading < m || d.leading < m || a.leading < least_a || b.leading < least_b {
        return Err(INVALID_SIZE);
    }
    if m == 0 || n == 0 || call.batch == 0 {
        return Ok(None);
    }
    if (k > 0 && call.alpha.is_null()) || call.beta.is_null() || d.at.is_null() {
        return Err(INVALID_POINTER);
    }
    let compute = element(call.compute)?;
    // SAFETY: as the caller says; beta is not null.
    let beta = unsafe { handle.scalar(call.beta, compute) }?;
    let alpha = if k == 0 {
        Scalar::Given(0.0)
    } else {
        // SAFETY: as above.
        unsafe { handle.scalar(call.alpha, compute) }?
    };
    if c.at.is_null() && !beta.is_zero() || (a.at.is_null() || b.at.is_null()) && !alpha.is_zero() {
        return Err(INVALID_POINTER);
    }
    if c.at == d.at {
        if c.leading != d.leading {
            return Err(INVALID_SIZE);
        }
        if c.datatype != d.datatype {
            return Err(rocblas_status::rocblas_status_invalid_value);
        }
    }
    Ok(Some(Gemm {
        transposed,
        sizes: [size(m)?, size(n)?, size(k)?],
        alpha,
        beta,
        wide: is_wide([a, b, c, d].map(|matrix| matrix.datatype), call.compute)?,
        a: a.operand()?,
        b: b.operand()?,
        c: c.operand()?,
        d: d.operand()?,
        count: size(call.batch)?,
        workspace: handle.workspace,
    }))
}

/// Checks a call and submits its work.
///
/// # Safety
/// In host pointer mode, alpha and beta are null or numbers of the type computed in.
unsafe fn submit(
    name: &str,
    of: rocblas_handle,
    call: &Call,
    matrices: [Argument; 4],
) -> Result<(), rocblas_status> {
    let handle = Handle::of(of)?;
    // SAFETY: as the caller says.
    let Some(gemm) = unsafe { checked(&handle, call, matrices) }? else {
        return Ok(());
    };
    handle.submit(name, move |memory| {
        gemm.use_workspace(memory)?;
        if gemm.wide {
            gemm.run::<f64>(memory)
        } else {
            gemm.run::<f32>(memory)
        }
    })
}

impl Gemm {
    fn run<T: Real>(&self, memory: &Memory) -> Result<(), FaultKind> {
        let (alpha, beta) = (self.alpha.value(memory)?, self.beta.value(memory)?);
        let one = |index| self.run_one(memory, index, T::of(alpha), T::of(beta));
        (0..self.count).into_par_iter().try_for_each(one)
    }

    /// A, B and C are not read where their factor is zero, as in BLAS.
    fn run_one<T: Real>(&self, memory: &Memory, index: usize, alpha: T, beta: T) -> Result<(), FaultKind> {
        let [m, n, k] = self.sizes;
        let factor = |of: &Operand, shape, transposed| {
            let address = of.batch.address(memory, index, of.element)?;
            Ok(Factor::new(address, of.element, shape, of.leading, transposed))
        };
        let mut result = if alpha == T::zero() || k == 0 {
            vec![T::zero(); m * n]
        } else {
            let a = factor(&self.a, [m, k], self.transposed[0])?;
            let b = factor(&self.b, [k, n], self.transposed[1])?;
            gemm(memory, &a, &b)?
        };
        let matrix = |of: &Operand| {
            let address = of.batch.address(memory, index, of.element)?;
            Ok(Matrix {
                address,
                element: of.element,
                rows: m,
                columns: n,
                leading: of.leading,
            })
        };
        if beta == T::zero() {
            result.iter_mut().for_each(|value| *value = alpha * *value);
        } else {
            let old = matrix(&self.c)?.load::<T>(memory)?;
            for (value, old) in result.iter_mut().zip(old) {
                *value = alpha * *value + beta * old;
            }
        }
        matrix(&self.d)?.store(memory, &result)
    }

    /// Overwrites the caller's workspace, in which rocBLAS may keep partial sums, so that a workspace that was freed too early
    /// is detected.
    fn use_workspace(&self, memory: &Memory) -> Result<(), FaultKind> {
        let [m, n, _] = self.sizes;
        match self.workspace {
            Some((address, size)) => {
                let used = size.min(m * n * size_of::<f32>());
                write(memory, address, &vec![0xff; used])
            }
            None => Ok(()),
        }
    }
}

/// Solution 0 is rocBLAS's default.
fn check_solution(algorithm: rocblas_gemm_algo, solution: i32) -> Result<(), rocblas_status> {
    if algorithm == rocblas_gemm_algo::rocblas_gemm_algo_solution_index && ![0, SOLUTION].contains(&solution)
    {
        return Err(rocblas_status::rocblas_status_invalid_value);
    }
    Ok(())
}

/// True if the caller only asks whether the solution is supported.
fn only_checks(flags: u32) -> bool {
    flags & rocblas_gemm_flags_::rocblas_gemm_flags_check_solution_index.0 != 0
}

/// Writes the list of solutions, or its length if there is no list.
///
/// # Safety
/// `list` is null or has as many elements as `count` says.
unsafe fn list_solutions(of: rocblas_handle, list: *mut i32, count: *mut i32) -> Result<(), rocblas_status> {
    Handle::of(of)?;
    if count.is_null() {
        return Err(INVALID_POINTER);
    }
    if list.is_null() {
        // SAFETY: it is not null.
        return unsafe { put(count, 1) };
    }
    // SAFETY: as the caller says.
    unsafe { if *count > 0 { put(list, SOLUTION) } else { Ok(()) } }
}

export! { rocblas, rocblas_status, run;
    fn rocblas_gemm_ex(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const c_void, a: *const c_void, a_type: rocblas_datatype, lda: i32, b: *const c_void,
        b_type: rocblas_datatype, ldb: i32, beta: *const c_void, c: *const c_void, c_type: rocblas_datatype, ldc: i32,
        d: *mut c_void, d_type: rocblas_datatype, ldd: i32, compute: rocblas_datatype,
        algorithm: rocblas_gemm_algo, solution: i32, flags: u32,
    ) {
        check_solution(algorithm, solution)?;
        if only_checks(flags) {
            return Ok(());
        }
        let call = Call { operations: [op_a, op_b], sizes: [m, n, k], alpha, beta, compute, batch: 1 };
        submit("rocblas_gemm_ex", of, &call, [
            Argument::one(a, a_type, lda), Argument::one(b, b_type, ldb), Argument::one(c, c_type, ldc),
            Argument::one(d, d_type, ldd),
        ])
    }

    fn rocblas_gemm_strided_batched_ex(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const c_void, a: *const c_void, a_type: rocblas_datatype, lda: i32, stride_a: rocblas_stride,
        b: *const c_void, b_type: rocblas_datatype, ldb: i32, stride_b: rocblas_stride, beta: *const c_void,
        c: *const c_void, c_type: rocblas_datatype, ldc: i32, stride_c: rocblas_stride, d: *mut c_void,
        d_type: rocblas_datatype, ldd: i32, stride_d: rocblas_stride, batch: i32, compute: rocblas_datatype,
        algorithm: rocblas_gemm_algo, solution: i32, flags: u32,
    ) {
        check_solution(algorithm, solution)?;
        if only_checks(flags) {
            return Ok(());
        }
        let call = Call { operations: [op_a, op_b], sizes: [m, n, k], alpha, beta, compute, batch };
        submit("rocblas_gemm_strided_batched_ex", of, &call, [
            Argument::strided(a, a_type, lda, stride_a), Argument::strided(b, b_type, ldb, stride_b),
            Argument::strided(c, c_type, ldc, stride_c), Argument::strided(d, d_type, ldd, stride_d),
        ])
    }

    fn rocblas_gemm_batched_ex(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const c_void, a: *const c_void, a_type: rocblas_datatype, lda: i32, b: *const c_void,
        b_type: rocblas_datatype, ldb: i32, beta: *const c_void, c: *const c_void, c_type: rocblas_datatype, ldc: i32,
        d: *mut c_void, d_type: rocblas_datatype, ldd: i32, batch: i32, compute: rocblas_datatype,
        algorithm: rocblas_gemm_algo, solution: i32, flags: u32,
    ) {
        check_solution(algorithm, solution)?;
        if only_checks(flags) {
            return Ok(());
        }
        let call = Call { operations: [op_a, op_b], sizes: [m, n, k], alpha, beta, compute, batch };
        submit("rocblas_gemm_batched_ex", of, &call, [
            Argument::array(a, a_type, lda), Argument::array(b, b_type, ldb), Argument::array(c, c_type, ldc),
            Argument::array(d, d_type, ldd),
        ])
    }

    fn rocblas_sgemm(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const f32, a: *const f32, lda: i32, b: *const f32, ldb: i32, beta: *const f32, c: *mut f32, ldc: i32,
    ) {
        let call = Call {
            operations: [op_a, op_b], sizes: [m, n, k], alpha: alpha.cast(), beta: beta.cast(), compute: F32, batch: 1,
        };
        let c = Argument::one(c.cast(), F32, ldc);
        submit("rocblas_sgemm", of, &call, [
            Argument::one(a.cast(), F32, lda), Argument::one(b.cast(), F32, ldb), c, c,
        ])
    }

    fn rocblas_hgemm(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const rocblas_half, a: *const rocblas_half, lda: i32, b: *const rocblas_half, ldb: i32,
        beta: *const rocblas_half, c: *mut rocblas_half, ldc: i32,
    ) {
        let call = Call {
            operations: [op_a, op_b], sizes: [m, n, k], alpha: alpha.cast(), beta: beta.cast(), compute: F16, batch: 1,
        };
        let c = Argument::one(c.cast(), F16, ldc);
        submit("rocblas_hgemm", of, &call, [
            Argument::one(a.cast(), F16, lda), Argument::one(b.cast(), F16, ldb), c, c,
        ])
    }

    fn rocblas_sgemm_batched(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const f32, a: *const *const f32, lda: i32, b: *const *const f32, ldb: i32, beta: *const f32,
        c: *const *mut f32, ldc: i32, batch: i32,
    ) {
        let call = Call {
            operations: [op_a, op_b], sizes: [m, n, k], alpha: alpha.cast(), beta: beta.cast(), compute: F32, batch,
        };
        let c = Argument::array(c.cast(), F32, ldc);
        submit("rocblas_sgemm_batched", of, &call, [
            Argument::array(a.cast(), F32, lda), Argument::array(b.cast(), F32, ldb), c, c,
        ])
    }

    fn rocblas_hgemm_batched(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const rocblas_half, a: *const *const rocblas_half, lda: i32, b: *const *const rocblas_half, ldb: i32,
        beta: *const rocblas_half, c: *const *mut rocblas_half, ldc: i32, batch: i32,
    ) {
        let call = Call {
            operations: [op_a, op_b], sizes: [m, n, k], alpha: alpha.cast(), beta: beta.cast(), compute: F16, batch,
        };
        let c = Argument::array(c.cast(), F16, ldc);
        submit("rocblas_hgemm_batched", of, &call, [
            Argument::array(a.cast(), F16, lda), Argument::array(b.cast(), F16, ldb), c, c,
        ])
    }

    fn rocblas_sgemm_strided_batched(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const f32, a: *const f32, lda: i32, stride_a: rocblas_stride, b: *const f32, ldb: i32,
        stride_b: rocblas_stride, beta: *const f32, c: *mut f32, ldc: i32, stride_c: rocblas_stride, batch: i32,
    ) {
        let call = Call {
            operations: [op_a, op_b], sizes: [m, n, k], alpha: alpha.cast(), beta: beta.cast(), compute: F32, batch,
        };
        let c = Argument::strided(c.cast(), F32, ldc, stride_c);
        submit("rocblas_sgemm_strided_batched", of, &call, [
            Argument::strided(a.cast(), F32, lda, stride_a), Argument::strided(b.cast(), F32, ldb, stride_b), c, c,
        ])
    }

    fn rocblas_hgemm_strided_batched(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, k: i32,
        alpha: *const rocblas_half, a: *const rocblas_half, lda: i32, stride_a: rocblas_stride,
        b: *const rocblas_half, ldb: i32, stride_b: rocblas_stride, beta: *const rocblas_half, c: *mut rocblas_half,
        ldc: i32, stride_c: rocblas_stride, batch: i32,
    ) {
        let call = Call {
            operations: [op_a, op_b], sizes: [m, n, k], alpha: alpha.cast(), beta: beta.cast(), compute: F16, batch,
        };
        let c = Argument::strided(c.cast(), F16, ldc, stride_c);
        submit("rocblas_hgemm_strided_batched", of, &call, [
            Argument::strided(a.cast(), F16, lda, stride_a), Argument::strided(b.cast(), F16, ldb, stride_b), c, c,
        ])
    }

    fn rocblas_gemm_ex_get_solutions(
        of: rocblas_handle, _op_a: rocblas_operation, _op_b: rocblas_operation, _m: i32, _n: i32, _k: i32,
        _alpha: *const c_void, _a: *const c_void, a_type: rocblas_datatype, _lda: i32, _b: *const c_void,
        b_type: rocblas_datatype, _ldb: i32, _beta: *const c_void, _c: *const c_void, c_type: rocblas_datatype,
        _ldc: i32, _d: *mut c_void, d_type: rocblas_datatype, _ldd: i32, compute: rocblas_datatype,
        _algorithm: rocblas_gemm_algo, _flags: u32, list: *mut i32, count: *mut i32,
    ) {
        is_wide([a_type, b_type, c_type, d_type], compute)?;
        list_solutions(of, list, count)
    }

    fn rocblas_gemm_ex_get_solutions_by_type(
        of: rocblas_handle, input: rocblas_datatype, output: rocblas_datatype, compute: rocblas_datatype,
        _flags: u32, list: *mut i32, count: *mut i32,
    ) {
        is_wide([input, input, output, output], compute)?;
        list_solutions(of, list, count)
    }

    fn rocblas_gemm_batched_ex_get_solutions(
        of: rocblas_handle, _op_a: rocblas_operation, _op_b: rocblas_operation, _m: i32, _n: i32, _k: i32,
        _alpha: *const c_void, _a: *const c_void, a_type: rocblas_datatype, _lda: i32, _b: *const c_void,
        b_type: rocblas_datatype, _ldb: i32, _beta: *const c_void, _c: *const c_void, c_type: rocblas_datatype,
        _ldc: i32, _d: *mut c_void, d_type: rocblas_datatype, _ldd: i32, _batch: i32, compute: rocblas_datatype,
        _algorithm: rocblas_gemm_algo, _flags: u32, list: *mut i32, count: *mut i32,
    ) {
        is_wide([a_type, b_type, c_type, d_type], compute)?;
        list_solutions(of, list, count)
    }

    fn rocblas_gemm_batched_ex_get_solutions_by_type(
        of: rocblas_handle, input: rocblas_datatype, output: rocblas_datatype, compute: rocblas_datatype,
        _flags: u32, list: *mut i32, count: *mut i32,
    ) {
        is_wide([input, input, output, output], compute)?;
        list_solutions(of, list, count)
    }

    fn rocblas_gemm_strided_batched_ex_get_solutions(
        of: rocblas_handle, _op_a: rocblas_operation, _op_b: rocblas_operation, _m: i32, _n: i32, _k: i32,
        _alpha: *const c_void, _a: *const c_void, a_type: rocblas_datatype, _lda: i32, _stride_a: rocblas_stride,
        _b: *const c_void, b_type: rocblas_datatype, _ldb: i32, _stride_b: rocblas_stride, _beta: *const c_void,
        _c: *const c_void, c_type: rocblas_datatype, _ldc: i32, _stride_c: rocblas_stride, _d: *mut c_void,
        d_type: rocblas_datatype, _ldd: i32, _stride_d: rocblas_stride, _batch: i32, compute: rocblas_datatype,
        _algorithm: rocblas_gemm_algo, _flags: u32, list: *mut i32, count: *mut i32,
    ) {
        is_wide([a_type, b_type, c_type, d_type], compute)?;
        list_solutions(of, list, count)
    }

    /// `C = alpha·op(A) + beta·op(B)`; C may be A or B where that is not transposed.
    fn rocblas_sgeam(
        of: rocblas_handle, op_a: rocblas_operation, op_b: rocblas_operation, m: i32, n: i32, alpha: *const f32,
        a: *const f32, lda: i32, beta: *const f32, b: *const f32, ldb: i32, c: *mut f32, ldc: i32,
    ) {
        let handle = Handle::of(of)?;
        let transposed = [is_transposed(op_a)?, is_transposed(op_b)?];
        let least = |transposed| if transposed { n } else { m };
        if m < 0 || n < 0 || ldc < m || lda < least(transposed[0]) || ldb < least(transposed[1]) {
            return Err(rocblas_status::rocblas_status_invalid_size);
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        let factors = [
            handle.scalar(alpha.cast(), Element::F32)?,
            handle.scalar(beta.cast(), Element::F32)?,
        ];
        let matrices = [(a, lda, transposed[0], factors[0]), (b, ldb, transposed[1], factors[1])];
        if c.is_null() || matrices.iter().any(|(at, _, _, factor)| at.is_null() && !factor.is_zero()) {
            return Err(INVALID_POINTER);
        }
        let in_place = |(at, leading, transposed, _): &(*const f32, i32, bool, Scalar)| {
            at.cast_mut() == c && (*leading != ldc || *transposed)
        };
        if matrices.iter().any(in_place) {
            return Err(rocblas_status::rocblas_status_invalid_size);
        }
        let shape = [size(m)?, size(n)?];
        let mut terms = Vec::new();
        for (at, leading, transposed, factor) in matrices {
            let address = at.expose_provenance() as u64;
            terms.push((Factor::new(address, Element::F32, shape, size(leading)?, transposed), factor));
        }
        let result = Matrix {
            address: c.expose_provenance() as u64, element: Element::F32, rows: shape[0], columns: shape[1],
            leading: size(ldc)?,
        };
        handle.submit("rocblas_sgeam", move |memory| {
            let mut sum = vec![0.0_f32; shape[0] * shape[1]];
            for (matrix, factor) in &terms {
                let factor = factor.value(memory)? as f32;
                if factor != 0.0 {
                    let values = matrix.values::<f32>(memory)?;
                    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += factor * value);
                }
            }
            result.store(memory, &sum)
        })
    }
}
