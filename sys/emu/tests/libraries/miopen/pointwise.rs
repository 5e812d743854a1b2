//! Softmax, activations, and operations on tensors.

use super::*;

#[test]
fn softmax_over_channels_and_over_images() {
    use miopenSoftmaxAlgorithm_t as Algorithm;
    let handle = Handle::new();
    for kind in [Kind::F32, Kind::F16, Kind::Bf16] {
        for (lengths, mode) in [
            ([37, 197, 1, 1], miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_CHANNEL),
            ([3, 5, 2, 9], miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_CHANNEL),
            ([3, 5, 2, 9], miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_INSTANCE),
        ] {
            for algorithm in [
                Algorithm::MIOPEN_SOFTMAX_FAST,
                Algorithm::MIOPEN_SOFTMAX_ACCURATE,
                Algorithm::MIOPEN_SOFTMAX_LOG,
            ] {
                let scaled = |value: f64| kind.round(value * 20.0);
                let values = numbers(kind, lengths.iter().product(), 7)
                    .into_iter()
                    .map(scaled)
                    .collect();
                let x = Tensor::packed(kind, &lengths, values);
                let y = Tensor::random(kind, &lengths, 8);
                let (alpha, beta) = (0.5_f32, 2.0_f32);
                ok(unsafe {
                    miopen().miopenSoftmaxForward_V2(
                        handle.0,
                        (&raw const alpha).cast(),
                        x.desc,
                        x.at(),
                        (&raw const beta).cast(),
                        y.desc,
                        y.at(),
                        algorithm,
                        mode,
                    )
                });
                let [_, channels, height, width] = lengths;
                let (image, places) = (channels * height * width, height * width);
                let expected: Vec<_> = (0..x.values.len())
                    .map(|index| {
                        let start = index / image * image;
                        let together: Vec<_> = match mode {
                            miopenSoftmaxMode_t::MIOPEN_SOFTMAX_MODE_CHANNEL => (0..channels)
                                .map(|channel| x.values[start + channel * places + index % places])
                                .collect(),
                            _ => x.values[start..start + image].to_vec(),
                        };
                        let largest = together.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                        let sum: f64 = together.iter().map(|value| (value - largest).exp()).sum();
                        let exponent = x.values[index] - largest;
                        let result = match algorithm {
                            Algorithm::MIOPEN_SOFTMAX_LOG => exponent - sum.ln(),
                            _ => exponent.exp() / sum,
                        };
                        // The exponent, up to 40 in size, is rounded in f32.
                        let error = 80.0 * Kind::F32.roundoff() * result.abs().max(1.0);
                        (0.5 * result + 2.0 * y.values[index], error)
                    })
                    .collect();
                let what = format!("{kind:?} {lengths:?} {mode:?} {algorithm:?}");
                compare(&what, kind, &y.buffer.download(), &expected);
            }
        }
    }
}

type Function = fn(f64) -> f64;

#[test]
fn activations() {
    let handle = Handle::new();
    let (alpha, beta, gamma) = (0.5, 1.5, 2.0);
    let functions: [(Activation, Function); 8] = [
        (Activation::miopenActivationPASTHRU, |x| x),
        (Activation::miopenActivationLOGISTIC, |x| 1.0 / (1.0 + (-x).exp())),
        (Activation::miopenActivationTANH, |x| 1.5 * (0.5 * x).tanh()),
        (Activation::miopenActivationRELU, |x| x.max(0.0)),
        (Activation::miopenActivationSOFTRELU, |x| (1.0 + x.exp()).ln()),
        (Activation::miopenActivationPOWER, |x| (0.5 + 1.5 * x).powi(2)),
        (Activation::miopenActivationLEAKYRELU, |x| {
            if x > 0.0 { x } else { 0.5 * x }
        }),
        (Activation::miopenActivationELU, |x| {
            if x > 0.0 { x } else { 0.5 * (x.exp() - 1.0) }
        }),
    ];
    let x = Tensor::random(Kind::F32, &[2, 3, 5, 7], 1);
    let y = Tensor::zeroes(Kind::F32, &x.lengths);
    let mut desc = ptr::null_mut();
    ok(unsafe { miopen().miopenCreateActivationDescriptor(&mut desc) });
    for (mode, function) in functions {
        unsafe {
            ok(miopen().miopenSetActivationDescriptor(desc, mode, alpha, beta, gamma));
            ok(miopen().miopenActivationForward(handle.0, desc, ONE, x.desc, x.at(), ZERO, y.desc, y.at()));
        }
        let expected: Vec<_> = x.values.iter().map(|x| (function(*x), 1e-12)).collect();
        compare(&format!("{mode:?}"), Kind::F32, &y.buffer.download(), &expected);
    }
    ok(unsafe { miopen().miopenDestroyActivationDescriptor(desc) });
    let after = unsafe { miopen().miopenDestroyActivationDescriptor(desc) };
    refused(after, Status::miopenStatusBadParm);
}

