//! Vectors and matrices between host and device.

use std::ffi::c_void;

use hip_provider::export;
use hip_provider::rocblas::run;
use hipvit_sys::Status as _;
use hipvit_sys::hip::{hipError_t, hipMemcpyKind, hipStream_t};
use hipvit_sys::rocblas::rocblas_status;

use super::{INVALID_POINTER, size, translate};

/// Elements or columns, each side with its own stride.
struct Transfer {
    /// Bytes per element or column.
    bytes: usize,
    pieces: usize,
    from: *const c_void,
    /// Bytes from one element or column to the next.
    from_pitch: usize,
    to: *mut c_void,
    to_pitch: usize,
}

impl Transfer {
    /// `n` elements of `size` bytes, `increment` elements apart on either side.
    fn vector(
        n: i32,
        bytes: i32,
        [from, to]: [*const c_void; 2],
        increments: [i32; 2],
    ) -> Result<Option<Self>, rocblas_status> {
        if n == 0 {
            return Ok(None);
        }
        if n < 0 || bytes <= 0 || increments.iter().any(|increment| *increment <= 0) {
            return Err(rocblas_status::rocblas_status_invalid_size);
        }
        let bytes = size(bytes)?;
        let pitch = |increment| size(increment).map(|increment| increment * bytes);
        Self::new(
            bytes,
            size(n)?,
            [from, to],
            [pitch(increments[0])?, pitch(increments[1])?],
        )
    }

    /// Columns of `rows` elements, each side with its own leading dimension.
    fn matrix(
        rows: i32,
        columns: i32,
        bytes: i32,
        [from, to]: [*const c_void; 2],
        leading: [i32; 2],
    ) -> Result<Option<Self>, rocblas_status> {
        if rows == 0 || columns == 0 {
            return Ok(None);
        }
        if rows < 0 || columns < 0 || bytes <= 0 || leading.iter().any(|leading| *leading < rows) {
            return Err(rocblas_status::rocblas_status_invalid_size);
        }
        let bytes = size(bytes)?;
        let pitch = |leading| size(leading).map(|leading| leading * bytes);
        let pitches = [pitch(leading[0])?, pitch(leading[1])?];
        Self::new(size(rows)? * bytes, size(columns)?, [from, to], pitches)
    }

    fn new(
        bytes: usize,
        pieces: usize,
        [from, to]: [*const c_void; 2],
        [from_pitch, to_pitch]: [usize; 2],
    ) -> Result<Option<Self>, rocblas_status> {
        if from.is_null() || to.is_null() {
            return Err(INVALID_POINTER);
        }
        Ok(Some(Self {
            bytes,
            pieces,
            from,
            from_pitch,
            to: to.cast_mut(),
            to_pitch,
        }))
    }
}

const TO_DEVICE: hipMemcpyKind = hipMemcpyKind::hipMemcpyHostToDevice;
const TO_HOST: hipMemcpyKind = hipMemcpyKind::hipMemcpyDeviceToHost;

// Host memory follows the rules of hipMemcpy.
unsafe extern "C" {
    fn hipMemcpy2D(
        to: *mut c_void,
        to_pitch: usize,
        from: *const c_void,
        from_pitch: usize,
        width: usize,
        height: usize,
        kind: hipMemcpyKind,
    ) -> hipError_t;
    fn hipMemcpy2DAsync(
        to: *mut c_void,
        to_pitch: usize,
        from: *const c_void,
        from_pitch: usize,
        width: usize,
        height: usize,
        kind: hipMemcpyKind,
        stream: hipStream_t,
    ) -> hipError_t;
}

/// Runs a transfer on the default stream and waits for it.
///
/// # Safety
/// The host's side may be read or written as far as the transfer reaches.
unsafe fn transfer(what: Option<&Transfer>, kind: hipMemcpyKind) -> Result<(), rocblas_status> {
    let Some(Transfer {
        bytes,
        pieces,
        from,
        from_pitch,
        to,
        to_pitch,
    }) = what
    else {
        return Ok(());
    };
    // SAFETY: as the caller says; the device's side is checked.
    unsafe { hipMemcpy2D(*to, *to_pitch, *from, *from_pitch, *bytes, *pieces, kind) }
        .ok()
        .map_err(translate)
}

/// Submits a transfer.
///
/// # Safety
/// The arguments meet the requirements of [`transfer`]. Pinned memory stays valid until the stream has done the transfer.
unsafe fn transfer_async(
    what: Option<&Transfer>,
    kind: hipMemcpyKind,
    stream: hipStream_t,
) -> Result<(), rocblas_status> {
    let Some(Transfer {
        bytes,
        pieces,
        from,
        from_pitch,
        to,
        to_pitch,
    }) = what
    else {
        return Ok(());
    };
    // SAFETY: as the caller says; the device's side is checked.
    unsafe { hipMemcpy2DAsync(*to, *to_pitch, *from, *from_pitch, *bytes, *pieces, kind, stream) }
        .ok()
        .map_err(translate)
}

export! { rocblas, rocblas_status, run;
    fn rocblas_set_vector(n: i32, bytes: i32, x: *const c_void, incx: i32, y: *mut c_void, incy: i32) {
        transfer(Transfer::vector(n, bytes, [x, y], [incx, incy])?.as_ref(), TO_DEVICE)
    }

    fn rocblas_get_vector(n: i32, bytes: i32, x: *const c_void, incx: i32, y: *mut c_void, incy: i32) {
        transfer(Transfer::vector(n, bytes, [x, y], [incx, incy])?.as_ref(), TO_HOST)
    }

    fn rocblas_set_matrix(rows: i32, columns: i32, bytes: i32, a: *const c_void, lda: i32, b: *mut c_void, ldb: i32) {
        transfer(Transfer::matrix(rows, columns, bytes, [a, b], [lda, ldb])?.as_ref(), TO_DEVICE)
    }

    fn rocblas_get_matrix(rows: i32, columns: i32, bytes: i32, a: *const c_void, lda: i32, b: *mut c_void, ldb: i32) {
        transfer(Transfer::matrix(rows, columns, bytes, [a, b], [lda, ldb])?.as_ref(), TO_HOST)
    }

    fn rocblas_set_vector_async(
        n: i32, bytes: i32, x: *const c_void, incx: i32, y: *mut c_void, incy: i32, stream: hipStream_t,
    ) {
        transfer_async(Transfer::vector(n, bytes, [x, y], [incx, incy])?.as_ref(), TO_DEVICE, stream)
    }

    fn rocblas_get_vector_async(
        n: i32, bytes: i32, x: *const c_void, incx: i32, y: *mut c_void, incy: i32, stream: hipStream_t,
    ) {
        transfer_async(Transfer::vector(n, bytes, [x, y], [incx, incy])?.as_ref(), TO_HOST, stream)
    }

    fn rocblas_set_matrix_async(
        rows: i32, columns: i32, bytes: i32, a: *const c_void, lda: i32, b: *mut c_void, ldb: i32, stream: hipStream_t,
    ) {
        transfer_async(Transfer::matrix(rows, columns, bytes, [a, b], [lda, ldb])?.as_ref(), TO_DEVICE, stream)
    }

    fn rocblas_get_matrix_async(
        rows: i32, columns: i32, bytes: i32, a: *const c_void, lda: i32, b: *mut c_void, ldb: i32, stream: hipStream_t,
    ) {
        transfer_async(Transfer::matrix(rows, columns, bytes, [a, b], [lda, ldb])?.as_ref(), TO_HOST, stream)
    }
}
