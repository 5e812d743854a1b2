//! Matrix instructions, checked against plain loops.

use half::{bf16, f16};

use crate::gpu::{Gpu, Number, arguments, normal, on, random};

const FILE: &str = "matrix.hip";

/// A tile of `rows` × `rows`, with a depth of `depth`; `exact` gives an input's value.
fn check<T: Number, O: Number>(
    gpu: &Gpu,
    kernel: &str,
    tile: (usize, usize),
    make: impl Fn(&mut fastrand::Rng) -> T,
    exact: impl Fn(T) -> f64,
    value: impl Fn(O) -> f64,
    epsilon: f64,
) {
    check_mixed(gpu, kernel, tile, make, [&exact, &exact], value, epsilon);
}

/// Checks matrices A and B of different types of one size.
fn check_mixed<T: Number, O: Number>(
    gpu: &Gpu,
    kernel: &str,
    (rows, depth): (usize, usize),
    make: impl Fn(&mut fastrand::Rng) -> T,
    exact: [&dyn Fn(T) -> f64; 2],
    value: impl Fn(O) -> f64,
    // Units in the last place of the result's type, and of the type in which products are summed.
    epsilon: f64,
) {
    let a = random(rows * depth, 1, &make);
    let b = random(rows * depth, 2, &make);
    let out = gpu.unwritten::<O>(rows * rows);
    let arguments = arguments()
        .buffer(&out)
        .buffer(&gpu.buffer(&a))
        .buffer(&gpu.buffer(&b));
    gpu.launch(kernel, 1, gpu.wave() as u32, &arguments);
    for (i, got) in out.read(gpu).into_iter().enumerate() {
        let (row, column) = (i / rows, i % rows);
        let terms: Vec<_> = (0..depth)
            .map(|k| exact[0](a[row * depth + k]) * exact[1](b[column * depth + k]))
            .collect();
        let expected: f64 = terms.iter().sum();
        // Each of the additions may round once, relative to no more than the sum of magnitudes.
        let bound = epsilon * depth as f64 * terms.iter().map(|term| term.abs()).sum::<f64>();
        let got = value(got);
        assert!(
            (got - expected).abs() <= bound,
            "{kernel} on {}: [{row}, {column}] is {got}, not {expected}",
            gpu.arch
        );
    }
}

const F32: f64 = f32::EPSILON as f64;

fn half_number(rng: &mut fastrand::Rng) -> f16 {
    f16::from_f32(normal(rng, 1.0))
}

fn brain_number(rng: &mut fastrand::Rng) -> bf16 {
    bf16::from_f32(normal(rng, 1.0))
}

fn byte(rng: &mut fastrand::Rng) -> i8 {
    rng.i8(..)
}

#[test]
fn wmma() {
    on("gfx1100", FILE, |gpu| {
        let tile = (16, 16);
        check::<f16, f32>(gpu, "wmma_f32_f16", tile, half_number, f64::from, f64::from, F32);
        check::<bf16, f32>(
            gpu,
            "wmma_f32_bf16",
            tile,
            brain_number,
            f64::from,
            f64::from,
            F32,
        );
        check::<f16, f16>(
            gpu,
            "wmma_f16_f16",
            tile,
            half_number,
            f64::from,
            f64::from,
            f64::from(f16::EPSILON),
        );
        check::<i8, i32>(gpu, "wmma_i32_i8", tile, byte, f64::from, f64::from, 0.0);
    });
}

#[test]
fn wmma_of_gfx12() {
    on("gfx1200", FILE, |gpu| {
        let tile = (16, 16);
        check::<f16, f32>(gpu, "wmma_f32_f16", tile, half_number, f64::from, f64::from, F32);
        check::<bf16, f32>(
            gpu,
            "wmma_f32_bf16",
            tile,
            brain_number,
            f64::from,
            f64::from,
            F32,
        );
        check::<i8, i32>(gpu, "wmma_i32_i8", tile, byte, f64::from, f64::from, 0.0);
        let (fp8, bf8) = (|bits| FP8.exact(bits), |bits| BF8.exact(bits));
        // All finite numbers.
        let number = |rng: &mut fastrand::Rng| rng.u8(..) & 0xfb;
        let check = |kernel, exact: [&dyn Fn(u8) -> f64; 2]| {
            check_mixed::<u8, f32>(gpu, kernel, tile, number, exact, f64::from, F32);
        };
        check("wmma_fp8", [&fp8, &fp8]);
        check("wmma_fp8_bf8", [&fp8, &bf8]);
        check("wmma_bf8", [&bf8, &bf8]);
    });
}

