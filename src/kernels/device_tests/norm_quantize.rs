//! Norms that round their results to 8 bits: bitwise equal to the norm's kernel followed by the one that rounds rows.

use super::{DTYPES, EXTENTS, Gpu, Part, numbers, random, rounded};
use crate::hip::DeviceAddress;
use crate::kernels::{KernelError, LayerNormArgs, NormQuantizeArgs, QuantizeArgs};
use crate::ops::Levels;
use crate::tensor::DType;

const EPSILON: f32 = 1e-5;

/// Creates the arguments of `quantize_float8_rows` or `quantize_int8`, with the per-row parameters.
fn quantize(
    addresses: [DeviceAddress; 3],
    extents: [usize; 2],
    levels: Option<Levels>,
) -> Result<QuantizeArgs, KernelError> {
    match levels {
        None => QuantizeArgs::float8_rows(addresses, extents),
        Some(levels) => QuantizeArgs::int8(addresses, extents, levels),
    }
}

/// Returns rows, some of zeros, far from zero, tiny, so large that an f16 norm overflows, or with NaN.
fn matrix([rows, channels]: [usize; 2], seed: usize, dtype: DType) -> Vec<f32> {
    let mut x = random(rows * channels, seed, 3.0);
    for (row, x) in x.chunks_mut(channels).enumerate().skip(1) {
        match row % 7 {
            1 => x.fill(0.0),
            2 => x.iter_mut().for_each(|x| *x += 50.0),
            3 => x.iter_mut().for_each(|x| *x *= 1e-7),
            4 => x[channels / 2] = 6e4,
            5 => x[channels - 1] = f32::NAN,
            _ => {}
        }
    }
    rounded(&x, dtype)
}

#[test]
fn norms_write_rows_of_8_bits() {
    let Some(gpu) = Gpu::get() else { return };
    // Long rows too: in the entries for wide rows, in a block, and beyond its registers; with and without whole vec128s.
    let long = [[5, 1032], [3, 2048], [2, 2056], [2, 8209], [2, 9000]];
    let fixed = Levels::Fixed {
        scale: 0.031,
        zero: 117,
    };
    let roundings = [None, Some(Levels::Range), Some(Levels::Magnitude), Some(fixed)];
    for dtype in DTYPES {
        for (seed, extents) in EXTENTS.into_iter().chain(long).enumerate() {
            let [rows, channels] = extents;
            let x = matrix(extents, seed, dtype);
            // f16 overflows in some rows.
            let large = if seed % 3 == 0 { 6e4 } else { 1.0 };
            let [weight, bias] = [1, 2].map(|i| random(channels, seed + 100 * i, large));
            let parts = [x, weight, bias].map(|values| Part::numbers(&values, dtype));
            let shift = seed % 2;
            for (index, rms) in [false, true].into_iter().enumerate() {
                let norm = |[x, weight, bias, out]: [DeviceAddress; 4]| {
                    if rms {
                        LayerNormArgs::rms([x, weight, out], extents, EPSILON)
                    } else {
                        LayerNormArgs::new([x, weight, bias, out], extents, EPSILON)
                    }
                };
                let [x, weight, bias] = parts.clone();
                let wide = Part::result(rows * channels, dtype.size());
                let normed = gpu.run(dtype, &[x, weight, bias, wide], shift, |addresses| {
                    Ok(norm(addresses)?.into())
                });
                let normed = Part::numbers(&numbers(&normed[0], dtype), dtype);
                for levels in [None, roundings[1 + (seed + index) % 3]] {
                    let of_row = if levels.is_some() { 2 } else { 1 };
                    let results = [Part::result(rows * channels, 1), Part::result(rows * of_row, 4)];
                    let [out, ranges] = results.clone();
                    let operands = [normed.clone(), out, ranges];
                    let expected = gpu.run(dtype, &operands, shift, |addresses| {
                        Ok(quantize(addresses, extents, levels)?.into())
                    });
                    let ([x, weight, bias], [out, ranges]) = (parts.clone(), results);
                    let operands = [x, weight, bias, out, ranges];
                    let got = gpu.run(dtype, &operands, shift, |[x, weight, bias, out, ranges]| {
                        let quantize = quantize([DeviceAddress::NULL, out, ranges], extents, levels)?;
                        Ok(
                            NormQuantizeArgs::new(norm([x, weight, bias, DeviceAddress::NULL])?, quantize)
                                .into(),
                        )
                    });
                    let what = format!("{dtype} {extents:?}, RMS: {rms}, {levels:?}, shifted by {shift}");
                    assert!(got == expected, "{what}: {}", difference(&got, &expected));
                }
            }
        }
    }
}

/// Returns the first byte that differs.
fn difference(got: &[Vec<u8>], expected: &[Vec<u8>]) -> String {
    let pairs = got.iter().zip(expected).enumerate();
    let mut differing = pairs.filter_map(|(part, (got, expected))| {
        let at = got
            .iter()
            .zip(expected)
            .position(|(got, expected)| got != expected)?;
        Some(format!(
            "byte {at} of result {part} is {:#04x}, expected {:#04x}",
            got[at], expected[at]
        ))
    });
    differing.next().unwrap_or_default()
}
