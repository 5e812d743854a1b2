use super::super::random;
use super::*;

const LEVELS: [Levels; 3] = [
    Levels::Range,
    Levels::Magnitude,
    Levels::Fixed {
        scale: 0.005,
        zero: 117,
    },
];

/// Returns the instruction sets of this processor. Includes emulated AMX if the processor has everything but the tiles.
fn available() -> impl Iterator<Item = Isa> {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    crate::amx_emulation::install();
    Isa::ALL.iter().copied().filter(|isa| isa.is_available())
}

fn floats(len: usize, seed: u32) -> Vec<f32> {
    random::floats(len, seed, -0.9)
}

fn result(isa: Isa, levels: Levels, [m, k, n]: [usize; 3], x: &[f32], weight: &[i8]) -> Vec<u32> {
    let scales: Vec<f32> = (0..n).map(|j| 0.01 + 1e-4 * j as f32).collect();
    let weight = Int8Weight::with_isa(weight, &scales, n, k, isa).unwrap();
    let bias = floats(n, 3);
    let tail = Tail {
        bias: Some(&bias),
        activation: None,
        residual: None,
    };
    let mut out = vec![f32::NAN; m * n];
    run(x, &weight, levels, tail, &mut out).unwrap();
    out.into_iter().map(f32::to_bits).collect()
}

#[test]
fn every_instruction_set_gives_the_same_bits() {
    for (i, size) in [
        [1, 1, 1],
        [4, 7, 33],
        [5, 300, 31],
        [11, 16, 10],
        [13, 48, 64],
        [65, 257, 300],
        [240, 64, 100],
    ]
    .into_iter()
    .enumerate()
    {
        let [m, k, n] = size;
        let x = floats(m * k, i as u32);
        let weight: Vec<i8> = random::bits(n * k, 77).map(|v| v as i8).collect();
        for levels in LEVELS {
            let expected = result(Isa::Portable, levels, size, &x, &weight);
            for isa in available() {
                let same = result(isa, levels, size, &x, &weight) == expected;
                assert!(same, "{isa:?} of {size:?}, {levels:?}");
            }
        }
    }
}

#[test]
fn every_instruction_set_gives_the_same_bits_at_the_edges_of_its_tiles() {
    for m in [1, 2, 15, 16, 17, 31, 32, 33, 197] {
        for k in [1, 3, 4, 63, 64, 65, 257] {
            for n in [1, 31, 32, 33] {
                let x = floats(m * k, (m + k) as u32);
                let weight: Vec<i8> = random::bits(n * k, (k + n) as u32).map(|v| v as i8).collect();
                let expected = result(Isa::Portable, Levels::Range, [m, k, n], &x, &weight);
                for isa in available().filter(|isa| *isa != Isa::Portable) {
                    let same = result(isa, Levels::Range, [m, k, n], &x, &weight) == expected;
                    assert!(same, "{isa:?} of {m} × {k} × {n}");
                }
            }
        }
    }
}

#[test]
fn the_largest_sums_are_exact() {
    // All of x is 1, quantised to 255 with the zero point 0. The weight is at either end of its range.
    for (k, q) in [(4096, -128i8), (MOST_CHANNELS, -128), (MOST_CHANNELS, 127)] {
        for isa in available() {
            let weight = Int8Weight::with_isa(&vec![q; k], &[1.0], 1, k, isa).unwrap();
            let tail = Tail {
                bias: None,
                activation: None,
                residual: None,
            };
            let mut out = [0.0];
            run(&vec![1.0; k], &weight, Levels::Range, tail, &mut out).unwrap();
            let sum = 255.0 * k as f64 * f64::from(q);
            let expected = sum * f64::from(1.0f32 / 255.0);
            let error = (f64::from(out[0]) - expected).abs() / expected.abs();
            assert!(
                error <= f64::from(f32::EPSILON),
                "{isa:?}, {k}: {} not {expected}",
                out[0]
            );
        }
    }
    assert!(Int8Weight::new(&vec![1; MOST_CHANNELS + 1], &[1.0], 1, MOST_CHANNELS + 1).is_err());
}

