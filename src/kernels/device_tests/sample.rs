//! `sample`, compared with the reference.

use hipvit_graph::op::Definition as _;

use super::{DTYPES, Gpu, Part, numbers, random, rounded};
use crate::kernels::SampleArgs;
use crate::ops::Sample;
use crate::ops::sample::{RULES, SampleRules};
use crate::reference::Array;

/// Lengths around vectors and parts of waves.
const LENGTHS: [usize; 6] = [1, 3, 67, 1024, 2049, 5003];

/// Temperature, top k and top p of the rows.
const ROWS: [(f32, usize, f32); 9] = [
    (0.0, 0, 1.0),
    (1.0, 0, 1.0),
    (0.7, 5, 1.0),
    (1.3, 0, 0.9),
    (2.0, 50, 0.5),
    (1.0, 1, 0.3),
    (1.0, 0, 1e-9),
    (0.01, 9, 0.99),
    (1.0, 3000, 0.999),
];

#[test]
fn tokens_are_those_of_the_reference() {
    let Some(gpu) = Gpu::get() else { return };
    let mut chosen = 0;
    for dtype in DTYPES {
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            for kind in 0..3 {
                let mut logits = rounded(&random(ROWS.len() * length, seed + 10 * kind, 5.0), dtype);
                match kind {
                    0 => {}
                    // Three logits, so that most are equal.
                    1 => logits.iter_mut().for_each(|x| *x = (*x / 3.0).trunc()),
                    // Tokens that are excluded, a row with NaN, one with infinity and one without tokens.
                    _ => {
                        for (index, x) in logits.iter_mut().enumerate() {
                            if index % 3 == 0 || index / length == 3 {
                                *x = f32::NEG_INFINITY;
                            }
                        }
                        logits[length / 2] = f32::NAN;
                        logits[length + length / 2] = f32::INFINITY;
                    }
                }
                let randoms = random(2 * ROWS.len(), seed + kind + 77, 0.5);
                let rules: Vec<f32> = ROWS
                    .iter()
                    .zip(randoms.chunks_exact(2))
                    .flat_map(|(&(temperature, top_k, top_p), random)| {
                        let rules = SampleRules {
                            temperature,
                            top_k,
                            top_p,
                            random: ((random[0] + 0.5) * 4_294_967_040.0) as u32,
                        };
                        rules.numbers()
                    })
                    .collect();
                let top_k = ROWS.map(|(_, top_k, _)| top_k as i32);
                let parts = [
                    Part::numbers(&logits, dtype),
                    Part::operand(&rules),
                    Part::operand(&top_k),
                    Part::result(ROWS.len(), dtype.size()),
                    Part::result(ROWS.len(), size_of::<i32>()),
                ];
                let results = gpu.run(dtype, &parts, (seed + kind) % 3, |addresses| {
                    Ok(SampleArgs::new(addresses, [ROWS.len(), length], false)?.into())
                });
                let values = numbers(&results[0], dtype);
                let tokens: Vec<i32> = bytemuck::pod_collect_to_vec(&results[1]);
                let array = |shape: &[usize], values: &[f32]| {
                    let values = values.iter().copied().map(f64::from).collect();
                    Array::<f64>::new(shape, values).unwrap()
                };
                let expected = Sample
                    .eval(&[
                        &array(&[ROWS.len(), length], &logits),
                        &array(&[ROWS.len(), RULES], &rules),
                        &array(&[ROWS.len(), 1], &top_k.map(|top_k| top_k as f32)),
                    ])
                    .unwrap();
                for row in 0..ROWS.len() {
                    let (value, token) = (expected[0].values()[row], expected[1].values()[row]);
                    let found = (f64::from(values[row]), f64::from(tokens[row]));
                    assert!(
                        found.1 == token && (found.0 == value || found.0.is_nan() && value.is_nan()),
                        "{dtype} {length} kind {kind}, row {row}: {found:?} instead of {:?}",
                        (value, token)
                    );
                    chosen += usize::from(token > 0.0);
                }
            }
        }
    }
    assert!(chosen > 200, "{chosen}");
}
