//! Arithmetic: exact where the hardware is exact.

use half::{bf16, f16};

use crate::gpu::{Gpu, Number, arguments, assert_close, normal, on_each, random};

const FILE: &str = "arithmetic.hip";

/// Bits of every kind: zeros, denormals, infinities, NaNs, and random ones of all magnitudes.
fn awkward(seed: u64) -> Vec<f32> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        -f32::from_bits(0x7f_ffff),
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        0.5,
        1.5,
        2.5,
        -0.5,
    ];
    let mut values = random(64, seed, |rng| f32::from_bits(rng.u32(..)));
    for (i, value) in special.into_iter().enumerate() {
        values[(i * 4 + seed as usize) % 64] = value;
    }
    values
}

fn check<T: Number, O: Number>(
    gpu: &Gpu,
    kernel: &str,
    inputs: &[&[T]],
    expected: &[O],
    same: impl Fn(O, O) -> bool,
) {
    let out = gpu.unwritten::<O>(expected.len());
    let mut arguments = arguments().buffer(&out);
    for input in inputs {
        arguments = arguments.buffer(&gpu.buffer(input));
    }
    gpu.launch(kernel, 1, 64, &arguments);
    for (i, (got, expected)) in out.read(gpu).into_iter().zip(expected).enumerate() {
        assert!(
            same(got, *expected),
            "{kernel} on {}: [{i}] is {got:?}, not {expected:?}",
            gpu.arch
        );
    }
}

