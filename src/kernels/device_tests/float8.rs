//! E4M3: the conversion, and the kernels that write it.

use super::{DTYPES, EXTENTS, Gpu, Part, numbers, random, rounded};
use crate::float8::{Float8, Overflow, row_scale};
use crate::hip::DeviceAddress;
use crate::kernels::{
    BiasActivationArgs, DequantizeArgs, LayerNormArgs, QuantizeArgs, SwiGluArgs, SwiGluNormArgs,
};
use crate::ops::{Activation, LayerNorm, Op, RmsNorm, SwiGlu, SwiGluNorm};
use crate::reference::{Array, eval};
use crate::tensor::DType;

const SCALE: f32 = 0.037;

impl Gpu {
    /// Returns the byte of a number. For NaN, one of the NaN bytes.
    pub(super) fn float8(&self, x: f32) -> u8 {
        match Float8::E4M3.from_f32(x, Overflow::Saturate) {
            _ if x.is_nan() && self.is_fnuz() => 0x80,
            0x80 if self.is_fnuz() => 0,
            bits => bits,
        }
    }

    /// Checks that each byte is that of a number within `tolerance` of the expected one.
    fn assert_close(&self, got: &[u8], expected: &[f64], tolerance: f64, what: &str) {
        assert_eq!(got.len(), expected.len());
        let order = |bits: u8| match i32::from(bits & 0x7f) {
            magnitude if bits & 0x80 != 0 => -magnitude,
            magnitude => magnitude,
        };
        for (index, (&got, value)) in got.iter().zip(expected).enumerate() {
            let [low, high] = [value - tolerance, value + tolerance].map(|v| order(self.float8(v as f32)));
            let is_nan = got == 0x7f || got == 0xff || self.is_fnuz() && got == 0x80;
            assert!(
                !is_nan && (low..=high).contains(&order(got)),
                "{what}: {got:#04x} at {index}, of {value}"
            );
        }
    }
}

fn array(shape: &[usize], values: &[f32]) -> Array {
    Array::new(shape, values.iter().map(|&v| f64::from(v)).collect()).unwrap()
}

/// Returns all numbers of the format, all midpoints between them, the neighbours of both, and the limits of f32.
fn roundings() -> Vec<f32> {
    let values: Vec<f32> = (0..0x7f).map(|bits| Float8::E4M3.to_f32(bits)).collect();
    let midpoints = values.windows(2).map(|pair| pair[0].midpoint(pair[1]));
    let beyond = [464.0, 480.0, 1e9, f32::MAX, f32::INFINITY, f32::NAN];
    let small = [1, 2, 0x7f_ffff, 0x80_0000].map(f32::from_bits);
    let all: Vec<f32> = values
        .iter()
        .copied()
        .chain(midpoints)
        .chain(beyond)
        .chain(small)
        .collect();
    let next = |&x: &f32| [x, x.next_up(), x.next_down()];
    let positive: Vec<f32> = all.iter().flat_map(next).collect();
    positive.iter().flat_map(|&x| [x, -x]).collect()
}

#[test]
fn every_kind_of_rounding_is_the_host_s() {
    let Some(gpu) = Gpu::get() else { return };
    let mut values = roundings();
    // Arbitrary bits.
    values.extend(
        random(20_000, 1, 1.0)
            .iter()
            .map(|v| f32::from_bits((v.to_bits() << 9) ^ (v * 1e9) as i32 as u32)),
    );
    // Within the range of the format.
    values.extend(random(20_000, 2, 500.0));
    values.extend(random(5_000, 3, 0.02));
    let parts = [Part::operand(&values), Part::result(values.len(), 1)];
    let results = gpu.run(DType::F32, &parts, 0, |[x, out]| {
        Ok(QuantizeArgs::float8([x, out], [1, values.len()], 1.0)?.into())
    });
    for (&x, &got) in values.iter().zip(&results[0]) {
        let expected = gpu.float8(x);
        let same = if x.is_nan() && !gpu.is_fnuz() {
            got & 0x7f == 0x7f
        } else {
            got == expected
        };
        assert!(
            same,
            "{x:e} ({:#010x}): {got:#04x}, expected {expected:#04x}",
            x.to_bits()
        );
        // A GEMM on gfx942 reads half the number.
        if gpu.is_fnuz() && !x.is_nan() {
            assert_eq!(
                2.0 * Float8::E4M3Fnuz.to_f32(got),
                Float8::E4M3.to_f32(expected),
                "{x:e}"
            );
        }
    }
}

