//! rocBLAS: GEMMs in three types, in place and out of place, batched.

use std::ptr;

use half::{bf16, f16};
use hipvit_sys::rocblas::{rocblas_datatype_, rocblas_gemm_algo_, rocblas_operation_};

use crate::Outcome;
use crate::device::{Gpu, compare, ok};
use crate::matrices::{self, Float, K, M, N, rounded, tolerance};

/// `D = Aᵀ·B + beta·C` by rocBLAS; with `in_place`, C is D.
fn gemm<T: Float>(gpu: &Gpu, beta: f32, in_place: bool) -> Outcome {
    let blas = gpu.provider.rocblas().map_err(|error| error.to_string())?;
    let (a, b, c) = (
        rounded::<T>(K * M, 11),
        rounded::<T>(K * N, 12),
        rounded::<T>(M * N, 13),
    );
    let (a_device, b_device, c_device) = (gpu.upload(&a)?, gpu.upload(&b)?, gpu.upload(&c)?);
    let other = gpu.upload(&[T::default(); M * N])?;
    let d = if in_place { &c_device } else { &other };
    let mut handle = ptr::null_mut();
    let compute = rocblas_datatype_::rocblas_datatype_f32_r;
    let (transposed, plain) = (
        rocblas_operation_::rocblas_operation_transpose,
        rocblas_operation_::rocblas_operation_none,
    );
    let alpha = 1.0_f32;
    // SAFETY: the handle lives until it is destroyed here, after the device was waited for; the matrices have the
    // given extents, strides and type.
    unsafe {
        ok(blas.rocblas_create_handle(&mut handle))?;
        ok(blas.rocblas_gemm_ex(
            handle,
            transposed,
            plain,
            M as i32,
            N as i32,
            K as i32,
            (&raw const alpha).cast(),
            a_device.at,
            T::ROCBLAS,
            K as i32,
            b_device.at,
            T::ROCBLAS,
            K as i32,
            (&raw const beta).cast(),
            c_device.at,
            T::ROCBLAS,
            M as i32,
            d.at,
            T::ROCBLAS,
            M as i32,
            compute,
            rocblas_gemm_algo_::rocblas_gemm_algo_standard,
            0,
            0,
        ))?;
        gpu.synchronize()?;
        ok(blas.rocblas_destroy_handle(handle))?;
    }
    let expected = matrices::gemm(&a, &b, f64::from(beta), &c);
    let got: Vec<f32> = d.download::<T>(M * N)?.into_iter().map(T::widen).collect();
    compare(&got, &expected, tolerance::<T>(&expected))
}

#[test]
fn gemm_in_f32() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    gemm::<f32>(&gpu, 0.0, true)
}

#[test]
fn gemm_in_f16() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    gemm::<f16>(&gpu, 0.0, true)
}

#[test]
fn gemm_in_bf16_adds_to_its_output() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    gemm::<bf16>(&gpu, 0.5, true)
}

#[test]
fn gemm_with_another_output() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    gemm::<f32>(&gpu, 0.5, false)
}

#[test]
fn batched_gemm_in_f16() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    const BATCH: usize = 3;
    let blas = gpu.provider.rocblas().map_err(|error| error.to_string())?;
    let (a, b) = (
        rounded::<f16>(BATCH * K * M, 14),
        rounded::<f16>(BATCH * K * N, 15),
    );
    let (a_device, b_device) = (gpu.upload(&a)?, gpu.upload(&b)?);
    let d = gpu.upload(&vec![f16::ZERO; BATCH * M * N])?;
    let half = rocblas_datatype_::rocblas_datatype_f16_r;
    let (alpha, beta) = (1.0_f32, 0.0_f32);
    let mut handle = ptr::null_mut();
    // SAFETY: the handle lives until it is destroyed here, after the device was waited for; the matrices of the batch
    // have the given extents, strides and type.
    unsafe {
        ok(blas.rocblas_create_handle(&mut handle))?;
        ok(blas.rocblas_gemm_strided_batched_ex(
            handle,
            rocblas_operation_::rocblas_operation_transpose,
            rocblas_operation_::rocblas_operation_none,
            M as i32,
            N as i32,
            K as i32,
            (&raw const alpha).cast(),
            a_device.at,
            half,
            K as i32,
            (K * M) as i64,
            b_device.at,
            half,
            K as i32,
            (K * N) as i64,
            (&raw const beta).cast(),
            d.at,
            half,
            M as i32,
            (M * N) as i64,
            d.at,
            half,
            M as i32,
            (M * N) as i64,
            BATCH as i32,
            rocblas_datatype_::rocblas_datatype_f32_r,
            rocblas_gemm_algo_::rocblas_gemm_algo_standard,
            0,
            0,
        ))?;
        gpu.synchronize()?;
        ok(blas.rocblas_destroy_handle(handle))?;
    }
    let expected: Vec<f32> = a
        .chunks(K * M)
        .zip(b.chunks(K * N))
        .flat_map(|(a, b)| matrices::gemm(a, b, 0.0, &[]))
        .collect();
    let got: Vec<f32> = d
        .download::<f16>(BATCH * M * N)?
        .into_iter()
        .map(f16::to_f32)
        .collect();
    compare(&got, &expected, tolerance::<f16>(&expected))
}
