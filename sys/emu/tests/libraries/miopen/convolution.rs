//! Convolution.

use super::*;

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
