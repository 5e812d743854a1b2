//! MIOpen: convolution and softmax.

use std::ptr;

use hipvit_sys::miopen::{
    miopenConvAlgoPerf_t, miopenConvolutionMode_t, miopenDataType_t, miopenSoftmaxAlgorithm_t,
    miopenSoftmaxMode_t,
};

use crate::Outcome;
use crate::device::{Gpu, compare, numbers, ok};

/// Two images of 3×32×32 in patches of 8: 16 features each.
#[test]
fn convolution_as_patch_embedding_in_f32() -> Outcome {
    const IMAGES: usize = 2;
    const CHANNELS: usize = 3;
    const SIDE: usize = 32;
    const PATCH: usize = 8;
    const FEATURES: usize = 16;
    const GRID: usize = SIDE / PATCH;
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
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
    // given extents, and the workspace the size that was queried.
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
    println!("{count} algorithms");
    compare(
        &y_device.download(y_count)?,
        &expected,
        192.0 * f32::EPSILON * 16.0,
    )
}

#[test]
fn softmax_in_f32() -> Outcome {
    const ROWS: usize = 37;
    const COLUMNS: usize = 197;
    let Some(gpu) = Gpu::open()? else { return Ok(()) };
    let miopen = gpu.provider.miopen().map_err(|error| error.to_string())?;
    let x: Vec<f32> = numbers(ROWS * COLUMNS, 41)
        .iter()
        .map(|value| value * 20.0)
        .collect();
    let (x_device, y_device) = (gpu.upload(&x)?, gpu.upload(&vec![0.0_f32; ROWS * COLUMNS])?);
    let (mut handle, mut desc) = (ptr::null_mut(), ptr::null_mut());
    let (alpha, beta) = (1.0_f32, 0.0_f32);
    // SAFETY: the handle lives until it is destroyed here, after the device was waited for; both tensors have the
    // given extents.
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
