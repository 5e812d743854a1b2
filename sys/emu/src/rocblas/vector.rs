//! Vector operations and GEMV. All are computed in f64 and rounded once.

use std::ffi::c_void;
use std::sync::mpsc;

use gcnrun::{FaultKind, Memory};
use hip_provider::export;
use hip_provider::rocblas::run;
use hipvit_sys::rocblas::{
    rocblas_datatype, rocblas_handle, rocblas_operation, rocblas_status, rocblas_stride,
};
use rayon::prelude::*;

use super::{Handle, INVALID_POINTER, element, is_transposed, size, translate};
use crate::compute::{Batch, Element, Factor, Real as _, Scalar, Vector, write};
use crate::hip;

const F32: Element = Element::F32;

fn vector(at: *const c_void, element: Element, len: i32, increment: i32) -> Result<Vector, rocblas_status> {
    if at.is_null() {
        return Err(INVALID_POINTER);
    }
    Ok(Vector {
        address: at.expose_provenance() as u64,
        element,
        len: size(len)?,
        increment: increment.into(),
    })
}

/// Checks the types of a `_ex` call: x and y of one type, computed in that or a wider one.
fn check_types(
    [x, y]: [rocblas_datatype; 2],
    other: rocblas_datatype,
    execution: rocblas_datatype,
) -> Result<(), rocblas_status> {
    use Element::{Bf16, F16, F32, F64};
    match (element(x)?, element(other)?, element(execution)?) {
        (F16, F16 | F32, F16 | F32) | (Bf16, Bf16 | F32, F32) | (F32, F32, F32 | F64) | (F64, F64, F64)
            if x == y =>
        {
            Ok(())
        }
        _ => Err(rocblas_status::rocblas_status_not_implemented),
    }
}

/// Submits the computation of a number. A result on the host is there when the call returns, one on the device when the work
/// is complete.
///
/// # Safety
/// In host pointer mode `to` is null or may be written.
unsafe fn reduce(
    name: &str,
    handle: &Handle,
    to: *mut c_void,
    of: Element,
    compute: impl Fn(&Memory) -> Result<f64, FaultKind> + Send + Sync + 'static,
) -> Result<(), rocblas_status> {
    if to.is_null() {
        return Err(INVALID_POINTER);
    }
    if handle.on_device() {
        let address = to.expose_provenance() as u64;
        return handle.submit(name, move |memory| {
            write(memory, address, &f64::encode(of, &[compute(memory)?]))
        });
    }
    let (sender, receiver) = mpsc::channel();
    handle.submit(name, move |memory| {
        // The receiver may be gone.
        let _ = sender.send(compute(memory)?);
        Ok(())
    })?;
    hip::synchronize(handle.stream()).map_err(translate)?;
    let value = receiver
        .recv()
        .map_err(|_| rocblas_status::rocblas_status_internal_error)?;
    let bytes = f64::encode(of, &[value]);
    // SAFETY: as the caller says, and it is not null.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), bytes.len()) };
    Ok(())
}

fn dot(memory: &Memory, x: Vector, y: Vector) -> Result<f64, FaultKind> {
    let (x, y) = (x.load::<f64>(memory)?, y.load::<f64>(memory)?);
    Ok(x.iter().zip(&y).map(|(x, y)| x * y).sum())
}

fn norm(memory: &Memory, x: Vector) -> Result<f64, FaultKind> {
    Ok(dot(memory, x, x)?.sqrt())
}

/// `x = alpha·x`
fn scale(name: &str, handle: &Handle, alpha: Scalar, x: Vector) -> Result<(), rocblas_status> {
    handle.submit(name, move |memory| {
        let alpha = alpha.value(memory)?;
        let scaled: Vec<f64> = x.load::<f64>(memory)?.into_iter().map(|x| alpha * x).collect();
        x.store(memory, &scaled)
    })
}

