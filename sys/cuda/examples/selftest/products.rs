//! rocBLAS, hipBLASLt, MIOpen and RCCL, each held against plain loops in f64 on the same rounded inputs.

use std::ffi::c_void;
use std::ptr;

use half::{bf16, f16};
use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipblaslt::{
    hipblasComputeType_t, hipblasLtEpilogue_t, hipblasLtMatmulDescAttributes_t,
    hipblasLtMatmulHeuristicResult_t, hipblasLtMatmulPreferenceAttributes_t, hipblasOperation_t,
};
use hipvit_sys::miopen::{
    miopenConvAlgoPerf_t, miopenConvolutionMode_t, miopenDataType_t, miopenSoftmaxAlgorithm_t,
    miopenSoftmaxMode_t,
};
use hipvit_sys::rccl::{ncclDataType_t, ncclRedOp_t};
use hipvit_sys::rocblas::{rocblas_datatype_, rocblas_gemm_algo_, rocblas_operation_};

use crate::Outcome;
use crate::device::{Gpu, compare, numbers, ok};

/// A 16- or 32-bit float.
trait Float: Copy + Default {
    const ROCBLAS: rocblas_datatype_;
    /// The distance from 1 to the next number.
    const EPSILON: f32;
    fn round(value: f32) -> Self;
    fn widen(self) -> f32;
}

macro_rules! float {
    ($type:ty, $rocblas:ident, $epsilon:expr, $round:expr, $widen:expr) => {
        impl Float for $type {
            const ROCBLAS: rocblas_datatype_ = rocblas_datatype_::$rocblas;
            const EPSILON: f32 = $epsilon;
            fn round(value: f32) -> Self {
                $round(value)
            }
            fn widen(self) -> f32 {
                $widen(self)
            }
        }
    };
}
float!(
    f32,
    rocblas_datatype_f32_r,
    f32::EPSILON,
    std::convert::identity,
    std::convert::identity
);
float!(
    f16,
    rocblas_datatype_f16_r,
    1.0 / 1024.0,
    f16::from_f32,
    f16::to_f32
);
float!(
    bf16,
    rocblas_datatype_bf16_r,
    1.0 / 128.0,
    bf16::from_f32,
    bf16::to_f32
);

/// Awkward sizes, multiples of 8 where a vector must fit.
const M: usize = 72;
const N: usize = 104;
const K: usize = 136;

/// A sum of `k` products below 1, each rounded in f32, and the result rounded once in its type.
fn tolerance<T: Float>(expected: &[f32]) -> f32 {
    let largest = expected
        .iter()
        .fold(0.0_f32, |largest, value| largest.max(value.abs()));
    K as f32 * f32::EPSILON * 4.0 + largest * T::EPSILON
}

fn rounded<T: Float>(count: usize, seed: u32) -> Vec<T> {
    numbers(count, seed).into_iter().map(T::round).collect()
}

/// `alpha·Aᵀ·B + beta·C`, all in columns: A is K×M, B is K×N.
fn product<T: Float>(a: &[T], b: &[T], beta: f64, c: &[T]) -> Vec<f32> {
    let entry = |index: usize| {
        let (row, column) = (index % M, index / M);
        let sum: f64 = (0..K)
            .map(|k| f64::from(a[row * K + k].widen()) * f64::from(b[column * K + k].widen()))
            .sum();
        let old = c.get(index).map_or(0.0, |c| beta * f64::from(c.widen()));
        (sum + old) as f32
    };
    (0..M * N).map(entry).collect()
}

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
    // extents, strides and type that are told.
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
    let expected = product(&a, &b, f64::from(beta), &c);
    let got: Vec<f32> = d.download::<T>(M * N)?.into_iter().map(T::widen).collect();
    compare(&got, &expected, tolerance::<T>(&expected))
}

pub(crate) fn gemm_f32(gpu: &Gpu) -> Outcome {
    gemm::<f32>(gpu, 0.0, true)
}

pub(crate) fn gemm_f16(gpu: &Gpu) -> Outcome {
    gemm::<f16>(gpu, 0.0, true)
}

pub(crate) fn gemm_bf16(gpu: &Gpu) -> Outcome {
    gemm::<bf16>(gpu, 0.5, true)
}

pub(crate) fn gemm_other_output(gpu: &Gpu) -> Outcome {
    gemm::<f32>(gpu, 0.5, false)
}

