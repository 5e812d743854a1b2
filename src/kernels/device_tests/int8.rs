//! Linear layers in int8: quantised rows, an integer GEMM on the host, and the operations after it.

use super::{DTYPES, EXTENTS, Gpu, Part, numbers, random, rounded};
use crate::cpu::activation;
use crate::cpu::int8::{self, Int8Weight, quantize_row};
use crate::cpu::rows::Source;
use crate::cpu::tail::Tail;
use crate::hip::DeviceAddress;
use crate::kernels::{DequantizeArgs, Int8GemmArgs, QuantizeArgs, has_int8_gemm};
use crate::ops::{Activation, Levels};
use crate::tensor::DType;

const LEVELS: [Levels; 3] = [
    Levels::Range,
    Levels::Magnitude,
    Levels::Fixed {
        scale: 0.031,
        zero: 117,
    },
];

/// Returns rows quantised on the GPU: i8 `[rows, channels]` and f32 `[rows, 2]`.
fn quantised(
    gpu: &Gpu,
    dtype: DType,
    x: &[f32],
    channels: usize,
    levels: Levels,
    shift: usize,
) -> (Vec<i8>, Vec<f32>) {
    let rows = x.len() / channels;
    let parts = [
        Part::numbers(x, dtype),
        Part::result(x.len(), 1),
        Part::result(rows * 2, 4),
    ];
    let mut results = gpu.run(dtype, &parts, shift, |[x, out, ranges]| {
        Ok(QuantizeArgs::int8([x, out, ranges], [rows, channels], levels)?.into())
    });
    let ranges = numbers(&results.remove(1), DType::F32);
    (bytemuck::cast_slice(&results[0]).to_vec(), ranges)
}

/// Checks that the GPU's levels, scale and zero point of each row equal the host's.
fn check(gpu: &Gpu, dtype: DType, x: &[f32], channels: usize, levels: Levels, shift: usize) {
    let x = rounded(x, dtype);
    let (out, ranges) = quantised(gpu, dtype, &x, channels, levels, shift);
    for (row, (x, out)) in x.chunks(channels).zip(out.chunks(channels)).enumerate() {
        let mut q = vec![0; channels];
        let (scale, zero) = quantize_row(x, levels, &mut q);
        let got = (ranges[2 * row], ranges[2 * row + 1]);
        let what = format!("{dtype} {channels} channels, row {row}, {levels:?}");
        let same = got.0.to_bits() == scale.to_bits() || got.0.is_nan() && scale.is_nan();
        assert!(
            same && got.1 == (zero - 128) as f32,
            "{what}: {got:?}, expected {scale}, {zero} − 128"
        );
        for (i, (&got, q)) in out.iter().zip(q).enumerate() {
            assert_eq!(i32::from(got), i32::from(q) - 128, "{what}: {:e} at {i}", x[i]);
        }
    }
}

#[test]
fn rows_of_any_length_are_quantised_as_on_the_host() {
    let Some(gpu) = Gpu::get() else { return };
    // In a block, and beyond its registers.
    let long = [[3, 2056], [2, 2500], [2, 9001]];
    for dtype in DTYPES {
        for (seed, [rows, channels]) in EXTENTS.into_iter().chain(long).enumerate() {
            let x = random(rows * channels, seed, 5.0);
            for levels in LEVELS {
                check(&gpu, dtype, &x, channels, levels, seed % 3);
            }
        }
    }
}

#[test]
fn awkward_numbers_are_quantised_as_on_the_host() {
    let Some(gpu) = Gpu::get() else { return };
    const CHANNELS: usize = 72;
    let filled = |values: &[f32]| {
        (0..CHANNELS)
            .map(|i| values[i % values.len()])
            .collect::<Vec<_>>()
    };
    let halves: Vec<f32> = (0..CHANNELS)
        .map(|i| (2 * i) as f32 * 0.5 + 0.5)
        .chain([255.0])
        .collect();
    let rows = [
        filled(&[0.0, -0.0]),
        filled(&[1.0]),
        filled(&[-3.5]),
        filled(&[0.0, 255.0, 0.5, 1.5, 2.5, 254.5]),
        filled(&[-127.5, 127.5, 0.0, 0.5, 1.5, -0.5, -1.5]),
        filled(&[-128.0, 127.0, 63.5]),
        halves[1..].to_vec(),
        filled(&[f32::MAX, f32::MIN, 0.0]),
        filled(&[6e4, -6e4, 1.0]),
        filled(&[1e-40, -1e-39]),
        filled(&[1e-37, 2e-36]),
        filled(&[1e-20, 3e-20, -2e-20]),
        filled(&[1.0, f32::NAN, -2.0]),
        filled(&[1.0, -f32::NAN]),
        filled(&[f32::INFINITY, 2.0]),
        filled(&[2.0, 3.0, f32::NEG_INFINITY]),
    ];
    // f16 represents numbers beyond 65504 as infinity.
    let x = rows.concat();
    for dtype in DTYPES {
        for levels in LEVELS.into_iter().chain([
            Levels::Fixed { scale: 1.0, zero: 0 },
            Levels::Fixed {
                scale: 2.0,
                zero: 255,
            },
            Levels::Fixed {
                scale: 1e-39,
                zero: 7,
            },
            Levels::Fixed {
                scale: 1e-30,
                zero: 128,
            },
        ]) {
            check(&gpu, dtype, &x, CHANNELS, levels, 0);
        }
    }
}