fn same_f32(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn same_f64(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

fn same<T: Copy + PartialEq>(a: T, b: T) -> bool {
    a == b
}

fn map2<A: Copy, B: Copy, C>(a: &[A], b: &[B], f: impl Fn(A, B) -> C) -> Vec<C> {
    a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
}

#[test]
fn f32_is_rounded_correctly() {
    on_each(FILE, |gpu| {
        for seed in 0..8 {
            let (a, b, c) = (awkward(seed), awkward(seed + 1), awkward(seed + 7));
            let near = random(64, seed, |rng| normal(rng, 1.0));
            check(
                gpu,
                "divide_f32",
                &[&a, &b],
                &map2(&a, &b, |a, b| a / b),
                same_f32,
            );
            check(
                gpu,
                "divide_f32",
                &[&near, &b],
                &map2(&near, &b, |a, b| a / b),
                same_f32,
            );
            check(gpu, "root_f32", &[&a], &map2(&a, &a, |a, _| a.sqrt()), same_f32);
            let fused: Vec<_> = (0..64).map(|i| a[i].mul_add(b[i], c[i])).collect();
            check(gpu, "fma_f32", &[&a, &b, &c], &fused, same_f32);
            let fused: Vec<_> = (0..64)
                .map(|i| near[i].mul_add(near[63 - i], near[i / 2]))
                .collect();
            let (back, slow): (Vec<_>, Vec<_>) = (0..64).map(|i| (near[63 - i], near[i / 2])).unzip();
            check(gpu, "fma_f32", &[&near, &back, &slow], &fused, same_f32);
            check(gpu, "minimum_f32", &[&a, &b], &map2(&a, &b, f32::min), |a, b| {
                same_f32(a, b) || a == 0.0 && b == 0.0
            });
        }
    });
}

#[test]
fn f32_rounds_to_integers() {
    let how: [fn(f32) -> f32; 4] = [f32::round_ties_even, f32::floor, f32::ceil, f32::trunc];
    on_each(FILE, |gpu| {
        for (number, round) in how.into_iter().enumerate() {
            let a: Vec<f32> = awkward(3)
                .into_iter()
                .chain(random(64, 9, |rng| normal(rng, 20.0)))
                .collect();
            for a in a.chunks(64) {
                let out = gpu.unwritten::<f32>(64);
                gpu.launch(
                    "round_f32",
                    1,
                    64,
                    &arguments()
                        .buffer(&out)
                        .buffer(&gpu.buffer(a))
                        .with(number as i32),
                );
                for (got, a) in out.read(gpu).into_iter().zip(a) {
                    assert!(
                        same_f32(got, round(*a)),
                        "{}: {number} of {a:e} is {got:e}",
                        gpu.arch
                    );
                }
            }
        }
    });
}

#[test]
fn f64_is_rounded_correctly() {
    on_each(FILE, |gpu| {
        for seed in 0..4 {
            let a = random(64, seed, |rng| f64::from_bits(rng.u64(..)));
            let b = random(64, seed + 9, |rng| rng.f64() * 100.0 - 50.0);
            check(
                gpu,
                "divide_f64",
                &[&b, &a],
                &map2(&b, &a, |a, b| a / b),
                same_f64,
            );
            check(
                gpu,
                "divide_f64",
                &[&a, &b],
                &map2(&a, &b, |a, b| a / b),
                same_f64,
            );
            let b: Vec<_> = b.into_iter().map(f64::abs).collect();
            check(gpu, "root_f64", &[&b], &map2(&b, &b, |b, _| b.sqrt()), same_f64);
        }
    });
}

#[test]
fn transcendental_functions_are_close() {
    on_each(FILE, |gpu| {
        let a = random(64, 1, |rng| normal(rng, 1.0));
        let out = gpu.unwritten::<f32>(6 * 64);
        gpu.launch(
            "transcendental",
            1,
            64,
            &arguments().buffer(&out).buffer(&gpu.buffer(&a)),
        );
        let got: Vec<_> = out.read(gpu).into_iter().map(f64::from).collect();
        let turn = std::f64::consts::TAU;
        let expected: Vec<_> = a
            .iter()
            .flat_map(|&x| {
                // The sum is rounded to f32 by the kernel as well.
                let (x, y) = (f64::from(x), f64::from(x.abs() + 1.0));
                [
                    (x * turn).sin(),
                    (x * turn).cos(),
                    y.log2(),
                    1.0 / y.sqrt(),
                    x.exp2(),
                    1.0 / y,
                ]
            })
            .collect();
        // One ulp of f32 is all that the hardware promises for log, rsq, exp and rcp; sin and cos lose absolute accuracy
        // near their zeros, where x·2π is rounded.
        for (got, expected) in got.chunks(6).zip(expected.chunks(6)) {
            assert_close(gpu, &got[2..], &expected[2..], 2.0_f64.powi(-22));
            for i in 0..2 {
                assert!(
                    (got[i] - expected[i]).abs() < 2e-6,
                    "{}: {got:?}, not {expected:?}",
                    gpu.arch
                );
            }
        }
    });
}

#[test]
fn parts_of_numbers() {
    on_each(FILE, |gpu| {
        let a = random(64, 2, |rng| normal(rng, 3.0));
        let expected: Vec<_> = a
            .iter()
            .flat_map(|&x| {
                [
                    (x - x.floor()).min(f32::from_bits(0x3f7f_ffff)),
                    x.clamp(-0.5, 0.5),
                    x * 8.0,
                ]
            })
            .collect();
        check(gpu, "fraction", &[&a], &expected, same_f32);
    });
}

#[test]
fn integers_divide() {
    on_each(FILE, |gpu| {
        let a = random(64, 1, |rng| rng.i32(..));
        let b = random(64, 2, |rng| rng.i32(1..5000) * if rng.bool() { 1 } else { -1 });
        check(
            gpu,
            "divide_i32",
            &[&a, &b],
            &map2(&a, &b, i32::wrapping_div),
            same,
        );
        let a = random(64, 3, |rng| rng.u32(..));
        let b = random(64, 4, |rng| rng.u32(1..) >> rng.u32(0..31))
            .into_iter()
            .map(|b| b.max(1))
            .collect::<Vec<_>>();
        check(gpu, "remain_u32", &[&a, &b], &map2(&a, &b, |a, b| a % b), same);
        let a = random(64, 5, |rng| rng.i64(..));
        let b = random(64, 6, |rng| (rng.i64(..) >> rng.u32(0..62)).max(1));
        check(
            gpu,
            "divide_i64",
            &[&a, &b],
            &map2(&a, &b, i64::wrapping_div),
            same,
        );
    });
}

#[test]
fn integers_of_64_bits() {
    on_each(FILE, |gpu| {
        let a = random(64, 1, |rng| rng.u64(..));
        let b = random(64, 2, |rng| rng.u64(..));
        let product = |a: u64, b: u64| a.wrapping_mul(b).wrapping_add(a / 7).wrapping_add(a % 1_000_003);
        check(gpu, "multiply_u64", &[&a, &b], &map2(&a, &b, product), same);
        let n = random(64, 3, |rng| rng.u32(..));
        let out = gpu.unwritten::<u64>(64);
        gpu.launch(
            "shift_u64",
            1,
            64,
            &arguments()
                .buffer(&out)
                .buffer(&gpu.buffer(&a))
                .buffer(&gpu.buffer(&n)),
        );
        let shifted = |a: u64, n: u32| {
            let n = n & 63;
            a << n ^ a >> n ^ (a as i64 >> n) as u64
        };
        assert_eq!(out.read(gpu), map2(&a, &n, shifted), "{}", gpu.arch);
        let counts: Vec<_> = a
            .iter()
            .flat_map(|&x| {
                [
                    u64::from((x | 1).leading_zeros()),
                    u64::from((x | 1 << 60).trailing_zeros()),
                    u64::from(x.count_ones()),
                    x.reverse_bits(),
                ]
            })
            .collect();
        check(gpu, "bits_u64", &[&a], &counts, same);
    });
}

#[test]
fn bits_are_moved() {
    on_each(FILE, |gpu| {
        let a = random(64, 1, |rng| rng.u32(..));
        let b = random(64, 2, |rng| rng.u32(..));
        let expected: Vec<_> = a
            .iter()
            .zip(&b)
            .flat_map(|(&a, &b)| {
                let bytes = (u64::from(a) << 32 | u64::from(b)).to_le_bytes();
                let difference = |i: u32| (a >> (8 * i) & 255).abs_diff(b >> (8 * i) & 255);
                [
                    u32::from_le_bytes([bytes[1], bytes[5], bytes[2], bytes[7]]),
                    u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]),
                    3 + (0..4).map(difference).sum::<u32>(),
                    a >> 5 & 511,
                    a.reverse_bits(),
                    (a | 1).leading_zeros(),
                    (b | 256).trailing_zeros(),
                    a.count_ones(),
                ]
            })
            .collect();
        check(gpu, "bits", &[&a, &b], &expected, same);
    });
}

