//! Rounding to bytes in training: all results, beside the reference.

use super::{Gpu, Part, numbers, random, rounded};
use crate::float8::{Float8, Overflow};
use crate::hip::DeviceAddress;
use crate::kernels::bindings::{ActivationCode, Float8Code, Float8SourceCode, RoundFloat8Stage};
use crate::kernels::round_float8::Blocks;
use crate::kernels::{ActivationBackwardArgs, BiasActivationArgs, RoundFloat8Args};
use crate::ops::{Activation, ActivationBackward, Float8Source, Op, RoundFloat8, STATISTICS};
use crate::reference::Array;
use crate::tensor::DType;

const GELU: Activation = Activation::GeluErf;

/// `[rows, channels]` around tiles and blocks.
const EXTENTS: [[usize; 2]; 6] = [[1, 16], [16, 32], [33, 48], [129, 160], [300, 128], [257, 272]];

/// Results of the kernels.
struct Rounded {
    bytes: Vec<u8>,
    transposed: Vec<u8>,
    statistics: Vec<f32>,
    sums: Vec<f32>,
}

impl Gpu {
    /// Returns the byte of a number in a format. For NaN, one of the NaN bytes.
    fn byte(&self, format: Float8, x: f32) -> u8 {
        match format.from_f32(x, Overflow::Saturate) {
            _ if x.is_nan() && self.is_fnuz() => 0x80,
            0x80 if self.is_fnuz() => 0,
            bits => bits,
        }
    }

    /// Runs all stages. `x` and `dy` are `[rows, channels]`.
    fn round(
        &self,
        op: RoundFloat8,
        dtype: DType,
        [x, dy, statistics]: [&[f32]; 3],
        channels: usize,
    ) -> Rounded {
        let rows = x.len() / channels;
        let padded = rows.next_multiple_of(op.align);
        let [figures, sums] = Blocks::of([padded, channels]).bytes();
        let result = |elements: usize| Part::result(RoundFloat8::scale_offset(elements) + 4, 1);
        let mut results = [
            result(x.len()),
            result(padded * channels),
            Part::result(STATISTICS, 4),
            Part::result(channels, dtype.size()),
            Part::result(64 + (figures + sums) / 4, 4),
        ];
        for stage in [
            RoundFloat8Stage::Largest,
            RoundFloat8Stage::Round,
            RoundFloat8Stage::Finish,
        ] {
            let [out, transposed, next, sums, scratch] = results.clone();
            let parts = [
                Part::numbers(x, dtype),
                Part::numbers(dy, dtype),
                Part::operand(statistics),
                out,
                transposed,
                next,
                sums,
                scratch,
            ];
            let written = self.run(
                dtype,
                &parts,
                0,
                |[x, dy, statistics, out, transposed, next, sums, scratch]| {
                    let (source, dy) = match op.source {
                        Float8Source::Value => (Float8SourceCode::Value, DeviceAddress::NULL),
                        Float8Source::Activation(_) => (Float8SourceCode::Activation, DeviceAddress::NULL),
                        Float8Source::Slope(_) => (Float8SourceCode::Slope, dy),
                    };
                    let format = if op.format == Float8::E4M3 {
                        Float8Code::E4M3
                    } else {
                        Float8Code::E5M2
                    };
                    Ok(RoundFloat8Args {
                        x,
                        dy,
                        statistics,
                        out,
                        transposed,
                        next,
                        sums,
                        scratch,
                        rows: rows as u32,
                        channels: channels as u32,
                        padded_rows: padded as u32,
                        format: format as u32,
                        source: source as u32,
                        activation: ActivationCode::GeluErf as u32,
                        flags: u32::from(op.delayed) | 2,
                        stage: stage as u32,
                    }
                    .into())
                },
            );
            for (result, bytes) in results.iter_mut().zip(written) {
                result.bytes = bytes;
            }
        }
        let [bytes, transposed, statistics, sums, _] = results.map(|part| part.bytes);
        Rounded {
            bytes,
            transposed,
            statistics: numbers(&statistics, DType::F32),
            sums: numbers(&sums, dtype),
        }
    }

    /// Returns the numbers of the source, by separate kernels.
    fn source(&self, source: Float8Source, dtype: DType, [x, dy]: [&[f32]; 2], channels: usize) -> Vec<f32> {
        let extents = [x.len() / channels, channels];
        let parts = [
            Part::numbers(x, dtype),
            Part::numbers(dy, dtype),
            Part::result(x.len(), dtype.size()),
        ];
        let results = match source {
            Float8Source::Value => return x.to_vec(),
            Float8Source::Activation(activation) => self.run(dtype, &parts, 0, |[x, _, out]| {
                let addresses = [x, DeviceAddress::NULL, DeviceAddress::NULL, out];
                Ok(BiasActivationArgs::new(addresses, extents, Some(activation))?.into())
            }),
            Float8Source::Slope(activation) => self.run(dtype, &parts, 0, |addresses| {
                let backward = ActivationBackward {
                    activation,
                    secant: false,
                    sums: false,
                };
                Ok(ActivationBackwardArgs::new(addresses, extents, backward)?.into())
            }),
        };
        numbers(&results[0], dtype)
    }
}