/// `y = alpha·x + y`
fn add(name: &str, handle: &Handle, alpha: Scalar, x: Vector, y: Vector) -> Result<(), rocblas_status> {
    handle.submit(name, move |memory| {
        let alpha = alpha.value(memory)?;
        if alpha == 0.0 {
            return Ok(());
        }
        let (x, old) = (x.load::<f64>(memory)?, y.load::<f64>(memory)?);
        let sum: Vec<f64> = x.iter().zip(old).map(|(x, y)| alpha * x + y).collect();
        y.store(memory, &sum)
    })
}

/// `y = alpha·op(A)·x + beta·y` for each matrix of a batch, in f32.
struct Gemv {
    operation: rocblas_operation,
    m: i32,
    n: i32,
    alpha: *const f32,
    a: (u64, i32, Option<i64>),
    x: (u64, i32, Option<i64>),
    beta: *const f32,
    y: (u64, i32, Option<i64>),
    batch: i32,
}

impl Gemv {
    /// # Safety
    /// In host pointer mode, alpha and beta are null or may be read.
    unsafe fn submit(&self, name: &str, of: rocblas_handle) -> Result<(), rocblas_status> {
        let handle = Handle::of(of)?;
        let transposed = is_transposed(self.operation)?;
        let ((a, leading, stride_a), (x, incx, stride_x), (y, incy, stride_y)) = (self.a, self.x, self.y);
        if self.m < 0 || self.n < 0 || leading < self.m.max(1) || incx == 0 || incy == 0 || self.batch < 0 {
            return Err(rocblas_status::rocblas_status_invalid_size);
        }
        if self.m == 0 || self.n == 0 || self.batch == 0 {
            return Ok(());
        }
        // SAFETY: as the caller says.
        let (alpha, beta) = unsafe {
            (
                handle.scalar(self.alpha.cast(), F32)?,
                handle.scalar(self.beta.cast(), F32)?,
            )
        };
        if y == 0 || (a == 0 || x == 0) && !alpha.is_zero() {
            return Err(INVALID_POINTER);
        }
        let (m, n, leading) = (size(self.m)?, size(self.n)?, size(leading)?);
        let shape = if transposed { [n, m] } else { [m, n] };
        let (a, x, y) = (
            Batch::new(a, stride_a),
            Batch::new(x, stride_x),
            Batch::new(y, stride_y),
        );
        let one = move |memory: &Memory, index: usize, alpha: f64, beta: f64| {
            let vector = |of: Batch, len, increment: i32| {
                let address = of.address(memory, index, F32)?;
                Ok(Vector {
                    address,
                    element: F32,
                    len,
                    increment: increment.into(),
                })
            };
            let mut result = vec![0.0; shape[0]];
            if alpha != 0.0 {
                let address = a.address(memory, index, F32)?;
                let a = Factor::new(address, F32, shape, leading, transposed);
                result = a.times(memory, &vector(x, shape[1], incx)?.load::<f64>(memory)?)?;
            }
            let y = vector(y, shape[0], incy)?;
            let old = if beta == 0.0 {
                vec![0.0; shape[0]]
            } else {
                y.load::<f64>(memory)?
            };
            for (value, old) in result.iter_mut().zip(old) {
                *value = alpha * *value + beta * old;
            }
            y.store(memory, &result)
        };
        let count = size(self.batch)?;
        handle.submit(name, move |memory| {
            let (alpha, beta) = (alpha.value(memory)?, beta.value(memory)?);
            (0..count)
                .into_par_iter()
                .try_for_each(|index| one(memory, index, alpha, beta))
        })
    }
}

fn address<T>(of: *const T) -> u64 {
    of.expose_provenance() as u64
}