/// Bytes and scales of rows equal the host's bit for bit. Includes zeros, numbers near the limits of f32, NaN and infinity.
#[test]
fn rows_are_quantised_as_on_the_host() {
    let Some(gpu) = Gpu::get() else { return };
    let unit = if gpu.is_fnuz() { 2.0 } else { 1.0 };
    for dtype in DTYPES {
        for (seed, [rows, channels]) in EXTENTS.into_iter().chain([[6, 2500]]).enumerate() {
            let mut x = rounded(&random(rows * channels, seed, 20.0), dtype);
            for (row, x) in x.chunks_mut(channels).enumerate().skip(1) {
                match row % 7 {
                    0 => x.fill(0.0),
                    2 => x.iter_mut().for_each(|x| *x *= 1e-30),
                    3 => x.iter_mut().for_each(|x| *x *= 1e30),
                    4 => x[channels / 2] = f32::NAN,
                    5 => x[channels - 1] = f32::NEG_INFINITY,
                    _ => {}
                }
            }
            let x = rounded(&x, dtype);
            let parts = [
                Part::numbers(&x, dtype),
                Part::result(x.len(), 1),
                Part::result(rows, 4),
            ];
            for shift in [0, 1, 4] {
                let results = gpu.run(dtype, &parts, shift, |[x, out, scales]| {
                    Ok(QuantizeArgs::float8_rows([x, out, scales], [rows, channels])?.into())
                });
                let scales = numbers(&results[1], DType::F32);
                for (row, x) in x.chunks(channels).enumerate() {
                    let what = format!("{dtype} [{rows}, {channels}], row {row}, shifted by {shift}");
                    let scale = row_scale(x);
                    let got = &results[0][row * channels..][..channels];
                    if scale.is_nan() {
                        assert!(scales[row].is_nan(), "{what}");
                        assert!(got.iter().all(|&bits| bits == 0), "{what}");
                        continue;
                    }
                    assert_eq!(scales[row].to_bits(), (scale * unit).to_bits(), "{what}");
                    let expected: Vec<u8> = if scale == 0.0 {
                        vec![0; channels]
                    } else {
                        x.iter().map(|v| gpu.float8(v * (1.0 / scale))).collect()
                    };
                    assert_eq!(got, expected, "{what}");
                }
            }
        }
    }
}

/// The operations after a GEMM whose operands have a scale per row.
#[test]
fn sums_are_multiplied_by_the_scales_of_rows_and_columns() {
    let Some(gpu) = Gpu::get() else { return };
    for dtype in DTYPES {
        for (seed, [rows, channels]) in EXTENTS.into_iter().enumerate() {
            let count = rows * channels;
            let sums = random(count, seed, 1e6);
            let [row_scales, scales] = [rows, channels].map(|n| random(n, n, 1e-3));
            let bias = rounded(&random(channels, 3, 1.0), dtype);
            let residual = rounded(&random(count, 4, 1.0), dtype);
            let parts = [
                Part::operand(&sums),
                Part::operand(&row_scales),
                Part::operand(&scales),
                Part::numbers(&bias, dtype),
                Part::numbers(&residual, dtype),
                Part::result(count, dtype.size()),
            ];
            for (with, shift) in [(true, 0), (false, 1), (true, 4)] {
                let results = gpu.run(
                    dtype,
                    &parts,
                    shift,
                    |[sums, of_rows, of_columns, bias, residual, out]| {
                        let rest = if with {
                            [bias, residual, out]
                        } else {
                            [DeviceAddress::NULL, DeviceAddress::NULL, out]
                        };
                        let operands = [sums, of_rows, of_columns];
                        Ok(DequantizeArgs::float8(operands, rest, [rows, channels], None)?.into())
                    },
                );
                let expected: Vec<f32> = (0..count)
                    .map(|index| {
                        let (row, column) = (index / channels, index % channels);
                        let value = sums[index] * scales[column] * row_scales[row];
                        if with {
                            value + bias[column] + residual[index]
                        } else {
                            value
                        }
                    })
                    .collect();
                assert_eq!(
                    numbers(&results[0], dtype),
                    rounded(&expected, dtype),
                    "{dtype} [{rows}, {channels}], {with}, shifted by {shift}"
                );
            }
        }
    }
}