pub(crate) fn gemm_batched(gpu: &Gpu) -> Outcome {
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
    // have the extents, strides and type that are told.
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
        .flat_map(|(a, b)| product(a, b, 0.0, &[]))
        .collect();
    let got: Vec<f32> = d
        .download::<f16>(BATCH * M * N)?
        .into_iter()
        .map(f16::to_f32)
        .collect();
    compare(&got, &expected, tolerance::<f16>(&expected))
}

/// GELU in the tanh form.
fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

fn matmul(gpu: &Gpu, epilogue: hipblasLtEpilogue_t, activation: fn(f64) -> f64) -> Outcome {
    use hipblasLtMatmulDescAttributes_t as Attribute;
    let lt = gpu.provider.hipblaslt().map_err(|error| error.to_string())?;
    let (a, b, bias) = (
        rounded::<bf16>(K * M, 21),
        rounded::<bf16>(K * N, 22),
        rounded::<bf16>(M, 23),
    );
    let (a_device, b_device, bias_device) = (gpu.upload(&a)?, gpu.upload(&b)?, gpu.upload(&bias)?);
    let d = gpu.upload(&vec![bf16::ZERO; M * N])?;
    let workspace_size = 32 << 20;
    let workspace = gpu.upload(&vec![0_u8; workspace_size])?;
    let kind = hipDataType::HIP_R_16BF;
    let (mut handle, mut desc, mut preference) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let mut layouts = [ptr::null_mut(); 3];
    let mut found = [hipblasLtMatmulHeuristicResult_t::default(); 4];
    let mut count = 0;
    let (alpha, beta) = (1.0_f32, 0.0_f32);
    // SAFETY: the handles live until they are destroyed here, after the device was waited for; each attribute has the
    // size that is told, and the memory that of the layouts.
    unsafe {
        ok(lt.hipblasLtCreate(&mut handle))?;
        ok(lt.hipblasLtMatmulDescCreate(
            &mut desc,
            hipblasComputeType_t::HIPBLAS_COMPUTE_32F,
            hipDataType::HIP_R_32F,
        ))?;
        let set = |attribute: Attribute, value: *const c_void, size: usize| {
            ok(lt.hipblasLtMatmulDescSetAttribute(desc, attribute, value, size))
        };
        let transposed = hipblasOperation_t::HIPBLAS_OP_T;
        set(
            Attribute::HIPBLASLT_MATMUL_DESC_TRANSA,
            (&raw const transposed).cast(),
            4,
        )?;
        set(
            Attribute::HIPBLASLT_MATMUL_DESC_EPILOGUE,
            (&raw const epilogue).cast(),
            4,
        )?;
        set(
            Attribute::HIPBLASLT_MATMUL_DESC_BIAS_POINTER,
            (&raw const bias_device.at).cast(),
            8,
        )?;
        set(
            Attribute::HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
            (&raw const kind).cast(),
            4,
        )?;
        for (layout, (rows, columns)) in layouts.iter_mut().zip([(K, M), (K, N), (M, N)]) {
            ok(lt.hipblasLtMatrixLayoutCreate(layout, kind, rows as u64, columns as u64, rows as i64))?;
        }
        ok(lt.hipblasLtMatmulPreferenceCreate(&mut preference))?;
        ok(lt.hipblasLtMatmulPreferenceSetAttribute(
            preference,
            hipblasLtMatmulPreferenceAttributes_t::HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
            (&raw const workspace_size).cast(),
            8,
        ))?;
        ok(lt.hipblasLtMatmulAlgoGetHeuristic(
            handle,
            desc,
            layouts[0],
            layouts[1],
            layouts[2],
            layouts[2],
            preference,
            4,
            found.as_mut_ptr(),
            &mut count,
        ))?;
        if count < 1 {
            return Err("no algorithm".into());
        }
        ok(lt.hipblasLtMatmul(
            handle,
            desc,
            (&raw const alpha).cast(),
            a_device.at,
            layouts[0],
            b_device.at,
            layouts[1],
            (&raw const beta).cast(),
            d.at,
            layouts[2],
            d.at,
            layouts[2],
            &found[0].algo,
            workspace.at,
            workspace_size,
            ptr::null_mut(),
        ))?;
        gpu.synchronize()?;
        for layout in layouts {
            ok(lt.hipblasLtMatrixLayoutDestroy(layout))?;
        }
        ok(lt.hipblasLtMatmulPreferenceDestroy(preference))?;
        ok(lt.hipblasLtMatmulDescDestroy(desc))?;
        ok(lt.hipblasLtDestroy(handle))?;
    }
    let expected: Vec<f32> = product(&a, &b, 0.0, &[])
        .into_iter()
        .enumerate()
        .map(|(index, value)| activation(f64::from(value) + f64::from(bias[index % M].to_f32())) as f32)
        .collect();
    let got: Vec<f32> = d.download::<bf16>(M * N)?.into_iter().map(bf16::to_f32).collect();
    // The activation in f32 may be an approximation: one more rounding of the result's type.
    let line = compare(&got, &expected, 2.0 * tolerance::<bf16>(&expected))?;
    Ok(format!("{count} algorithm(s), {line}"))
}

