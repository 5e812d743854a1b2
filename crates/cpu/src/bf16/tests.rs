#![allow(unsafe_code)]

use super::x86::{exponentials, round_row};
use super::*;
use crate::attention::heads::Tokens;
use crate::products::Products;
use crate::{attention, random};
use hipvit_graph::op::Attention;

/// Returns the instruction sets of this processor. Includes emulated AMX if the processor has everything but the tiles.
fn available() -> impl Iterator<Item = Isa> {
    #[cfg(target_os = "linux")]
    crate::amx_emulation::install();
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn random(len: usize, seed: u32) -> Vec<f32> {
    random::floats(len, seed, -1.0)
}

fn rounded(x: f32) -> f64 {
    half::bf16::from_f32(x).to_f64()
}

/// Returns the maximum error of a sum of `terms` terms in f32, whose magnitudes sum to `magnitude` (Higham, Accuracy and Stability of
/// Numerical Algorithms, 4.2).
fn bound(terms: usize, magnitude: f64) -> f64 {
    (terms as f64 + 2.0) * f64::from(f32::EPSILON) * magnitude
}

#[test]
fn numbers_are_rounded_as_half_does() {
    if !Isa::Avx512Bf16.is_available() {
        return;
    }
    let edges = [
        0.0,
        -0.0,
        1.0,
        f32::MAX,
        f32::MIN_POSITIVE,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let ties = [0x3f80_8000, 0x3f81_8000, 0x3f80_7fff, 0x3f80_8001, 0x7f7f_8000].map(f32::from_bits);
    let x: Vec<f32> = edges.into_iter().chain(ties).chain(random(1000, 9)).collect();
    for len in [1, 15, 16, 17, 31, 32, 33, x.len()] {
        let mut row = vec![7; len.next_multiple_of(CHANNELS)];
        // SAFETY: the processor has these instructions, as was just checked.
        unsafe { round_row(&x[..len], &mut row) };
        let mut expected: Vec<u16> = x[..len]
            .iter()
            .map(|x| half::bf16::from_f32(*x).to_bits())
            .collect();
        expected.resize(row.len(), 0);
        assert_eq!(row, expected);
    }
    let mut row = [0; CHANNELS];
    // SAFETY: as above.
    unsafe {
        round_row(
            &[0x7f80_0001, 0x7fff_ffff, 0xff80_0001].map(f32::from_bits),
            &mut row,
        );
    };
    assert!(row[..3].iter().all(|bits| half::bf16::from_bits(*bits).is_nan()));
}

#[test]
fn weights_are_those_of_softmax() {
    if !Isa::Avx512Bf16.is_available() {
        return;
    }
    for len in [1, 15, 16, 17, 63, 64, 65, 197, 257] {
        let mut scores: Vec<f32> = random(len, 11).iter().map(|x| 30.0 * x).collect();
        scores[len / 2] = f32::NEG_INFINITY;
        scores[0] = 31.0;
        let mut row = vec![7; len.next_multiple_of(CHANNELS)];
        // SAFETY: the processor has these instructions, as was just checked.
        let sum = unsafe { exponentials(&scores, &mut row) };
        let exact: Vec<f64> = scores.iter().map(|score| f64::from(score - 31.0).exp()).collect();
        let total: f64 = exact.iter().sum();
        assert!(
            (f64::from(sum) - total).abs() <= 4e-7 * total,
            "{len}: {sum} {total}"
        );
        for (bits, exact) in row.iter().zip(&exact) {
            let got = half::bf16::from_bits(*bits).to_f64();
            let limit = 1.001 * (-8f64).exp2() * exact;
            assert!((got - exact).abs() <= limit, "{len}: {got} {exact}");
        }
        assert!(row[len..].iter().all(|bits| *bits == 0));
        assert!(len == 1 || row[len / 2] == 0);
        scores[len - 1] = f32::NAN;
        // SAFETY: as above.
        assert!(unsafe { exponentials(&scores, &mut row) }.is_nan());
    }
}

#[test]
fn layers_are_exact_but_for_their_sums() {
    for isa in available() {
        for m in [1, 4, 11, 12, 13, 31, 33, 65] {
            for (k, n) in [(1, 1), (2, 33), (3, 64), (31, 31), (33, 65), (64, 32), (257, 40)] {
                let (x, values, bias) = (random(m * k, 1), random(n * k, 2), random(n, 3));
                let weight = Weight::new(&values, n, k, isa);
                let tail = Tail {
                    bias: Some(&bias),
                    activation: None,
                    residual: None,
                };
                let mut out = vec![f32::NAN; m * n];
                run(&x, &weight, tail, &mut out).unwrap();
                for (i, &value) in out.iter().enumerate() {
                    let (x, row) = (&x[i / n * k..][..k], &values[i % n * k..][..k]);
                    let products = x.iter().zip(row).map(|(x, w)| rounded(*x) * rounded(*w));
                    let (sum, magnitude) =
                        products.fold((0.0, 0.0), |(sum, all), p| (sum + p, all + p.abs()));
                    let bias = f64::from(bias[i % n]);
                    let error = (f64::from(value) - sum - bias).abs();
                    assert!(
                        error <= bound(k, magnitude + bias.abs()),
                        "{isa:?}, {m} × {k} × {n}, {i}: {error}"
                    );
                }
            }
        }
    }
}

#[test]
fn no_row_depends_on_the_others_or_on_threads() {
    let (k, n) = (100, 70);
    let (x, values) = (random(40 * k, 4), random(n * k, 5));
    let tail = Tail {
        bias: None,
        activation: None,
        residual: None,
    };
    for isa in available() {
        let result = |rows: std::ops::Range<usize>, threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let mut out = vec![0.0; rows.len() * n];
            pool.install(|| {
                let weight = Weight::new(&values, n, k, isa);
                run(&x[rows.start * k..rows.end * k], &weight, tail, &mut out).unwrap();
            });
            out
        };
        let all = result(0..40, 3);
        assert_eq!(result(0..40, 1), all);
        assert_eq!(result(17..40, 2), all[17 * n..]);
        assert_eq!(result(7..8, 2), all[7 * n..8 * n]);
    }
}

#[test]
fn one_row_that_is_no_number_leaves_the_others() {
    let (k, n) = (40, 33);
    let mut x = random(3 * k, 6);
    x[k + 5] = f32::NAN;
    for isa in available() {
        let weight = Weight::new(&random(n * k, 7), n, k, isa);
        let tail = Tail {
            bias: None,
            activation: None,
            residual: None,
        };
        let mut out = vec![0.0; 3 * n];
        run(&x, &weight, tail, &mut out).unwrap();
        assert!(out[..n].iter().chain(&out[2 * n..]).all(|x| x.is_finite()));
        assert!(out[n..2 * n].iter().all(|x| x.is_nan()));
    }
}

/// Computes attention in f64 with rounded operands and rounded P.
fn attend_in_f64(
    qkv: &[f32],
    [n, heads, d]: [usize; 3],
    scale: f32,
    (query, head): (usize, usize),
) -> Vec<f64> {
    let row = |part: usize, token: usize| {
        let start = (token * 3 + part) * heads * d + head * d;
        qkv[start..start + d].iter().map(|x| rounded(*x))
    };
    let scores: Vec<f64> = (0..n)
        .map(|key| f64::from(scale) * row(0, query).zip(row(1, key)).map(|(q, k)| q * k).sum::<f64>())
        .collect();
    let max = scores.iter().copied().fold(f64::MIN, f64::max);
    let exp: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
    let sum: f64 = exp.iter().sum();
    let mut out = vec![0.0; d];
    for (key, e) in exp.iter().enumerate() {
        out.iter_mut()
            .zip(row(2, key))
            .for_each(|(out, v)| *out += e / sum * v);
    }
    out
}

#[test]
fn attention_rounds_its_operands_and_weights_alone() {
    for isa in available() {
        for (n, heads, d) in [
            (1, 1, 1),
            (5, 2, 8),
            (63, 1, 64),
            (65, 2, 40),
            (197, 1, 64),
            (257, 1, 33),
        ] {
            let qkv = random(n * 3 * heads * d, 8);
            let spec = Attention {
                heads,
                head_dim: d,
                scale: 2.0 / (d as f32).sqrt(),
                ..Attention::default()
            };
            let tokens = [0, 1, 2].map(|part| Tokens {
                data: &qkv[part * heads * d..],
                count: n,
                stride: 3 * heads * d,
                shared: false,
            });
            let mut out = vec![f32::NAN; n * heads * d];
            let spec = (&spec, Products::Bf16(isa));
            attention::run(spec, tokens, (None, None), 1, (&mut out, None)).unwrap();
            for query in [0, n / 2, n - 1] {
                for head in 0..heads {
                    let expected = attend_in_f64(&qkv, [n, heads, d], spec.0.scale, (query, head));
                    let got = &out[(query * heads + head) * d..][..d];
                    for (expected, got) in expected.iter().zip(got) {
                        // Each weight has a relative rounding error of 2⁻⁸, and values are at most 1. Softmax and sums in f32 add much
                        // less.
                        let error = (expected - f64::from(*got)).abs();
                        assert!(
                            error <= 1.01 * (-8f64).exp2(),
                            "{isa:?}, {n} × {heads} × {d}: {error}"
                        );
                    }
                }
            }
        }
    }
}
