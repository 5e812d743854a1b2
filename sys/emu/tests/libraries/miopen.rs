//! MIOpen.

use std::ffi::c_void;
use std::ptr;

use hipvit_sys::Miopen;
use hipvit_sys::miopen::{
    miopenActivationMode_t as Activation, miopenConvAlgoPerf_t, miopenConvFwdAlgorithm_t,
    miopenConvSolution_t, miopenConvolutionDescriptor_t, miopenConvolutionMode_t, miopenDataType_t,
    miopenHandle_t, miopenNormMode_t, miopenSoftmaxAlgorithm_t, miopenSoftmaxMode_t,
    miopenStatus_t as Status, miopenTensorDescriptor_t, miopenTensorOp_t,
};

use crate::gpu::{Buffer, Kind, compare, numbers, ok, provider, refused};

const ONE: *const c_void = (&raw const F32_ONE).cast();
const ZERO: *const c_void = (&raw const F32_ZERO).cast();
static F32_ONE: f32 = 1.0;
static F32_ZERO: f32 = 0.0;

fn miopen() -> &'static Miopen {
    provider().miopen().expect("MIOpen")
}

struct Handle(miopenHandle_t);

impl Handle {
    fn new() -> Self {
        let mut handle = ptr::null_mut();
        ok(unsafe { miopen().miopenCreate(&mut handle) });
        Self(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        ok(unsafe { miopen().miopenDestroy(self.0) });
    }
}

fn datatype(kind: Kind) -> miopenDataType_t {
    match kind {
        Kind::F16 => miopenDataType_t::miopenHalf,
        Kind::Bf16 => miopenDataType_t::miopenBFloat16,
        Kind::F32 => miopenDataType_t::miopenFloat,
        Kind::F64 => miopenDataType_t::miopenDouble,
        Kind::I8 => miopenDataType_t::miopenInt8,
        Kind::I32 => miopenDataType_t::miopenInt32,
    }
}

/// A tensor in device memory, with its description; its numbers in the order of its dimensions.
struct Tensor {
    desc: miopenTensorDescriptor_t,
    lengths: Vec<usize>,
    values: Vec<f64>,
    buffer: Buffer,
}

impl Tensor {
    fn packed(kind: Kind, lengths: &[usize], values: Vec<f64>) -> Self {
        let mut strides = vec![1; lengths.len()];
        for axis in (1..lengths.len()).rev() {
            strides[axis - 1] = strides[axis] * lengths[axis];
        }
        Self::with_strides(kind, lengths, &strides, values)
    }

    fn with_strides(kind: Kind, lengths: &[usize], strides: &[usize], values: Vec<f64>) -> Self {
        let mut places = vec![0];
        for (length, stride) in lengths.iter().zip(strides) {
            places = places
                .iter()
                .flat_map(|place| (0..*length).map(move |index| place + index * stride))
                .collect();
        }
        let int = |values: &[usize]| values.iter().map(|value| *value as i32).collect::<Vec<_>>();
        let mut desc = ptr::null_mut();
        let (sizes, steps) = (int(lengths), int(strides));
        unsafe {
            ok(miopen().miopenCreateTensorDescriptor(&mut desc));
            let count = lengths.len() as i32;
            ok(miopen().miopenSetTensorDescriptor(
                desc,
                datatype(kind),
                count,
                sizes.as_ptr(),
                steps.as_ptr(),
            ));
        }
        Self {
            desc,
            lengths: lengths.to_vec(),
            buffer: Buffer::at(kind, &values, places),
            values,
        }
    }

    fn random(kind: Kind, lengths: &[usize], seed: u64) -> Self {
        Self::packed(kind, lengths, numbers(kind, lengths.iter().product(), seed))
    }

    fn zeroes(kind: Kind, lengths: &[usize]) -> Self {
        Self::packed(kind, lengths, vec![0.0; lengths.iter().product()])
    }

    fn at(&self) -> *mut c_void {
        self.buffer.address()
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        ok(unsafe { miopen().miopenDestroyTensorDescriptor(self.desc) });
    }
}

/// A convolution in two dimensions.
#[derive(Clone, Copy, Debug)]
struct Convolution {
    x: [usize; 4],
    features: usize,
    filter: [usize; 2],
    padding: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
}

impl Convolution {
    fn descriptor(&self) -> miopenConvolutionDescriptor_t {
        let mut desc = ptr::null_mut();
        let [[ph, pw], [sh, sw], [dh, dw]] =
            [self.padding, self.stride, self.dilation].map(|pair| pair.map(|value| value as i32));
        let mode = miopenConvolutionMode_t::miopenConvolution;
        unsafe {
            ok(miopen().miopenCreateConvolutionDescriptor(&mut desc));
            ok(miopen().miopenInitConvolutionDescriptor(desc, mode, ph, pw, sh, sw, dh, dw));
            ok(miopen().miopenSetConvolutionGroupCount(desc, self.groups as i32));
        }
        desc
    }

