//! The choice of a token from logits.

use hipvit_graph::op::sample::{RULES, SampleRules, argmax, descending, weight};
use hipvit_graph::op::{OpError, Sample};
use rayon::prelude::*;

use super::{CpuOp, Operands};

impl CpuOp for Sample {
    fn run(&self, operands: &Operands<'_>, results: &mut [&mut [f32]]) -> Result<(), OpError> {
        let (logits, length) = (operands.values(0)?, operands.channels(0)?);
        let (rules, top_k) = (operands.values(1)?, operands.values(2)?);
        let [values, tokens] = results else {
            return Err("has two results".into());
        };
        let results = values.par_iter_mut().zip(tokens.par_iter_mut());
        let rules = rules.par_chunks(RULES).zip(top_k);
        let rows = logits.par_chunks(length).zip(rules);
        rows.zip(results)
            .for_each(|((row, (rules, &top_k)), (value, token))| {
                let chosen = choose(row, SampleRules::new(rules, top_k));
                (*value, *token) = (row[chosen], chosen as f32);
            });
        Ok(())
    }
}

/// Chooses a token. The arithmetic is that of `hip/sample.hip`, in integers.
fn choose(row: &[f32], rules: SampleRules) -> usize {
    let best = argmax(row);
    let largest = row[best];
    if rules.temperature == 0.0 || !largest.is_finite() {
        return best;
    }
    let factor = rules.factor();
    let mut weights: Vec<u64> = row.iter().map(|&logit| weight(logit, largest, factor)).collect();
    // Tokens without a weight are never chosen.
    let mut order: Vec<usize> = Vec::new();
    if rules.top_k > 0 || rules.top_p < 1.0 {
        order.extend((0..row.len()).filter(|&token| weights[token] > 0));
    }
    if rules.top_k > 0 && rules.top_k < order.len() {
        let (_, &mut least, _) =
            order.select_nth_unstable_by(rules.top_k - 1, |&a, &b| descending(row, a, b));
        let least = row[least];
        order.retain(|&token| {
            let is_kept = row[token] >= least;
            if !is_kept {
                weights[token] = 0;
            }
            is_kept
        });
    }
    if rules.top_p < 1.0 {
        order.sort_unstable_by(|&a, &b| descending(row, a, b));
        let sum: u64 = order.iter().map(|&token| weights[token]).sum();
        let needed = fraction_of(sum, (rules.top_p * (1 << 24) as f32) as u32).max(1);
        let mut before = 0;
        for token in order {
            let own = weights[token];
            if before >= needed {
                weights[token] = 0;
            }
            before += own;
        }
    }
    let sum: u64 = weights.iter().sum();
    let random = u64::from(rules.random);
    // sum · random / 2³²
    let target = (sum >> 32) * random + (((sum & 0xffff_ffff) * random) >> 32);
    let mut before = 0;
    let chosen = weights.iter().position(|weight| {
        before += weight;
        before > target
    });
    chosen.unwrap_or(best)
}

/// Returns `sum · numerator / 2²⁴`, rounded up. No product exceeds 64 bits.
fn fraction_of(sum: u64, numerator: u32) -> u64 {
    const MASK: u64 = (1 << 24) - 1;
    let numerator = u64::from(numerator);
    (sum >> 24) * numerator + (((sum & MASK) * numerator + MASK) >> 24)
}

#[cfg(test)]
mod tests {
    use hipvit_graph::op::Definition as _;
    use hipvit_graph::op::dropout::philox4x32_10;
    use hipvit_graph::reference::Array;

    use super::*;

    /// Returns logits, of which some are equal if there are more than 97.
    fn logits(length: usize) -> Vec<f32> {
        (0..length)
            .map(|index| ((index * 7919) % 97) as f32 / 16.0)
            .collect()
    }

    fn rules(temperature: f32, top_k: usize, top_p: f32, draw: u32) -> SampleRules {
        let [random, ..] = philox4x32_10([draw, 0, 0, 0], [3, 4]);
        SampleRules {
            temperature,
            top_k,
            top_p,
            random,
        }
    }

    /// Pearson's test with the counts of each token, which are enough for its distribution to be that of χ².
    #[test]
    fn frequencies_agree_with_the_probabilities() {
        let row = &logits(24);
        // The last number is that of the tokens that the warpers of transformers 5.24 keep.
        for (temperature, top_k, top_p, kept) in [
            (1.5, 0, 1.0, 24),
            (2.0, 7, 1.0, 7),
            (3.0, 0, 0.6, 9),
            (2.5, 12, 0.8, 9),
        ] {
            const DRAWS: u32 = 40_000;
            let mut counts = [0_u32; 24];
            for draw in 0..DRAWS {
                counts[choose(row, rules(temperature, top_k, top_p, draw))] += 1;
            }
            let largest = row.iter().copied().fold(f32::MIN, f32::max);
            let weight = |index: usize| match counts[index] {
                0 => 0.0,
                _ => f64::from((row[index] - largest) / temperature).exp(),
            };
            let sum: f64 = (0..24).map(weight).sum();
            let tokens = (0..24).filter(|&index| counts[index] > 0);
            let statistic: f64 = tokens
                .clone()
                .map(|index| {
                    let expected = weight(index) / sum * f64::from(DRAWS);
                    assert!(expected > 5.0);
                    (f64::from(counts[index]) - expected).powi(2) / expected
                })
                .sum();
            assert_eq!(tokens.count(), kept, "{counts:?}");
            // The mean and four standard deviations of χ².
            let freedom = (kept - 1) as f64;
            let bound = freedom + 4.0 * (2.0 * freedom).sqrt();
            assert!(statistic < bound, "{statistic} is not below {bound}: {counts:?}");
        }
    }

    #[test]
    fn tokens_are_those_of_the_reference() {
        let single = |value: usize| Array::new([1, 1], vec![value as f64]).unwrap();
        for length in [1, 2, 33, 500] {
            let mut row = logits(length);
            for draw in 0..400 {
                let top_k = [0, 1, 4, 40][draw as usize % 4];
                let temperature = [0.0, 0.3, 1.0, 4.0, 1e-20, 1e30][draw as usize / 4 % 6];
                let top_p = [1.0, 0.9, 0.5, 1e-9][draw as usize / 24 % 4];
                if draw == 200 {
                    row[length / 3] = f32::NEG_INFINITY;
                }
                let rules = rules(temperature, top_k, top_p, draw);
                let operands = [
                    Array::new([1, length], row.iter().copied().map(f64::from).collect()).unwrap(),
                    Array::new([1, RULES], rules.numbers().map(f64::from).to_vec()).unwrap(),
                    single(top_k),
                ];
                let expected = Sample.eval(&operands.each_ref()).unwrap();
                assert_eq!(
                    choose(&row, rules) as f64,
                    expected[1].values()[0],
                    "{rules:?} of {length}"
                );
            }
        }
    }
}