#[test]
fn conversions() {
    on_each(FILE, |gpu| {
        let a = random(64, 1, |rng| normal(rng, 100.0));
        let expected: Vec<_> = a
            .iter()
            .flat_map(|&x| {
                [
                    x as i32,
                    x.abs() as i32,
                    i32::from(x.abs() as u32 as u8),
                    i32::from(x as i32 as i16),
                ]
            })
            .collect();
        check(gpu, "to_integers", &[&a], &expected, same);
        let a = random(64, 2, |rng| rng.i32(..) >> rng.u32(0..31));
        let expected: Vec<_> = a
            .iter()
            .flat_map(|&x| [x as f32, x as u32 as f32, f32::from(x as u8)])
            .collect();
        check(gpu, "from_integers", &[&a], &expected, same_f32);
        for seed in 0..4 {
            let a: Vec<_> = awkward(seed)
                .into_iter()
                .zip(random(64, seed, |rng| {
                    normal(rng, 1.0) * 2.0_f32.powi(rng.i32(-26..17))
                }))
                .map(|(a, b)| if seed % 2 == 0 { a } else { b })
                .collect();
            let nan_or_same = |a: f16, b: f16| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            check(
                gpu,
                "to_f16",
                &[&a],
                &a.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>(),
                nan_or_same,
            );
            let nan_or_same =
                |a: u16, b: u16| a == b || bf16::from_bits(a).is_nan() && bf16::from_bits(b).is_nan();
            check(
                gpu,
                "to_bf16",
                &[&a],
                &a.iter().map(|&x| bf16::from_f32(x).to_bits()).collect::<Vec<_>>(),
                nan_or_same,
            );
            let rounded = |x: f32| {
                if x.is_nan() {
                    0x7fc0
                } else {
                    bf16::from_f32(x).to_bits()
                }
            };
            let selected: Vec<_> = a
                .iter()
                .zip(a.iter().rev())
                .flat_map(|(&a, &b)| {
                    let (high, low) = (rounded(a), rounded(-b));
                    [if low > high { low } else { 7 }, high]
                })
                .collect();
            check(gpu, "selected_halves", &[&a], &selected, same);
        }
        let a = random(64, 3, |rng| f16::from_bits(rng.u16(..)));
        check(
            gpu,
            "from_f16",
            &[&a],
            &a.iter().map(|x| x.to_f32()).collect::<Vec<_>>(),
            same_f32,
        );
        let a = random(64, 4, |rng| rng.f64() * 10.0_f64.powi(rng.i32(-50..40)));
        let (out, narrow) = (gpu.unwritten::<f64>(64), gpu.unwritten::<f32>(64));
        gpu.launch(
            "f64_and_f32",
            1,
            64,
            &arguments().buffer(&out).buffer(&narrow).buffer(&gpu.buffer(&a)),
        );
        assert_eq!(narrow.read(gpu), a.iter().map(|&a| a as f32).collect::<Vec<_>>());
        assert_eq!(
            out.read(gpu),
            a.iter().map(|&a| f64::from(a as f32)).collect::<Vec<_>>()
        );
    });
}

