//! rocBLAS.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use hipvit_sys::Table as _;
use hipvit_sys::rocblas::{
    rocblas_atomics_mode_, rocblas_datatype_, rocblas_gemm_algo_, rocblas_handle, rocblas_operation_,
};

use super::{Gemm, Matrix, WORKSPACE, int, tensile};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::libraries;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::operand::Operand;
use crate::status::call;
use crate::stream::{Handle, Stream};

/// A rocBLAS handle on a stream. Results are deterministic, since atomics are disabled.
pub struct Blas {
    stream: Stream,
    raw: rocblas_handle,
    handle: Arc<Handle>,
    /// `None` if the library does not support a workspace.
    workspace: Option<DeviceBuffer<u8>>,
}

// SAFETY: a rocBLAS handle may be used from any thread, one at a time, which `&mut self` ensures.
unsafe impl Send for Blas {}

impl Blas {
    /// Creates a handle on `stream`, with a workspace of 32 MiB.
    ///
    /// # Errors
    ///
    /// [`Error::Provider`] if rocBLAS cannot be opened or has no kernels for the GPU; [`Error::Device`] if it fails.
    pub fn new(stream: &Stream) -> Result<Self> {
        let device = stream.device();
        let table = libraries::rocblas(device)?;
        tensile::check(table.path(), device.properties().arch())?;
        let create = |device: &Device| {
            let mut raw = ptr::null_mut();
            // SAFETY: the call writes one handle. rocBLAS ends the process if there is no GPU or no kernels for it; both were checked.
            unsafe { call!(device, table.rocblas_create_handle(&mut raw)) }?;
            Ok(raw)
        };
        let (raw, handle) = Handle::new(stream, create, |device, raw| {
            let table = libraries::rocblas(device)?;
            // SAFETY: destroyed once, when it is no longer used.
            unsafe { call!(device, table.rocblas_destroy_handle(raw)) }
        })?;
        let mut blas = Self {
            stream: stream.clone(),
            raw,
            handle,
            workspace: None,
        };
        // SAFETY: both handles are alive.
        unsafe { call!(device, table.rocblas_set_stream(raw, stream.raw())) }?;
        // SAFETY: the handle is alive. A library without the function uses no atomics.
        let set = unsafe {
            call!(
                device,
                table.rocblas_set_atomics_mode(raw, rocblas_atomics_mode_::rocblas_atomics_not_allowed)
            )
        };
        optional(set)?;
        let mut workspace = stream.allocate::<u8>(WORKSPACE)?;
        let operand = workspace.writing();
        // SAFETY: the handle is alive. The workspace lives as long as the handle, and is an operand of each GEMM.
        let set = unsafe {
            call!(
                device,
                table.rocblas_set_workspace(raw, operand.pointer(), operand.bytes())
            )
        };
        if optional(set)? {
            blas.workspace = Some(workspace);
        }
        Ok(blas)
    }

    /// Returns the stream that work is submitted to.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Submits a GEMM, or a batch of them.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`] if the description does not fit the operands; [`Error::Device`] if rocBLAS fails.
    pub fn gemm(&mut self, gemm: &Gemm, a: Operand<'_>, b: Operand<'_>, c: Operand<'_>) -> Result<()> {
        gemm.check(&a, &b, &c)?;
        let stream = self.stream.clone();
        let device = stream.device();
        let table = libraries::rocblas(device)?;
        let mut operands = vec![a, b, c];
        operands.extend(self.workspace.as_mut().map(DeviceBuffer::writing));
        let (m, n, k, batch) = (int(gemm.m)?, int(gemm.n)?, int(gemm.k)?, int(gemm.batch)?);
        let (lda, ldb, ldc) = (int(gemm.a.stride)?, int(gemm.b.stride)?, int(gemm.c.stride)?);
        let integers = [gemm.alpha, gemm.beta].map(|factor| factor as i32);
        let (alpha, beta, compute): (*const c_void, *const c_void, _) = match gemm.output {
            DType::I32 => (
                ptr::from_ref(&integers[0]).cast(),
                ptr::from_ref(&integers[1]).cast(),
                rocblas_datatype_::rocblas_datatype_i32_r,
            ),
            _ => (
                ptr::from_ref(&gemm.alpha).cast(),
                ptr::from_ref(&gemm.beta).cast(),
                rocblas_datatype_::rocblas_datatype_f32_r,
            ),
        };
        let (inputs, output) = (datatype(gemm.inputs)?, datatype(gemm.output)?);
        let algo = rocblas_gemm_algo_::rocblas_gemm_algo_standard;
        let raw = self.raw;
        stream.keep(|| self.handle.clone());
        stream.submit(&operands, |_| {
            // SAFETY: the handle is alive and only used by this thread. `check` ensured that the matrices are within the operands. The
            // scalars are read before the call returns, because the pointer mode is host.
            unsafe {
                if gemm.batch == 1 {
                    call!(
                        device,
                        table.rocblas_gemm_ex(
                            raw,
                            operation(&gemm.b),
                            operation(&gemm.a),
                            n,
                            m,
                            k,
                            alpha,
                            b.pointer(),
                            inputs,
                            ldb,
                            a.pointer(),
                            inputs,
                            lda,
                            beta,
                            c.pointer(),
                            output,
                            ldc,
                            c.pointer(),
                            output,
                            ldc,
                            compute,
                            algo,
                            0,
                            0,
                        )
                    )
                } else {
                    call!(
                        device,
                        table.rocblas_gemm_strided_batched_ex(
                            raw,
                            operation(&gemm.b),
                            operation(&gemm.a),
                            n,
                            m,
                            k,
                            alpha,
                            b.pointer(),
                            inputs,
                            ldb,
                            gemm.b.batch_stride as i64,
                            a.pointer(),
                            inputs,
                            lda,
                            gemm.a.batch_stride as i64,
                            beta,
                            c.pointer(),
                            output,
                            ldc,
                            gemm.c.batch_stride as i64,
                            c.pointer(),
                            output,
                            ldc,
                            gemm.c.batch_stride as i64,
                            batch,
                            compute,
                            algo,
                            0,
                            0,
                        )
                    )
                }
            }
        })
    }
}

/// Returns false if the library lacks the call.
fn optional(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Error::Provider { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn operation(matrix: &Matrix) -> rocblas_operation_ {
    if !matrix.transposed {
        rocblas_operation_::rocblas_operation_none
    } else {
        rocblas_operation_::rocblas_operation_transpose
    }
}

fn datatype(dtype: DType) -> Result<rocblas_datatype_> {
    Ok(match dtype {
        DType::U8 => rocblas_datatype_::rocblas_datatype_u8_r,
        DType::I8 => rocblas_datatype_::rocblas_datatype_i8_r,
        DType::F32 => rocblas_datatype_::rocblas_datatype_f32_r,
        DType::F16 => rocblas_datatype_::rocblas_datatype_f16_r,
        DType::BF16 => rocblas_datatype_::rocblas_datatype_bf16_r,
        DType::I32 => rocblas_datatype_::rocblas_datatype_i32_r,
        DType::F8E4M3 | DType::F8E4M3Fnuz | DType::F8E5M2 | DType::F8E5M2Fnuz => {
            return Err(Error::argument(
                "gemm",
                format!("rocBLAS has none of {dtype}; hipBLASLt has"),
            ));
        }
    })
}

impl fmt::Debug for Blas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blas").field(&self.stream).finish()
    }
}