export! { rocblas, rocblas_status, run;
    fn rocblas_sscal(of: rocblas_handle, n: i32, alpha: *const f32, x: *mut f32, incx: i32) {
        let handle = Handle::of(of)?;
        if n <= 0 || incx <= 0 {
            return Ok(());
        }
        let alpha = handle.scalar(alpha.cast(), F32)?;
        scale("rocblas_sscal", &handle, alpha, vector(x.cast(), F32, n, incx)?)
    }

    fn rocblas_scal_ex(
        of: rocblas_handle, n: i32, alpha: *const c_void, alpha_type: rocblas_datatype, x: *mut c_void,
        x_type: rocblas_datatype, incx: i32, execution: rocblas_datatype,
    ) {
        let handle = Handle::of(of)?;
        check_types([x_type, x_type], alpha_type, execution)?;
        if n <= 0 || incx <= 0 {
            return Ok(());
        }
        let alpha = handle.scalar(alpha, element(alpha_type)?)?;
        scale("rocblas_scal_ex", &handle, alpha, vector(x, element(x_type)?, n, incx)?)
    }

    fn rocblas_scopy(of: rocblas_handle, n: i32, x: *const f32, incx: i32, y: *mut f32, incy: i32) {
        let handle = Handle::of(of)?;
        if n <= 0 {
            return Ok(());
        }
        let (x, y) = (vector(x.cast(), F32, n, incx)?, vector(y.cast(), F32, n, incy)?);
        handle.submit("rocblas_scopy", move |memory| y.store(memory, &x.load::<f32>(memory)?))
    }

    fn rocblas_saxpy(
        of: rocblas_handle, n: i32, alpha: *const f32, x: *const f32, incx: i32, y: *mut f32, incy: i32,
    ) {
        let handle = Handle::of(of)?;
        if n <= 0 {
            return Ok(());
        }
        let alpha = handle.scalar(alpha.cast(), F32)?;
        let (x, y) = (vector(x.cast(), F32, n, incx)?, vector(y.cast(), F32, n, incy)?);
        add("rocblas_saxpy", &handle, alpha, x, y)
    }

    fn rocblas_axpy_ex(
        of: rocblas_handle, n: i32, alpha: *const c_void, alpha_type: rocblas_datatype, x: *const c_void,
        x_type: rocblas_datatype, incx: i32, y: *mut c_void, y_type: rocblas_datatype, incy: i32,
        execution: rocblas_datatype,
    ) {
        let handle = Handle::of(of)?;
        check_types([x_type, y_type], alpha_type, execution)?;
        if n <= 0 {
            return Ok(());
        }
        let alpha = handle.scalar(alpha, element(alpha_type)?)?;
        let (x, y) = (vector(x, element(x_type)?, n, incx)?, vector(y, element(y_type)?, n, incy)?);
        add("rocblas_axpy_ex", &handle, alpha, x, y)
    }

    fn rocblas_sdot(
        of: rocblas_handle, n: i32, x: *const f32, incx: i32, y: *const f32, incy: i32, result: *mut f32,
    ) {
        let handle = Handle::of(of)?;
        if n <= 0 {
            return reduce("rocblas_sdot", &handle, result.cast(), F32, |_| Ok(0.0));
        }
        let (x, y) = (vector(x.cast(), F32, n, incx)?, vector(y.cast(), F32, n, incy)?);
        reduce("rocblas_sdot", &handle, result.cast(), F32, move |memory| dot(memory, x, y))
    }

    fn rocblas_dot_ex(
        of: rocblas_handle, n: i32, x: *const c_void, x_type: rocblas_datatype, incx: i32, y: *const c_void,
        y_type: rocblas_datatype, incy: i32, result: *mut c_void, result_type: rocblas_datatype,
        execution: rocblas_datatype,
    ) {
        let handle = Handle::of(of)?;
        check_types([x_type, y_type], result_type, execution)?;
        let to = element(result_type)?;
        if n <= 0 {
            return reduce("rocblas_dot_ex", &handle, result, to, |_| Ok(0.0));
        }
        let (x, y) = (vector(x, element(x_type)?, n, incx)?, vector(y, element(y_type)?, n, incy)?);
        reduce("rocblas_dot_ex", &handle, result, to, move |memory| dot(memory, x, y))
    }

    fn rocblas_snrm2(of: rocblas_handle, n: i32, x: *const f32, incx: i32, result: *mut f32) {
        let handle = Handle::of(of)?;
        if n <= 0 || incx <= 0 {
            return reduce("rocblas_snrm2", &handle, result.cast(), F32, |_| Ok(0.0));
        }
        let x = vector(x.cast(), F32, n, incx)?;
        reduce("rocblas_snrm2", &handle, result.cast(), F32, move |memory| norm(memory, x))
    }

    fn rocblas_nrm2_ex(
        of: rocblas_handle, n: i32, x: *const c_void, x_type: rocblas_datatype, incx: i32, result: *mut c_void,
        result_type: rocblas_datatype, execution: rocblas_datatype,
    ) {
        let handle = Handle::of(of)?;
        check_types([x_type, x_type], result_type, execution)?;
        let to = element(result_type)?;
        if n <= 0 || incx <= 0 {
            return reduce("rocblas_nrm2_ex", &handle, result, to, |_| Ok(0.0));
        }
        let x = vector(x, element(x_type)?, n, incx)?;
        reduce("rocblas_nrm2_ex", &handle, result, to, move |memory| norm(memory, x))
    }

    fn rocblas_sasum(of: rocblas_handle, n: i32, x: *const f32, incx: i32, result: *mut f32) {
        let handle = Handle::of(of)?;
        if n <= 0 || incx <= 0 {
            return reduce("rocblas_sasum", &handle, result.cast(), F32, |_| Ok(0.0));
        }
        let x = vector(x.cast(), F32, n, incx)?;
        reduce("rocblas_sasum", &handle, result.cast(), F32, move |memory| {
            Ok(x.load::<f64>(memory)?.into_iter().map(f64::abs).sum())
        })
    }

    /// Counted from 1; the first of equals.
    fn rocblas_isamax(of: rocblas_handle, n: i32, x: *const f32, incx: i32, result: *mut i32) {
        let handle = Handle::of(of)?;
        if n <= 0 || incx <= 0 {
            return reduce("rocblas_isamax", &handle, result.cast(), Element::I32, |_| Ok(0.0));
        }
        let x = vector(x.cast(), F32, n, incx)?;
        reduce("rocblas_isamax", &handle, result.cast(), Element::I32, move |memory| {
            let mut largest = (1, f64::NEG_INFINITY);
            for (index, value) in (1..).zip(x.load::<f64>(memory)?) {
                if value.abs() > largest.1 {
                    largest = (index, value.abs());
                }
            }
            Ok(f64::from(largest.0))
        })
    }

    fn rocblas_sgemv(
        of: rocblas_handle, operation: rocblas_operation, m: i32, n: i32, alpha: *const f32, a: *const f32, lda: i32,
        x: *const f32, incx: i32, beta: *const f32, y: *mut f32, incy: i32,
    ) {
        let (a, x, y) = ((address(a), lda, Some(0)), (address(x), incx, Some(0)), (address(y), incy, Some(0)));
        Gemv { operation, m, n, alpha, a, x, beta, y, batch: 1 }.submit("rocblas_sgemv", of)
    }

    fn rocblas_sgemv_batched(
        of: rocblas_handle, operation: rocblas_operation, m: i32, n: i32, alpha: *const f32, a: *const *const f32,
        lda: i32, x: *const *const f32, incx: i32, beta: *const f32, y: *const *mut f32, incy: i32, batch: i32,
    ) {
        let (a, x, y) = ((address(a), lda, None), (address(x), incx, None), (address(y), incy, None));
        Gemv { operation, m, n, alpha, a, x, beta, y, batch }.submit("rocblas_sgemv_batched", of)
    }

    fn rocblas_sgemv_strided_batched(
        of: rocblas_handle, operation: rocblas_operation, m: i32, n: i32, alpha: *const f32, a: *const f32, lda: i32,
        stride_a: rocblas_stride, x: *const f32, incx: i32, stride_x: rocblas_stride, beta: *const f32, y: *mut f32,
        incy: i32, stride_y: rocblas_stride, batch: i32,
    ) {
        let (a, x) = ((address(a), lda, Some(stride_a)), (address(x), incx, Some(stride_x)));
        let y = (address(y), incy, Some(stride_y));
        Gemv { operation, m, n, alpha, a, x, beta, y, batch }.submit("rocblas_sgemv_strided_batched", of)
    }
}