/// SMFMAC on `rows` × `rows` tiles of a depth of `depth`: of every four elements of A two are there.
fn check_sparse<T: Number, O: Number>(
    gpu: &Gpu,
    kernel: &str,
    (rows, depth): (usize, usize),
    make: impl Fn(&mut fastrand::Rng) -> T,
    exact: impl Fn(T) -> f64,
    value: impl Fn(O) -> f64,
    epsilon: f64,
) {
    let a = random(rows * depth / 2, 1, &make);
    let b = random(rows * depth, 2, &make);
    // Two different places of each four, the lower first, as instruction sets of 2:4 sparsity have them.
    let places = random(rows * depth / 4, 3, |rng| {
        let first = rng.u8(0..3);
        (first, rng.u8(first + 1..4))
    });
    let indices: Vec<u8> = places
        .chunks_exact(2)
        .map(|pair| pair[0].0 | pair[0].1 << 2 | pair[1].0 << 4 | pair[1].1 << 6)
        .collect();
    let out = gpu.unwritten::<O>(rows * rows);
    let arguments = arguments()
        .buffer(&out)
        .buffer(&gpu.buffer(&a))
        .buffer(&gpu.buffer(&b))
        .buffer(&gpu.buffer(&indices));
    gpu.launch(kernel, 1, 64, &arguments);
    for (i, got) in out.read(gpu).into_iter().enumerate() {
        let (row, column) = (i / rows, i % rows);
        let terms: Vec<_> = (0..depth / 2)
            .map(|e| {
                let (low, high) = places[row * depth / 4 + e / 2];
                let k = e / 2 * 4 + usize::from([low, high][e % 2]);
                exact(a[row * depth / 2 + e]) * exact(b[column * depth + k])
            })
            .collect();
        let expected: f64 = terms.iter().sum();
        let bound = epsilon * depth as f64 * terms.iter().map(|term| term.abs()).sum::<f64>();
        let got = value(got);
        assert!(
            (got - expected).abs() <= bound,
            "{kernel} on {}: [{row}, {column}] is {got}, not {expected}",
            gpu.arch
        );
    }
}

#[test]
fn smfmac() {
    on("gfx942", FILE, |gpu| {
        let half = |kernel, tile| {
            check_sparse::<f16, f32>(gpu, kernel, tile, half_number, f64::from, f64::from, F32);
        };
        half("smfmac16_f16", (16, 32));
        half("smfmac16_first", (16, 32));
        half("smfmac32_f16", (32, 16));
        check_sparse::<bf16, f32>(
            gpu,
            "smfmac16_bf16",
            (16, 32),
            brain_number,
            f64::from,
            f64::from,
            F32,
        );
        check_sparse::<i8, i32>(gpu, "smfmac16_i8", (16, 64), byte, f64::from, f64::from, 0.0);
    });
}

#[test]
fn mfma() {
    // The depths of 16 × 16 tiles; of 32 × 32 they are half as much.
    for (arch, brain, bytes) in [("gfx908", 8, 16), ("gfx90a", 16, 16), ("gfx942", 16, 32)] {
        on(arch, FILE, |gpu| {
            check::<f16, f32>(
                gpu,
                "mfma16_f16",
                (16, 16),
                half_number,
                f64::from,
                f64::from,
                F32,
            );
            check::<bf16, f32>(
                gpu,
                "mfma16_bf16",
                (16, brain),
                brain_number,
                f64::from,
                f64::from,
                F32,
            );
            check::<f32, f32>(
                gpu,
                "mfma16_f32",
                (16, 4),
                |rng| normal(rng, 1.0),
                f64::from,
                f64::from,
                F32,
            );
            check::<i8, i32>(gpu, "mfma16_i8", (16, bytes), byte, f64::from, f64::from, 0.0);
            check::<f16, f32>(gpu, "mfma32_f16", (32, 8), half_number, f64::from, f64::from, F32);
            check::<bf16, f32>(
                gpu,
                "mfma32_bf16",
                (32, brain / 2),
                brain_number,
                f64::from,
                f64::from,
                F32,
            );
            check::<f32, f32>(
                gpu,
                "mfma32_f32",
                (32, 2),
                |rng| normal(rng, 1.0),
                f64::from,
                f64::from,
                F32,
            );
            check::<i8, i32>(gpu, "mfma32_i8", (32, bytes / 2), byte, f64::from, f64::from, 0.0);
            if gpu.arch != "gfx908" {
                let f64_number = |rng: &mut fastrand::Rng| rng.f64() - 0.5;
                check::<f64, f64>(gpu, "mfma16_f64", (16, 4), f64_number, |x| x, |x| x, f64::EPSILON);
            }
        });
    }
}