/// Bytes, statistics and scales equal the reference's for the numbers of separate kernels. Includes numbers that underflow and overflow, NaN and
/// infinity.
#[test]
fn stored_roundings_are_those_of_the_reference() {
    let Some(gpu) = Gpu::get() else { return };
    let unit = if gpu.is_fnuz() { 2.0 } else { 1.0 };
    for (seed, [rows, channels]) in EXTENTS.into_iter().enumerate() {
        for (format, dtype, delayed) in [
            (Float8::E4M3, DType::BF16, true),
            (Float8::E5M2, DType::BF16, false),
            (Float8::E4M3, DType::F16, false),
            (Float8::E5M2, DType::F16, true),
        ] {
            for source in [
                Float8Source::Value,
                Float8Source::Activation(GELU),
                Float8Source::Slope(GELU),
            ] {
                let op = RoundFloat8 {
                    format,
                    source,
                    delayed,
                    sums: true,
                    align: 16,
                    stored: true,
                };
                let what = format!("{op:?} in {dtype}, [{rows}, {channels}]");
                let spread = random(rows * channels, seed, 12.0);
                let x: Vec<f32> = random(rows * channels, seed + 100, 4.0);
                let mut x: Vec<f32> = x.iter().zip(&spread).map(|(x, s)| x * s.exp2()).collect();
                if rows > 256 && source == Float8Source::Value {
                    (x[5], x[rows * channels - 3]) = (f32::NAN, f32::NEG_INFINITY);
                }
                let [x, dy] = [x, random(rows * channels, seed + 200, 4.0)].map(|v| rounded(&v, dtype));
                let mut statistics = vec![0.0; STATISTICS];
                if seed % 2 == 0 {
                    statistics[4] = 1000.0;
                }
                let found = gpu.round(op, dtype, [&x, &dy, &statistics], channels);
                let v = gpu.source(source, dtype, [&x, &dy], channels);
                let plain = RoundFloat8 {
                    source: Float8Source::Value,
                    ..op
                };
                let of_v = Array::new([rows, channels], v.clone()).unwrap();
                let of_statistics = Array::new([STATISTICS], statistics.clone()).unwrap();
                let expected = Op::from(plain).eval(&[&of_v, &of_statistics]).unwrap();
                let largest = expected[RoundFloat8::STATISTICS].values()[2];
                let scale = op.scale(&statistics, largest);
                for (bytes, expected) in [(&found.bytes, &expected[0]), (&found.transposed, &expected[1])] {
                    let len = expected.values().len();
                    for (index, (&got, &value)) in bytes[..len].iter().zip(expected.values()).enumerate() {
                        let wanted = gpu.byte(format, value / scale);
                        // −0 and 0 are equal. Several bytes are NaN.
                        let both_nan = value.is_nan() && !gpu.is_fnuz() && got & 0x7f == 0x7f;
                        assert!(
                            got == wanted
                                || both_nan
                                || [got, wanted].iter().all(|b| b & 0x7f == 0 && !gpu.is_fnuz()),
                            "{what}: {got:#04x} at {index}, expected {wanted:#04x} of {value}"
                        );
                    }
                    let behind = &bytes[RoundFloat8::scale_offset(len)..][..4];
                    assert_eq!(numbers(behind, DType::F32), [scale * unit], "{what}");
                }
                assert_eq!(
                    found.statistics,
                    expected[RoundFloat8::STATISTICS].values(),
                    "{what}"
                );
                // One rounding of the result, and one for each addition.
                let epsilon = if dtype == DType::BF16 {
                    2f32.powi(-8)
                } else {
                    2f32.powi(-11)
                };
                for (column, sum) in found.sums.iter().enumerate() {
                    let values = || v.iter().skip(column).step_by(channels).map(|&v| f64::from(v));
                    let exact: f64 = values().sum();
                    let all: f64 = values().map(f64::abs).sum();
                    let bound =
                        f64::from(epsilon) * exact.abs() + rows as f64 * f64::from(f32::EPSILON) * all;
                    let is_finite = exact.is_finite();
                    let overflows = dtype == DType::F16 && exact.abs() > 65000.0;
                    assert!(
                        !is_finite || overflows || (f64::from(*sum) - exact).abs() <= bound + 1e-7,
                        "{what}: {sum}, expected {exact}"
                    );
                }
            }
        }
    }
}
