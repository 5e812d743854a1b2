//! hipBLASLt: a GEMM with epilogues.

use std::ffi::c_void;
use std::ptr;

use half::bf16;
use hipvit_sys::hip::hipDataType;
use hipvit_sys::hipblaslt::{
    hipblasComputeType_t, hipblasLtEpilogue_t, hipblasLtMatmulDescAttributes_t,
    hipblasLtMatmulHeuristicResult_t, hipblasLtMatmulPreferenceAttributes_t, hipblasOperation_t,
};

use crate::Outcome;
use crate::device::{Gpu, compare, ok};
use crate::matrices::{self, K, M, N, rounded, tolerance};

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
    // given size, and the memory that of the layouts.
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
    let expected: Vec<f32> = matrices::gemm(&a, &b, 0.0, &[])
        .into_iter()
        .enumerate()
        .map(|(index, value)| activation(f64::from(value) + f64::from(bias[index % M].to_f32())) as f32)
        .collect();
    let got: Vec<f32> = d.download::<bf16>(M * N)?.into_iter().map(bf16::to_f32).collect();
    // The activation in f32 may be an approximation: one more rounding of the result's type.
    println!("{count} algorithms");
    compare(&got, &expected, 2.0 * tolerance::<bf16>(&expected))
}

#[test]
fn matmul_with_bias_in_bf16() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    matmul(&gpu, hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_BIAS, |x| x)
}

#[test]
fn matmul_with_bias_and_gelu_in_bf16() -> Outcome {
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    matmul(&gpu, hipblasLtEpilogue_t::HIPBLASLT_EPILOGUE_GELU_BIAS, gelu)
}
