//! `gemv`, compared with the sums in f64.

use super::{DTYPES, Gpu, Part, numbers, random, rounded};
use crate::hip::DeviceAddress;
use crate::kernels::GemvArgs;
use crate::ops::{Activation, Op};
use crate::reference::{Array, eval};
use crate::tensor::DType;

/// `[channels, inner]` around blocks and vectors.
const EXTENTS: [[usize; 2]; 6] = [[1, 1], [4, 64], [5, 63], [63, 257], [64, 1024], [197, 2056]];

#[test]
fn few_rows_are_multiplied() {
    let Some(gpu) = Gpu::get() else { return };
    for dtype in DTYPES {
        // Half a unit in the last place of the result.
        let roundoff = match dtype {
            DType::F32 => f64::from(f32::EPSILON) / 2.0,
            DType::F16 => 2f64.powi(-11),
            _ => 2f64.powi(-8),
        };
        for (seed, [n, k]) in EXTENTS.into_iter().enumerate() {
            for m in 1..=4 {
                let [x, weight, bias, residual] = [m * k, n * k, n, m * n]
                    .map(|len| rounded(&random(len, seed + 10 * m + len, 1.0), dtype));
                let activation = [None, Some(Activation::GeluErf), Some(Activation::Relu)][(m + seed) % 3];
                let has_bias = m % 2 == 0 || seed % 2 == 0;
                let has_residual = m % 3 != 0;
                let mut parts = vec![Part::numbers(&x, dtype), Part::numbers(&weight, dtype)];
                parts.extend([Part::numbers(&bias, dtype), Part::numbers(&residual, dtype)]);
                parts.push(Part::result(m * n, dtype.size()));
                let parts: [Part; 5] = parts.try_into().unwrap();
                let results = gpu.run(
                    dtype,
                    &parts,
                    (m + seed) % 3,
                    |[x, weight, bias, residual, out]| {
                        let or_null =
                            |is_given, address| if is_given { address } else { DeviceAddress::NULL };
                        let operands = [
                            x,
                            weight,
                            or_null(has_bias, bias),
                            or_null(has_residual, residual),
                            out,
                        ];
                        Ok(GemvArgs::new(operands, [m, n, k], activation)?.into())
                    },
                );
                let got = numbers(&results[0], dtype);
                for (at, &got) in got.iter().enumerate() {
                    let (row, column) = (at / n, at % n);
                    let products =
                        (0..k).map(|i| f64::from(x[row * k + i]) * f64::from(weight[column * k + i]));
                    let start = if has_bias { f64::from(bias[column]) } else { 0.0 };
                    let (sum, magnitude) = products.fold((start, start.abs()), |(sum, all), product| {
                        (sum + product, all + product.abs())
                    });
                    let activated = match activation {
                        Some(activation) => {
                            let sum = Array::new([1], vec![sum]).unwrap();
                            eval(&Op::Activation(activation), &[&sum]).unwrap().values()[0]
                        }
                        None => sum,
                    };
                    let expected = activated
                        + if has_residual {
                            f64::from(residual[at])
                        } else {
                            0.0
                        };
                    // Higham, Accuracy and Stability of Numerical Algorithms, 4.2, for the sums. The slope of GELU is at most 1.13, and
                    // the activation is within 2⁻¹⁶ of its operand in 16 bits, and a few units in the last place in f32.
                    let sums = 1.13 * (k as f64 + 3.0) * f64::from(f32::EPSILON) * magnitude;
                    let of_activation = if dtype == DType::F32 {
                        8.0 * roundoff
                    } else {
                        2f64.powi(-16)
                    };
                    let limit = sums + of_activation * sum.abs() + roundoff * (expected.abs() + sums);
                    let error = (f64::from(got) - expected).abs();
                    assert!(
                        error <= limit,
                        "{dtype} {m} × {n} × {k} {activation:?} at {at}: {got:e}, expected {expected:e}"
                    );
                }
            }
        }
    }
}