pub(crate) fn matmul_bias(gpu: &Gpu) -> Outcome {
    matmul(gpu, hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_BIAS, |x| x)
}

pub(crate) fn matmul_gelu(gpu: &Gpu) -> Outcome {
    matmul(gpu, hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU_BIAS, gelu)
}

/// Two images of 3×32×32 in patches of 8: 16 features each.
pub(crate) fn convolution(gpu: &Gpu) -> Outcome {
    const IMAGES: usize = 2;
    const CHANNELS: usize = 3;
    const SIDE: usize = 32;
    const PATCH: usize = 8;
    const FEATURES: usize = 16;
    const GRID: usize = SIDE / PATCH;
    let miopen = gpu.provider.miopen().map_err(|error| error.to_string())?;
    let (x, w) = (
        numbers(IMAGES * CHANNELS * SIDE * SIDE, 31),
        numbers(FEATURES * CHANNELS * PATCH * PATCH, 32),
    );
    let (x_device, w_device) = (gpu.upload(&x)?, gpu.upload(&w)?);
    let y_count = IMAGES * FEATURES * GRID * GRID;
    let y_device = gpu.upload(&vec![0.0_f32; y_count])?;
    let (mut handle, mut desc, mut size) = (ptr::null_mut(), ptr::null_mut(), 0);
    let mut tensors = [ptr::null_mut(); 3];
    let mut found = [miopenConvAlgoPerf_t::default(); 4];
    let mut count = 0;
    let (alpha, beta) = (1.0_f32, 0.0_f32);
    let workspace;
    // SAFETY: the handles live until they are destroyed here, after the device was waited for; the tensors have the
    // extents that are told, and the workspace the size that was asked for.
    unsafe {
        ok(miopen.miopenCreate(&mut handle))?;
        let shapes = [
            [IMAGES, CHANNELS, SIDE, SIDE],
            [FEATURES, CHANNELS, PATCH, PATCH],
            [IMAGES, FEATURES, GRID, GRID],
        ];
        for (tensor, shape) in tensors.iter_mut().zip(shapes) {
            let [n, c, h, w] = shape.map(|length| length as i32);
            ok(miopen.miopenCreateTensorDescriptor(tensor))?;
            ok(miopen.miopenSet4dTensorDescriptor(*tensor, miopenDataType_t::miopenFloat, n, c, h, w))?;
        }
        let [x_desc, w_desc, y_desc] = tensors;
        ok(miopen.miopenCreateConvolutionDescriptor(&mut desc))?;
        let (mode, patch) = (miopenConvolutionMode_t::miopenConvolution, PATCH as i32);
        ok(miopen.miopenInitConvolutionDescriptor(desc, mode, 0, 0, patch, patch, 1, 1))?;
        ok(miopen.miopenConvolutionForwardGetWorkSpaceSize(handle, w_desc, x_desc, desc, y_desc, &mut size))?;
        workspace = gpu.upload(&vec![0_u8; size.max(1)])?;
        ok(miopen.miopenFindConvolutionForwardAlgorithm(
            handle,
            x_desc,
            x_device.at,
            w_desc,
            w_device.at,
            desc,
            y_desc,
            y_device.at,
            4,
            &mut count,
            found.as_mut_ptr(),
            workspace.at,
            size,
            false,
        ))?;
        ok(miopen.miopenConvolutionForward(
            handle,
            (&raw const alpha).cast(),
            x_desc,
            x_device.at,
            w_desc,
            w_device.at,
            desc,
            found[0].__bindgen_anon_1.fwd_algo,
            (&raw const beta).cast(),
            y_desc,
            y_device.at,
            workspace.at,
            size,
        ))?;
        gpu.synchronize()?;
        ok(miopen.miopenDestroyConvolutionDescriptor(desc))?;
        for tensor in tensors {
            ok(miopen.miopenDestroyTensorDescriptor(tensor))?;
        }
        ok(miopen.miopenDestroy(handle))?;
    }
    let mut expected = Vec::with_capacity(y_count);
    for index in 0..y_count {
        let (image, feature) = (index / (FEATURES * GRID * GRID), index / (GRID * GRID) % FEATURES);
        let (top, left) = (index / GRID % GRID * PATCH, index % GRID * PATCH);
        let mut sum = 0.0_f64;
        for tap in 0..CHANNELS * PATCH * PATCH {
            let (channel, row, column) = (tap / (PATCH * PATCH), tap / PATCH % PATCH, tap % PATCH);
            let at = ((image * CHANNELS + channel) * SIDE + top + row) * SIDE + left + column;
            sum += f64::from(x[at]) * f64::from(w[feature * CHANNELS * PATCH * PATCH + tap]);
        }
        expected.push(sum as f32);
    }
    // 192 products below 1 in f32; a transform, such as Winograd's, may cost a few bits more.
    let line = compare(
        &y_device.download(y_count)?,
        &expected,
        192.0 * f32::EPSILON * 16.0,
    )?;
    Ok(format!("{count} algorithm(s), {line}"))
}