#[test]
fn halves_of_registers() {
    on_each(FILE, |gpu| {
        let f = |seed| random(128, seed, |rng| f16::from_f32(normal(rng, 1.0)));
        let (a, b) = (f(1), f(2));
        // One rounding: the compiler contracts a·b + a.
        let fused = |a: f16, b: f16| f16::from_f64(a.to_f64() * b.to_f64() + a.to_f64());
        check(gpu, "packed_f16", &[&a, &b], &map2(&a, &b, fused), same);
        let chain = |a: f16, b: f16| (0..4).fold(a, |x, _| f16::from_f64(x.to_f64() * b.to_f64() + 0.5));
        check(
            gpu,
            "chain_f16",
            &[&a[..64], &b[..64]],
            &map2(&a[..64], &b[..64], chain),
            same,
        );
        let i = |seed| random(128, seed, |rng| rng.i16(..));
        let (a, b) = (i(3), i(4));
        let mixed = |a: i16, b: i16| a.wrapping_add(b).wrapping_mul(b).wrapping_sub(a >> 3);
        check(gpu, "packed_i16", &[&a, &b], &map2(&a, &b, mixed), same);
    });
}

#[test]
fn dot_products() {
    on_each(FILE, |gpu| {
        let f = |seed| random(128, seed, |rng| f16::from_f32(normal(rng, 1.0)));
        let (a, b) = (f(1), f(2));
        let out = gpu.unwritten::<f32>(64);
        gpu.launch(
            "dot2",
            1,
            64,
            &arguments()
                .buffer(&out)
                .buffer(&gpu.buffer(&a))
                .buffer(&gpu.buffer(&b)),
        );
        for (i, got) in out.read(gpu).into_iter().enumerate() {
            let terms = [0, 1].map(|k| a[2 * i + k].to_f64() * b[2 * i + k].to_f64());
            // Two additions, each rounded to f32 at most once.
            let bound = 2.0_f64.powi(-23) * (terms[0].abs() + terms[1].abs() + 1.5);
            assert!(
                (f64::from(got) - terms[0] - terms[1] - 1.5).abs() <= bound,
                "{}: {got}",
                gpu.arch
            );
        }
        let bytes = |seed| random(256, seed, |rng| rng.u8(..));
        let (a, b) = (bytes(3), bytes(4));
        let expected: Vec<_> = a
            .chunks(4)
            .zip(b.chunks(4))
            .flat_map(|(a, b)| {
                let signed: i32 = a
                    .iter()
                    .zip(b)
                    .map(|(&a, &b)| i32::from(a as i8) * i32::from(b as i8))
                    .sum();
                let unsigned: i32 = a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum();
                [signed + 5, unsigned + 1]
            })
            .collect();
        check(gpu, "dot4", &[&a, &b], &expected, same);
    });
}