/// Both kernels, with the GEMM on the host between them, equal the CPU's int8 linear layer. In f32 they are bitwise equal.
#[test]
fn linear_layers_are_those_of_the_host() {
    let Some(gpu) = Gpu::get() else { return };
    for dtype in DTYPES {
        for (seed, [m, k, n]) in [[1, 1, 1], [5, 63, 65], [65, 197, 64], [3, 257, 33]]
            .into_iter()
            .enumerate()
        {
            let x = rounded(&random(m * k, seed, 2.0), dtype);
            let weight: Vec<i8> = random(n * k, 7, 128.0).iter().map(|&v| v as i8).collect();
            let scales: Vec<f32> = random(n, 8, 0.01).iter().map(|v| v.abs() + 1e-3).collect();
            let [bias, residual] =
                [(n, 9), (m * n, 10)].map(|(count, seed)| rounded(&random(count, seed, 1.0), dtype));
            let packed = Int8Weight::new(&weight, &scales, n, k).unwrap();
            let column_sums: Vec<i32> = weight
                .chunks(k)
                .map(|row| row.iter().map(|&q| i32::from(q)).sum())
                .collect();
            for levels in LEVELS {
                let (q, ranges) = quantised(&gpu, dtype, &x, k, levels, 0);
                let dot = |x: &[i8], w: &[i8]| -> i32 {
                    x.iter().zip(w).map(|(x, w)| i32::from(*x) * i32::from(*w)).sum()
                };
                let sums: Vec<i32> = q
                    .chunks(k)
                    .flat_map(|x| weight.chunks(k).map(move |w| dot(x, w)))
                    .collect();
                let [part_bias, part_residual] = [&bias, &residual].map(|v| Part::numbers(v, dtype));
                let parts = [
                    Part::operand(&sums),
                    Part::operand(&ranges),
                    Part::operand(&scales),
                    Part::operand(&column_sums),
                    part_bias,
                    part_residual,
                    Part::result(m * n, dtype.size()),
                ];
                for (with, activation) in [(true, None), (false, None), (true, Some(Activation::GeluErf))] {
                    let optional = |address| if with { address } else { DeviceAddress::NULL };
                    let results = gpu.run(
                        dtype,
                        &parts,
                        seed % 2,
                        |[sums, ranges, scales, column_sums, bias, residual, out]| {
                            let operands = [sums, ranges, scales, column_sums];
                            let rest = [optional(bias), optional(residual), out];
                            Ok(DequantizeArgs::new(operands, rest, [m, n], activation)?.into())
                        },
                    );
                    let tail = Tail {
                        bias: with.then_some(&bias[..]),
                        activation,
                        residual: with.then_some(Source::At(&residual)),
                    };
                    let mut expected = vec![f32::NAN; m * n];
                    int8::run(&x, &packed, levels, tail, &mut expected).unwrap();
                    let what = format!("{dtype} {:?} {levels:?} {activation:?}", [m, k, n]);
                    let got = numbers(&results[0], dtype);
                    if activation.is_none() {
                        assert_eq!(got, rounded(&expected, dtype), "{what}");
                        continue;
                    }
                    // Activations differ by a few ulps.
                    let epsilon = match dtype {
                        DType::F16 => 2f32.powi(-10),
                        DType::BF16 => 2f32.powi(-7),
                        _ => 2e-6,
                    };
                    for (got, expected) in got.iter().zip(&expected) {
                        let limit = epsilon * expected.abs().max(1.0);
                        assert!(
                            (got - expected).abs() <= limit,
                            "{what}: {got}, expected {expected}"
                        );
                    }
                }
            }
        }
    }
}