#[test]
fn rows_are_rounded_within_half_a_step() {
    for len in [1, 3, 64, 77, 1000] {
        for (offset, factor) in [(0.0, 1.0), (5.0, 1e-3), (-3.0, 1e20), (0.0, 1e-30)] {
            let x: Vec<f32> = floats(len, 5).iter().map(|v| (v + offset) * factor).collect();
            let mut q = vec![0; len];
            let (scale, zero) = quantize_row(&x, Levels::Range, &mut q);
            assert!((0..=255).contains(&zero));
            for (x, &q) in x.iter().zip(&q) {
                let value = f64::from(scale) * f64::from(i32::from(q) - zero);
                // Half a step for x, half a step for the zero point at the ends of the range, and f32 rounding.
                let limit = f64::from(scale) * (1.0 + 1e-4);
                let error = (value - f64::from(*x)).abs();
                let inner = (1..255).contains(&q);
                assert!(
                    error <= if inner { limit / 2.0 } else { limit },
                    "{x}: {value}, step {scale}"
                );
            }
            for isa in available() {
                let mut other = vec![0; len];
                assert_eq!(
                    isa.quantize_row(&x, Levels::Range, &mut other),
                    (scale, zero),
                    "{isa:?}"
                );
                assert_eq!(other, q, "{isa:?}");
            }
        }
    }
}

#[test]
fn ties_are_rounded_to_even_and_zero_is_exact() {
    let mut q = [0; 6];
    // The step is 1.
    let (scale, zero) = quantize_row(&[0.0, 255.0, 0.5, 1.5, 2.5, 254.5], Levels::Range, &mut q);
    assert_eq!((scale, zero, q), (1.0, 0, [0, 255, 0, 2, 2, 254]));
    let mut q = [0; 3];
    let (_, zero) = quantize_row(&[-0.1, 0.0, 7.0], Levels::Range, &mut q);
    assert_eq!(i32::from(q[1]), zero);
}

#[test]
fn symmetric_and_fixed_levels_end_at_their_ends() {
    let mut q = [0; 5];
    let x = [-127.5, 127.5, 0.0, 0.5, 1.5];
    let (scale, zero) = quantize_row(&x, Levels::Magnitude, &mut q);
    // 127.5 rounds to 128, which is not a level.
    assert_eq!((scale, zero, q), (1.0, 128, [0, 255, 128, 128, 130]));
    let levels = Levels::Fixed {
        scale: 0.5,
        zero: 100,
    };
    let x = [f32::MAX, f32::MIN, 0.25, 0.75, -50.0];
    let (scale, zero) = quantize_row(&x, levels, &mut q);
    assert_eq!((scale, zero, q), (0.5, 100, [255, 0, 100, 102, 0]));
}

#[test]
fn what_is_no_number_stays_none() {
    let mut q = [7; 3];
    for x in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert!(
            quantize_row(&[1.0, x, -2.0], Levels::Range, &mut q).0.is_nan(),
            "{x}"
        );
    }
    for x in [0.0, -0.0, 1e-40, 1e-37] {
        assert_eq!(
            (quantize_row(&[x; 3], Levels::Range, &mut q), q),
            ((0.0, 0), [0; 3]),
            "{x}"
        );
    }
    // The range overflows, but the step does not.
    assert!(
        quantize_row(&[f32::MIN, f32::MAX, 0.0], Levels::Range, &mut q)
            .0
            .is_finite()
    );
    assert_eq!((q[0], q[1]), (0, 255));
    let weight = Int8Weight::new(&[1; 6], &[1.0; 2], 2, 3).unwrap();
    let tail = Tail {
        bias: None,
        activation: None,
        residual: None,
    };
    let mut out = [0.0; 4];
    for levels in LEVELS {
        let x = [1.0, f32::NAN, 1.0, 1.0, 1.0, 1.0];
        run(&x, &weight, levels, tail, &mut out).unwrap();
        assert!(out[0].is_nan() && out[1].is_nan() && out[2].is_finite() && out[3].is_finite());
    }
}