#[test]
fn matrices_of_any_size_and_alignment_are_quantised() {
    let Some(gpu) = Gpu::get() else { return };
    for dtype in DTYPES {
        for (seed, [rows, channels]) in EXTENTS.into_iter().enumerate() {
            let x = random(rows * channels, seed, 20.0);
            let parts = [Part::numbers(&x, dtype), Part::result(x.len(), 1)];
            let expected: Vec<u8> = rounded(&x, dtype)
                .iter()
                .map(|v| gpu.float8(v * (1.0 / SCALE)))
                .collect();
            for shift in [0, 1, 4] {
                let results = gpu.run(dtype, &parts, shift, |[x, out]| {
                    Ok(QuantizeArgs::float8([x, out], [rows, channels], SCALE)?.into())
                });
                assert_eq!(
                    results[0], expected,
                    "{dtype} [{rows}, {channels}], shifted by {shift}"
                );
            }
        }
    }
}

#[test]
fn norms_write_float8() {
    let Some(gpu) = Gpu::get() else { return };
    const EPSILON: f32 = 1e-5;
    // Long rows too: in the entry for many rows, in a block, and beyond its registers.
    let long = [[5, 1032], [2, 1025], [2, 2056], [2, 9000]];
    for dtype in DTYPES {
        for (seed, [rows, channels]) in EXTENTS.into_iter().chain(long).enumerate() {
            let [x, residual] = [1, 2].map(|i| rounded(&random(rows * channels, seed + 100 * i, 3.0), dtype));
            let [weight, bias] = [3, 4].map(|i| rounded(&random(channels, seed + 100 * i, 1.0), dtype));
            let sum: Vec<f32> = x.iter().zip(&residual).map(|(x, r)| x + r).collect();
            let [x, residual, weight, bias] =
                [&x, &residual, &weight, &bias].map(|v| Part::numbers(v, dtype));
            let parts = [
                x,
                residual,
                weight,
                bias,
                Part::result(sum.len(), dtype.size()),
                Part::result(sum.len(), 1),
            ];
            let extents = [rows, channels];
            for (of_sum, rms) in [(false, false), (false, true), (true, false), (true, true)] {
                let shift = usize::from(of_sum && seed % 2 == 0);
                let results = gpu.run(dtype, &parts, shift, |[x, residual, weight, bias, sum, out]| {
                    let norm = if rms {
                        LayerNormArgs::rms([x, weight, out], extents, EPSILON)?
                    } else {
                        LayerNormArgs::new([x, weight, bias, out], extents, EPSILON)?
                    };
                    let norm = if of_sum { norm.of_sum(residual, sum) } else { norm };
                    Ok(norm.to_float8(SCALE).into())
                });
                let what = format!("{dtype} {extents:?}, of a sum: {of_sum}, RMS: {rms}");
                let normed = if of_sum {
                    sum.clone()
                } else {
                    numbers(&parts[0].bytes, dtype)
                };
                let x = array(&extents, &normed);
                let [weight, bias] = [2, 3].map(|i| array(&[channels], &numbers(&parts[i].bytes, dtype)));
                let expected = if rms {
                    eval(&Op::RmsNorm(RmsNorm { epsilon: EPSILON }), &[&x, &weight])
                } else {
                    eval(
                        &Op::LayerNorm(LayerNorm { epsilon: EPSILON }),
                        &[&x, &weight, &bias],
                    )
                };
                let expected: Vec<f64> = expected
                    .unwrap()
                    .values()
                    .iter()
                    .map(|v| v / f64::from(SCALE))
                    .collect();
                gpu.assert_close(&results[1], &expected, 1e-3, &what);
                let sums = if of_sum {
                    Part::numbers(&sum, dtype).bytes
                } else {
                    parts[4].bytes.clone()
                };
                assert_eq!(results[0], sums, "{what}");
            }
        }
    }
}