    fn w_lengths(&self) -> [usize; 4] {
        [
            self.features,
            self.x[1] / self.groups,
            self.filter[0],
            self.filter[1],
        ]
    }

    fn y_lengths(&self) -> [usize; 4] {
        let along = |axis: usize| {
            (self.x[axis + 2] + 2 * self.padding[axis] - self.dilation[axis] * (self.filter[axis] - 1) - 1)
                / self.stride[axis]
                + 1
        };
        [self.x[0], self.features, along(0), along(1)]
    }

    /// Each result and the error that its sum may have in what it is computed in.
    fn expected(&self, x: &[f64], w: &[f64], roundoff: f64) -> Vec<(f64, f64)> {
        let [images, features, high, wide] = self.y_lengths();
        let [_, of_group, tall, broad] = self.w_lengths();
        let [_, channels, height, width] = self.x;
        let mut expected = Vec::new();
        for index in 0..images * features * high * wide {
            let (image, feature) = (index / (features * high * wide), index / (high * wide) % features);
            let (row, column) = (index / wide % high, index % wide);
            let (mut sum, mut size, mut count) = (0.0, 0.0_f64, 0);
            for tap in 0..of_group * tall * broad {
                let (channel, down, right) = (tap / (tall * broad), tap / broad % tall, tap % broad);
                let at_row = (row * self.stride[0] + down * self.dilation[0]).checked_sub(self.padding[0]);
                let at_column =
                    (column * self.stride[1] + right * self.dilation[1]).checked_sub(self.padding[1]);
                let (Some(at_row), Some(at_column)) = (at_row, at_column) else {
                    continue;
                };
                if at_row >= height || at_column >= width {
                    continue;
                }
                let channel = feature / (features / self.groups) * of_group + channel;
                let term = x[((image * channels + channel) * height + at_row) * width + at_column]
                    * w[feature * of_group * tall * broad + tap];
                sum += term;
                size += term.abs();
                count += 1;
            }
            expected.push((sum, f64::from(count + 1) * roundoff * size));
        }
        expected
    }
}

const CONVOLUTIONS: [Convolution; 4] = [
    // Patches.
    Convolution {
        x: [2, 3, 32, 32],
        features: 17,
        filter: [8, 8],
        padding: [0, 0],
        stride: [8, 8],
        dilation: [1, 1],
        groups: 1,
    },
    Convolution {
        x: [1, 4, 9, 7],
        features: 5,
        filter: [3, 3],
        padding: [1, 2],
        stride: [1, 2],
        dilation: [1, 1],
        groups: 1,
    },
    Convolution {
        x: [3, 6, 11, 13],
        features: 4,
        filter: [3, 2],
        padding: [2, 0],
        stride: [2, 1],
        dilation: [2, 3],
        groups: 2,
    },
    // Depthwise.
    Convolution {
        x: [2, 5, 6, 6],
        features: 5,
        filter: [3, 3],
        padding: [1, 1],
        stride: [1, 1],
        dilation: [1, 1],
        groups: 5,
    },
];

/// The workspace that MIOpen asks for.
fn workspace(
    handle: &Handle,
    x: &Tensor,
    w: &Tensor,
    desc: miopenConvolutionDescriptor_t,
    y: &Tensor,
) -> usize {
    let mut bytes = 0;
    ok(unsafe {
        miopen().miopenConvolutionForwardGetWorkSpaceSize(handle.0, w.desc, x.desc, desc, y.desc, &mut bytes)
    });
    bytes
}

fn find(
    handle: &Handle,
    (x, w, y): (&Tensor, &Tensor, &Tensor),
    desc: miopenConvolutionDescriptor_t,
    scratch: &Buffer,
    bytes: usize,
) -> Vec<miopenConvFwdAlgorithm_t> {
    let mut found = [miopenConvAlgoPerf_t::default(); 4];
    let mut count = 0;
    unsafe {
        ok(miopen().miopenFindConvolutionForwardAlgorithm(
            handle.0,
            x.desc,
            x.at(),
            w.desc,
            w.at(),
            desc,
            y.desc,
            y.at(),
            4,
            &mut count,
            found.as_mut_ptr(),
            scratch.address(),
            bytes,
            false,
        ));
        found[..count as usize]
            .iter()
            .map(|found| found.__bindgen_anon_1.fwd_algo)
            .collect()
    }
}

#[test]
fn convolutions_by_every_algorithm_and_type() {
    let handle = Handle::new();
    for convolution in CONVOLUTIONS {
        for (kind, output) in [
            (Kind::F32, Kind::F32),
            (Kind::F16, Kind::F16),
            (Kind::Bf16, Kind::Bf16),
            (Kind::F64, Kind::F64),
            (Kind::I8, Kind::I32),
        ] {
            let (x, w) = (
                Tensor::random(kind, &convolution.x, 1),
                Tensor::random(kind, &convolution.w_lengths(), 2),
            );
            let y = Tensor::random(output, &convolution.y_lengths(), 3);
            let desc = convolution.descriptor();
            let bytes = workspace(&handle, &x, &w, desc, &y);
            let scratch = Buffer::new(Kind::I8, &vec![0.0; bytes]);
            let algorithms = find(&handle, (&x, &w, &y), desc, &scratch, bytes);
            assert!(algorithms.len() > 1, "several algorithms");
            let expected = convolution.expected(&x.values, &w.values, kind.accumulator().roundoff());
            for algorithm in algorithms {
                let y = Tensor::random(output, &convolution.y_lengths(), 4);
                let one = if kind == Kind::F64 {
                    1.0_f64.to_le_bytes().to_vec()
                } else {
                    1.0_f32.to_le_bytes().to_vec()
                };
                let zero = [0_u8; 8];
                ok(unsafe {
                    miopen().miopenConvolutionForward(
                        handle.0,
                        one.as_ptr().cast(),
                        x.desc,
                        x.at(),
                        w.desc,
                        w.at(),
                        desc,
                        algorithm,
                        zero.as_ptr().cast(),
                        y.desc,
                        y.at(),
                        scratch.address(),
                        bytes,
                    )
                });
                compare(
                    &format!("{kind:?} {convolution:?}"),
                    output,
                    &y.buffer.download(),
                    &expected,
                );
            }
            scratch.download();
            ok(unsafe { miopen().miopenDestroyConvolutionDescriptor(desc) });
        }
    }
}

#[test]
fn a_convolution_must_be_found_before_and_described_right() {
    let handle = Handle::new();
    let convolution = CONVOLUTIONS[0];
    let (x, w) = (
        Tensor::random(Kind::F32, &convolution.x, 1),
        Tensor::random(Kind::F32, &convolution.w_lengths(), 2),
    );
    let y = Tensor::zeroes(Kind::F32, &convolution.y_lengths());
    let desc = convolution.descriptor();
    let direct = miopenConvFwdAlgorithm_t::miopenConvolutionFwdAlgoDirect;
    let call = |y: &Tensor| unsafe {
        miopen().miopenConvolutionForward(
            handle.0,
            ONE,
            x.desc,
            x.at(),
            w.desc,
            w.at(),
            desc,
            direct,
            ZERO,
            y.desc,
            y.at(),
            ptr::null_mut(),
            0,
        )
    };
    refused(call(&y), Status::miopenStatusUnknownError);
    find(&handle, (&x, &w, &y), desc, &Buffer::new(Kind::F32, &[0.0]), 0);
    ok(call(&y));
    let wrong = Tensor::zeroes(Kind::F32, &[2, 17, 4, 5]);
    refused(call(&wrong), Status::miopenStatusBadParm);
    assert_eq!(wrong.buffer.download(), wrong.values);
    ok(unsafe { miopen().miopenDestroyConvolutionDescriptor(desc) });
}

#[test]
fn immediate_mode_and_channels_last() {
    let handle = Handle::new();
    let convolution = CONVOLUTIONS[1];
    let last = |lengths: [usize; 4], values: Vec<f64>| {
        let [_, channels, height, width] = lengths;
        Tensor::with_strides(
            Kind::F32,
            &lengths,
            &[height * width * channels, 1, width * channels, channels],
            values,
        )
    };
    let (x_values, w_values) = (
        numbers(Kind::F32, convolution.x.iter().product(), 5),
        numbers(Kind::F32, convolution.w_lengths().iter().product(), 6),
    );
    let (x, w) = (
        last(convolution.x, x_values),
        last(convolution.w_lengths(), w_values),
    );
    let desc = convolution.descriptor();
    let expected = convolution.expected(&x.values, &w.values, Kind::F32.roundoff());
    let mut solutions = [miopenConvSolution_t::default(); 4];
    let (mut count, mut listed) = (0, 0);
    let count_lengths = convolution.y_lengths();
    let y = last(count_lengths, vec![0.0; count_lengths.iter().product()]);
    unsafe {
        ok(miopen()
            .miopenConvolutionForwardGetSolutionCount(handle.0, w.desc, x.desc, desc, y.desc, &mut count));
        ok(miopen().miopenConvolutionForwardGetSolution(
            handle.0,
            w.desc,
            x.desc,
            desc,
            y.desc,
            4,
            &mut listed,
            solutions.as_mut_ptr(),
        ));
    }
    assert_eq!(count, listed);
    for solution in &solutions[..count] {
        let y = last(count_lengths, vec![0.0; count_lengths.iter().product()]);
        let scratch = Buffer::new(Kind::I8, &vec![0.0; solution.workspace_size]);
        unsafe {
            ok(miopen().miopenConvolutionForwardCompileSolution(
                handle.0,
                w.desc,
                x.desc,
                desc,
                y.desc,
                solution.solution_id,
            ));
            ok(miopen().miopenConvolutionForwardImmediate(
                handle.0,
                w.desc,
                w.at(),
                x.desc,
                x.at(),
                desc,
                y.desc,
                y.at(),
                scratch.address(),
                solution.workspace_size,
                solution.solution_id,
            ));
        }
        compare("immediate", Kind::F32, &y.buffer.download(), &expected);
    }
    ok(unsafe { miopen().miopenDestroyConvolutionDescriptor(desc) });
}

#[test]
fn a_bias_is_added_to_each_channel() {
    let handle = Handle::new();
    let (bias, y) = (
        Tensor::random(Kind::F32, &[1, 5, 1, 1], 1),
        Tensor::random(Kind::F32, &[2, 5, 3, 7], 2),
    );
    ok(unsafe {
        miopen().miopenConvolutionForwardBias(handle.0, ONE, bias.desc, bias.at(), ZERO, y.desc, y.at())
    });
    let expected: Vec<_> = y
        .values
        .iter()
        .enumerate()
        .map(|(index, y)| (y + bias.values[index / 21 % 5], 0.0))
        .collect();
    compare("bias", Kind::F32, &y.buffer.download(), &expected);
}

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

#[test]
fn layer_normalisation() {
    let handle = Handle::new();
    let (rows, columns, epsilon) = (65, 197, 1e-5_f32);
    for kind in [Kind::F32, Kind::F16, Kind::Bf16] {
        let x = Tensor::random(kind, &[rows, columns], 1);
        let (weight, bias) = (
            Tensor::random(kind, &[columns], 2),
            Tensor::random(kind, &[columns], 3),
        );
        let (y, mean, factor) = (
            Tensor::zeroes(kind, &x.lengths),
            Tensor::zeroes(kind, &[rows]),
            Tensor::zeroes(kind, &[rows]),
        );
        let normalise = |mode: miopenNormMode_t, mean_at: *mut c_void, factor_at: *mut c_void| unsafe {
            miopen().miopenLayerNormForward(
                handle.0,
                mode,
                x.desc,
                x.at(),
                weight.desc,
                weight.at(),
                bias.desc,
                bias.at(),
                epsilon,
                1,
                y.desc,
                y.at(),
                mean.desc,
                mean_at,
                factor.desc,
                factor_at,
            )
        };
        for mode in [
            miopenNormMode_t::MIOPEN_WEIGHT_BIAS,
            miopenNormMode_t::MIOPEN_ELEMENTWISE_AFFINE,
        ] {
            ok(normalise(mode, mean.at(), factor.at()));
            let (mut expected, mut means, mut factors) = (Vec::new(), Vec::new(), Vec::new());
            for row in x.values.chunks(columns) {
                let mean = row.iter().sum::<f64>() / columns as f64;
                let variance = row.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / columns as f64;
                let factor = 1.0 / (variance + f64::from(epsilon)).sqrt();
                means.push((mean, 1e-12));
                factors.push((factor, 1e-12));
                for (index, value) in row.iter().enumerate() {
                    let normalised = (value - mean) * factor;
                    let result = match mode {
                        miopenNormMode_t::MIOPEN_WEIGHT_BIAS => {
                            normalised * weight.values[index] + bias.values[index]
                        }
                        _ => normalised,
                    };
                    // In f64: the error shows in none of these types.
                    expected.push((result, 1e-12));
                }
            }
            compare(
                &format!("{kind:?} {mode:?}"),
                kind,
                &y.buffer.download(),
                &expected,
            );
            compare("mean", kind, &mean.buffer.download(), &means);
            compare("factor", kind, &factor.buffer.download(), &factors);
        }
        // The statistics may be left out; another mode is another function's.
        ok(normalise(
            miopenNormMode_t::MIOPEN_WEIGHT_BIAS,
            ptr::null_mut(),
            ptr::null_mut(),
        ));
        refused(
            normalise(miopenNormMode_t::MIOPEN_WEIGHT_BIAS_T5, mean.at(), factor.at()),
            Status::miopenStatusBadParm,
        );
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