/// An 8-bit floating-point format: ±0.m · 2^(1 − bias) or ±1.m · 2^(exponent − bias).
struct Format {
    mantissa_bits: u32,
    bias: i32,
    /// The bits of the largest number.
    largest: u8,
}

const FP8_FNUZ: Format = Format {
    mantissa_bits: 3,
    bias: 8,
    largest: 0x7f,
};
const BF8_FNUZ: Format = Format {
    mantissa_bits: 2,
    bias: 16,
    largest: 0x7f,
};
const FP8: Format = Format {
    mantissa_bits: 3,
    bias: 7,
    largest: 0x7e,
};
const BF8: Format = Format {
    mantissa_bits: 2,
    bias: 15,
    largest: 0x7b,
};

impl Format {
    /// The value of a finite number's bits.
    fn exact(&self, bits: u8) -> f64 {
        let exponent = i32::from((bits & 0x7f) >> self.mantissa_bits);
        let fraction = f64::from(bits & ((1 << self.mantissa_bits) - 1)) / f64::from(1 << self.mantissa_bits);
        let magnitude = match exponent {
            0 => fraction * 2_f64.powi(1 - self.bias),
            _ => (1.0 + fraction) * 2_f64.powi(exponent - self.bias),
        };
        if bits & 0x80 == 0 { magnitude } else { -magnitude }
    }

    fn is_finite(&self, bits: u8) -> bool {
        bits & 0x7f <= self.largest && !(self.largest == 0x7f && bits == 0x80)
    }
}

#[test]
fn mfma_of_8_bit_floats() {
    on("gfx942", FILE, |gpu| {
        // All but NaN.
        let number = |rng: &mut fastrand::Rng| match rng.u8(..) {
            0x80 => 0,
            bits => bits,
        };
        let check = |kernel, tile, exact: [&dyn Fn(u8) -> f64; 2]| {
            check_mixed::<u8, f32>(gpu, kernel, tile, number, exact, f64::from, F32);
        };
        let (fp8, bf8) = (|bits| FP8_FNUZ.exact(bits), |bits| BF8_FNUZ.exact(bits));
        check("mfma16_fp8", (16, 32), [&fp8, &fp8]);
        check("mfma16_fp8_bf8", (16, 32), [&fp8, &bf8]);
        check("mfma32_bf8_fp8", (32, 16), [&bf8, &fp8]);
        check("mfma32_bf8", (32, 16), [&bf8, &bf8]);
    });
}

#[test]
fn conversions_of_8_bit_floats() {
    for (arch, formats) in [("gfx942", [FP8_FNUZ, BF8_FNUZ]), ("gfx1200", [FP8, BF8])] {
        on(arch, FILE, |gpu| conversions(gpu, &formats));
    }
}

fn conversions(gpu: &Gpu, formats: &[Format; 2]) {
    let mut x = random(256, 3, |rng| normal(rng, 20.0));
    x[0] = 1000.0;
    x[5] = -0.0;
    x[10] = f32::NAN;
    let bits = [gpu.unwritten::<i32>(64), gpu.unwritten::<i32>(64)];
    let back = gpu.unwritten::<f32>(512);
    let arguments = arguments().buffer(&bits[0]).buffer(&bits[1]).buffer(&back);
    gpu.launch("convert_float8", 1, 64, &arguments.buffer(&gpu.buffer(&x)));
    let back = back.read(gpu);
    for (number, (format, bits)) in formats.iter().zip(bits).enumerate() {
        let bytes: Vec<u8> = bits.read(gpu).into_iter().flat_map(i32::to_le_bytes).collect();
        for (i, (&x, &bits)) in x.iter().zip(&bytes).enumerate() {
            let value = f64::from(x);
            let converted = back[i / 4 * 8 + 4 * number + i % 4];
            if value.is_nan() || value.abs() > format.exact(format.largest) {
                assert!(
                    !format.is_finite(bits) && converted.is_nan(),
                    "{x}: {bits:#x}, {converted}"
                );
                continue;
            }
            assert!(format.is_finite(bits), "{x} became {bits:#x}");
            assert_eq!(f64::from(converted), format.exact(bits), "{bits:#x}");
            // No other is nearer.
            let nearest = (0..=255)
                .filter(|&bits| format.is_finite(bits))
                .map(|bits| (format.exact(bits) - value).abs());
            let least = nearest.fold(f64::INFINITY, f64::min);
            assert_eq!((format.exact(bits) - value).abs(), least, "{x} became {bits:#x}");
        }
    }
}