#[test]
fn gates_and_activations_write_float8() {
    let Some(gpu) = Gpu::get() else { return };
    for dtype in DTYPES {
        for (seed, extents) in EXTENTS.into_iter().enumerate() {
            let [rows, channels] = extents;
            let of = |i: usize, count: usize| rounded(&random(count, seed + 100 * i, 4.0), dtype);
            let (x, bias, residual) = (
                of(1, 2 * rows * channels),
                of(2, 2 * channels),
                of(3, rows * channels),
            );
            let parts = [&x, &bias, &residual].map(|v| Part::numbers(v, dtype));
            let [part_x, part_bias, part_residual] = parts;
            let parts = [part_x, part_bias, part_residual, Part::result(rows * channels, 1)];
            let scaled = |values: &[f64]| values.iter().map(|v| v / f64::from(SCALE)).collect::<Vec<_>>();
            let shift = seed % 2;

            let results = gpu.run(dtype, &parts, shift, |[x, bias, _, out]| {
                Ok(SwiGluArgs::new([x, bias, out], extents)?.to_float8(SCALE).into())
            });
            let biased: Vec<f32> = x
                .iter()
                .enumerate()
                .map(|(i, x)| x + bias[i % (2 * channels)])
                .collect();
            let expected = eval(&Op::SwiGlu(SwiGlu), &[&array(&[rows, 2 * channels], &biased)]).unwrap();
            gpu.assert_close(
                &results[0],
                &scaled(expected.values()),
                1e-3,
                &format!("{dtype} swiglu {extents:?}"),
            );

            let results = gpu.run(dtype, &parts, shift, |[x, weight_and_bias, _, out]| {
                let bias = weight_and_bias.offset(channels * dtype.size());
                let addresses = [x, weight_and_bias, bias, out];
                Ok(SwiGluNormArgs::new(addresses, extents, 1e-6)?
                    .to_float8(SCALE)
                    .into())
            });
            let (weight, shift_by) = bias.split_at(channels);
            let operands = [
                array(&[rows, 2 * channels], &x),
                array(&[channels], weight),
                array(&[channels], shift_by),
            ];
            let operands: Vec<&Array> = operands.iter().collect();
            let expected = eval(
                &Op::SwiGluNorm(SwiGluNorm {
                    epsilon: 1e-6,
                    padding: 0,
                }),
                &operands,
            )
            .unwrap();
            gpu.assert_close(
                &results[0],
                &scaled(expected.values()),
                1e-3,
                &format!("{dtype} swiglu_norm {extents:?}"),
            );

            let activations = [None, Some(Activation::GeluErf), Some(Activation::Relu)];
            for activation in activations {
                let results = gpu.run(dtype, &parts, shift, |[x, bias, residual, out]| {
                    let args = BiasActivationArgs::new([x, bias, residual, out], extents, activation)?;
                    Ok(args.to_float8(SCALE).into())
                });
                let biased: Vec<f32> = x[..rows * channels]
                    .iter()
                    .enumerate()
                    .map(|(i, x)| x + bias[i % channels])
                    .collect();
                let biased = array(&extents, &biased);
                let activated = match activation {
                    Some(activation) => eval(&Op::Activation(activation), &[&biased]).unwrap(),
                    None => biased,
                };
                let sums: Vec<f64> = activated
                    .values()
                    .iter()
                    .zip(&residual)
                    .map(|(v, r)| v + f64::from(*r))
                    .collect();
                gpu.assert_close(
                    &results[0],
                    &scaled(&sums),
                    1e-3,
                    &format!("{dtype} {activation:?} {extents:?}"),
                );
            }
        }
    }
}
