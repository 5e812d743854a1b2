//! Matrix instructions, checked against plain loops.

use half::{bf16, f16};

use crate::gpu::{Gpu, Number, arguments, normal, on, random};

const FILE: &str = "matrix.hip";

/// A tile of `rows` × `rows`, with a depth of `depth`; `exact` gives an input's value.
fn check<T: Number, O: Number>(
    gpu: &Gpu,
    kernel: &str,
    (rows, depth): (usize, usize),
    make: impl Fn(&mut fastrand::Rng) -> T,
    exact: impl Fn(T) -> f64,
    value: impl Fn(O) -> f64,
    // Of the result's type, and of the type in which products are summed: units in the last place.
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
            .map(|k| exact(a[row * depth + k]) * exact(b[column * depth + k]))
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