type Operation = fn(f64, f64) -> f64;

#[test]
fn arithmetic_on_tensors() {
    let handle = Handle::new();
    let lengths = [2, 3, 4, 5];
    let operations: [(miopenTensorOp_t, Operation); 4] = [
        (miopenTensorOp_t::miopenTensorOpAdd, |a, b| a + b),
        (miopenTensorOp_t::miopenTensorOpMul, |a, b| a * b),
        (miopenTensorOp_t::miopenTensorOpMin, f64::min),
        (miopenTensorOp_t::miopenTensorOpMax, f64::max),
    ];
    let (first, second, beta) = (1.5_f32, -2.0_f32, 0.25_f32);
    for (operation, function) in operations {
        let (a, b) = (
            Tensor::random(Kind::F32, &lengths, 1),
            Tensor::random(Kind::F32, &[1, 3, 1, 5], 2),
        );
        // With gaps in memory.
        let strides = [3 * 4 * 8, 4 * 8, 8, 1];
        let c = Tensor::with_strides(Kind::F32, &lengths, &strides, numbers(Kind::F32, 120, 3));
        ok(unsafe {
            miopen().miopenOpTensor(
                handle.0,
                operation,
                (&raw const first).cast(),
                a.desc,
                a.at(),
                (&raw const second).cast(),
                b.desc,
                b.at(),
                (&raw const beta).cast(),
                c.desc,
                c.at(),
            )
        });
        let expected: Vec<_> = (0..120)
            .map(|index| {
                let b = b.values[index / 20 % 3 * 5 + index % 5];
                (
                    function(1.5 * a.values[index], -2.0 * b) + 0.25 * c.values[index],
                    1e-12,
                )
            })
            .collect();
        compare(
            &format!("{operation:?}"),
            Kind::F32,
            &c.buffer.download(),
            &expected,
        );
    }
}

#[test]
fn tensors_are_set_scaled_and_converted() {
    let handle = Handle::new();
    let x = Tensor::random(Kind::F32, &[2, 3, 4, 5], 1);
    let strides = [60, 1, 15, 3];
    let y = Tensor::with_strides(Kind::F16, &x.lengths, &strides, vec![0.0; 120]);
    ok(unsafe { miopen().miopenTransformTensor(handle.0, ONE, x.desc, x.at(), ZERO, y.desc, y.at()) });
    let converted: Vec<_> = x.values.iter().map(|x| (*x, 0.0)).collect();
    compare("transform", Kind::F16, &y.buffer.download(), &converted);
    let factor = -3.0_f32;
    ok(unsafe { miopen().miopenScaleTensor(handle.0, x.desc, x.at(), (&raw const factor).cast()) });
    let scaled: Vec<_> = x.values.iter().map(|x| (-3.0 * x, 0.0)).collect();
    compare("scale", Kind::F32, &x.buffer.download(), &scaled);
    ok(unsafe { miopen().miopenSetTensor(handle.0, x.desc, x.at(), (&raw const factor).cast()) });
    assert_eq!(x.buffer.download(), vec![-3.0; 120]);
}