pub(crate) fn softmax(gpu: &Gpu) -> Outcome {
    const ROWS: usize = 37;
    const COLUMNS: usize = 197;
    let miopen = gpu.provider.miopen().map_err(|error| error.to_string())?;
    let x: Vec<f32> = numbers(ROWS * COLUMNS, 41)
        .iter()
        .map(|value| value * 20.0)
        .collect();
    let (x_device, y_device) = (gpu.upload(&x)?, gpu.upload(&vec![0.0_f32; ROWS * COLUMNS])?);
    let (mut handle, mut desc) = (ptr::null_mut(), ptr::null_mut());
    let (alpha, beta) = (1.0_f32, 0.0_f32);
    // SAFETY: the handle lives until it is destroyed here, after the device was waited for; both tensors have the
    // extents that are told.
    unsafe {
        ok(miopen.miopenCreate(&mut handle))?;
        ok(miopen.miopenCreateTensorDescriptor(&mut desc))?;
        let kind = miopenDataType_t::miopenFloat;
        ok(miopen.miopenSet4dTensorDescriptor(desc, kind, ROWS as i32, COLUMNS as i32, 1, 1))?;
        ok(miopen.miopenSoftmaxForward_V2(
            handle,
            (&raw const alpha).cast(),
            desc,
            x_device.at,
            (&raw const beta).cast(),
            desc,
            y_device.at,
            miopenSoftmaxAlgorithm_t::MIOPEN_SOFTMAX_ACCURATE,
            miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_INSTANCE,
        ))?;
        gpu.synchronize()?;
        ok(miopen.miopenDestroyTensorDescriptor(desc))?;
        ok(miopen.miopenDestroy(handle))?;
    }
    let row = |row: &[f32]| {
        let largest = row
            .iter()
            .fold(f32::NEG_INFINITY, |largest, value| largest.max(*value));
        let powers: Vec<f64> = row.iter().map(|value| f64::from(value - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers
            .into_iter()
            .map(move |power| (power / sum) as f32)
            .collect::<Vec<_>>()
    };
    let expected: Vec<f32> = x.chunks(COLUMNS).flat_map(row).collect();
    // Results are at most 1; the exponent, up to 40, is rounded in f32.
    compare(
        &y_device.download(ROWS * COLUMNS)?,
        &expected,
        40.0 * f32::EPSILON,
    )
}

pub(crate) fn all_reduce(gpu: &Gpu) -> Outcome {
    let rccl = gpu.provider.rccl().map_err(|error| error.to_string())?;
    let values = numbers(1000, 51);
    let (from, to) = (gpu.upload(&values)?, gpu.upload(&vec![0.0_f32; values.len()])?);
    let (mut comm, mut version) = (ptr::null_mut(), 0);
    // SAFETY: the communicator lives until it is destroyed here, after the device was waited for; both vectors have
    // this many elements.
    unsafe {
        ok(rccl.ncclGetVersion(&mut version))?;
        ok(rccl.ncclCommInitAll(&mut comm, 1, ptr::null()))?;
        ok(rccl.ncclAllReduce(
            from.at,
            to.at,
            values.len(),
            ncclDataType_t::ncclFloat32,
            ncclRedOp_t::ncclSum,
            comm,
            ptr::null_mut(),
        ))?;
        gpu.synchronize()?;
        ok(rccl.ncclCommDestroy(comm))?;
    }
    compare(&to.download(values.len())?, &values, 0.0)?;
    Ok(format!("version {version}"))
}