/// One kernel equals an integer GEMM (here on the host) and `dequantize`, bit for bit.
#[test]
fn a_fused_gemm_has_the_bits_of_its_parts() {
    let Some(gpu) = Gpu::get() else { return };
    if !has_int8_gemm(gpu.device.properties().arch()) {
        return;
    }
    let byte = |&v: &f32| v.floor() as i8;
    for (seed, [m, k, n]) in [
        [1, 1, 1],
        [63, 64, 65],
        [65, 63, 64],
        [130, 257, 129],
        [197, 16, 7],
        [129, 208, 200],
    ]
    .into_iter()
    .enumerate()
    {
        let x: Vec<i8> = random(m * k, seed, 128.0).iter().map(byte).collect();
        let weight: Vec<i8> = random(n * k, 7, 128.0).iter().map(byte).collect();
        let scales: Vec<f32> = random(n, 8, 0.01).iter().map(|v| v.abs() + 1e-3).collect();
        let zeros = random(m, 9, 128.0);
        let ranges: Vec<f32> = zeros
            .iter()
            .flat_map(|zero| [zero.abs() * 1e-4, zero.floor()])
            .collect();
        let sum =
            |x: &[i8], w: &[i8]| -> i32 { x.iter().zip(w).map(|(x, w)| i32::from(*x) * i32::from(*w)).sum() };
        let ones = vec![1; k];
        let column_sums: Vec<i32> = weight.chunks(k).map(|row| sum(row, &ones)).collect();
        let sums: Vec<i32> = x
            .chunks(k)
            .flat_map(|x| weight.chunks(k).map(move |w| sum(x, w)))
            .collect();
        for dtype in DTYPES {
            let [bias, residual] =
                [(n, 10), (m * n, 11)].map(|(count, seed)| Part::numbers(&random(count, seed, 1.0), dtype));
            let parts = [
                Part::operand(&x),
                Part::operand(&weight),
                Part::operand(&sums),
                Part::operand(&ranges),
                Part::operand(&scales),
                Part::operand(&column_sums),
                bias,
                residual,
                Part::result(m * n, dtype.size()),
            ];
            for (with, activation) in [
                ([true, true], None),
                ([false, false], None),
                ([true, false], Some(Activation::GeluErf)),
                ([false, true], Some(Activation::Silu)),
            ] {
                let run = |fused: bool| {
                    let call =
                        |[x, weight, sums, ranges, scales, column_sums, bias, residual, out]: [DeviceAddress;
                             9]| {
                            let optional = |with, address| if with { address } else { DeviceAddress::NULL };
                            let rest = [optional(with[0], bias), optional(with[1], residual), out];
                            let factors = [ranges, scales, column_sums];
                            Ok(if fused {
                                Int8GemmArgs::new([x, weight], factors, rest, [m, n, k], activation)?.into()
                            } else {
                                let operands = [sums, ranges, scales, column_sums];
                                DequantizeArgs::new(operands, rest, [m, n], activation)?.into()
                            })
                        };
                    gpu.run(dtype, &parts, seed % 2, call).remove(0)
                };
                let (fused, apart) = (run(true), run(false));
                let what = format!("{dtype} {:?} {with:?} {activation:?}", [m, k, n]);
                assert!(fused == apart, "{what}: the bits differ");
            }
        }
    }
}

#[test]
fn every_activation_follows_dequantisation() {
    let Some(gpu) = Gpu::get() else { return };
    const N: usize = 64;
    let sums: Vec<i32> = (0..N as i32).map(|i| (i - 32) * 1000).collect();
    let (ranges, scales, column_sums) = ([1e-3f32, -100.0], [0.25f32; N], [3i32; N]);
    for activation in [
        Activation::GeluErf,
        Activation::GeluTanh,
        Activation::QuickGelu,
        Activation::Silu,
        Activation::Relu,
        Activation::Tanh,
    ] {
        let mut expected: Vec<f32> = sums.iter().map(|sum| (sum + 300) as f32 * 0.25 * 1e-3).collect();
        activation::apply(activation, &mut expected);
        let parts = [
            Part::operand(&sums),
            Part::operand(&ranges),
            Part::operand(&scales),
            Part::operand(&column_sums),
            Part::result(N, 4),
        ];
        let results = gpu.run(
            DType::F32,
            &parts,
            0,
            |[sums, ranges, scales, column_sums, out]| {
                let operands = [sums, ranges, scales, column_sums];
                Ok(DequantizeArgs::new(
                    operands,
                    [DeviceAddress::NULL, DeviceAddress::NULL, out],
                    [1, N],
                    Some(activation),
                )?
                .into())
            },
        );
        for (got, expected) in numbers(&results[0], DType::F32).iter().zip(&expected) {
            assert!(
                (got - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                "{activation:?}: {got}, expected {expected}"
            );
        }
    }
}
