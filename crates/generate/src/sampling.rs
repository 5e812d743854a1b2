//! The choice of the next token from the logits, as transformers' logits processors and warpers make it.

use hipvit::error::{Error, Result};
use hipvit::ops::dropout::philox4x32_10;
use ndarray::ArrayView1;

/// Rules for the next token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateOptions {
    /// Maximum number of new tokens of a text. `None`: as the model's files say.
    pub max_tokens: Option<usize>,
    /// Random choice of tokens. `None`: the most likely token, the first of equally likely ones.
    pub sampling: Option<Sampling>,
    /// Index of the image, or of the first one of several, for [`Sampling`].
    pub first_index: usize,
}

/// Random choice of the next token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divisor of the logits, above 0. Below 1, likely tokens become more likely.
    pub temperature: f64,
    /// Number of most likely tokens that are considered, with ties. `None`: all.
    pub top_k: Option<usize>,
    /// The fewest most likely tokens are considered that have this probability together, above 0 and up to 1.
    pub top_p: f64,
    /// The token of an image at a position depends on the seed, the image's index and the position, not on other images.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: None,
            top_p: 1.0,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Returns a random choice if one of its rules is given, and `None` if none is: the most likely token is chosen then.
    pub fn by_rules(
        temperature: Option<f64>,
        top_k: Option<usize>,
        top_p: Option<f64>,
        seed: u64,
    ) -> Option<Self> {
        let is_random = temperature.is_some() || top_k.is_some() || top_p.is_some();
        is_random.then(|| Self {
            temperature: temperature.unwrap_or(1.0),
            top_k,
            top_p: top_p.unwrap_or(1.0),
            seed,
        })
    }
}

/// Rules that a model's files have for every text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Repetition {
    /// Divisor of positive logits of tokens that the text has already; negative ones are multiplied (Keskar et al., 2019,
    /// <https://arxiv.org/abs/1909.05858>). 1 changes nothing.
    pub(crate) penalty: f64,
    /// Length of token sequences that may occur only once. 0 disables the rule.
    pub(crate) no_repeat_ngram_size: usize,
}

impl GenerateOptions {
    /// Checks the ranges of the sampling.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`], naming the option.
    pub fn check(&self) -> Result<()> {
        let Some(sampling) = &self.sampling else {
            return Ok(());
        };
        let fail = |what, reason: String| Err(Error::argument(what, reason));
        let Sampling {
            temperature, top_p, ..
        } = *sampling;
        if !(temperature > 0.0 && temperature.is_finite()) {
            return fail("temperature", format!("is {temperature}, and must be above 0"));
        }
        if sampling.top_k == Some(0) {
            return fail("top k", "is 0; at least one token is needed".into());
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return fail("top p", format!("is {top_p}, and must be above 0 and at most 1"));
        }
        Ok(())
    }
}

/// Returns the next token of the text of image `index`, whose tokens so far are `tokens`, with the first one.
pub(crate) fn next(
    logits: ArrayView1<'_, f32>,
    tokens: &[u32],
    repetition: &Repetition,
    sampling: Option<&Sampling>,
    index: usize,
) -> u32 {
    let token = if sampling.is_none() && repetition.is_neutral() {
        // Without a copy: a vocabulary may have 50,000 tokens.
        argmax(logits.iter().copied())
    } else {
        let mut scores: Vec<f64> = logits.iter().map(|&logit| logit.into()).collect();
        repetition.apply(&mut scores, tokens);
        match sampling {
            None => argmax(scores),
            Some(sampling) => sampling.choose(&scores, [tokens.len(), index]),
        }
    };
    // Vocabularies are far smaller than 2³².
    token as u32
}

impl Repetition {
    /// Returns true if the rules change nothing.
    fn is_neutral(&self) -> bool {
        self.penalty == 1.0 && self.no_repeat_ngram_size == 0
    }

    fn apply(&self, scores: &mut [f64], tokens: &[u32]) {
        if self.penalty != 1.0 {
            let mut seen = tokens.to_vec();
            seen.sort_unstable();
            seen.dedup();
            for token in seen {
                if let Some(score) = scores.get_mut(token as usize) {
                    *score *= if *score < 0.0 {
                        self.penalty
                    } else {
                        1.0 / self.penalty
                    };
                }
            }
        }
        let Some(before) = self
            .no_repeat_ngram_size
            .checked_sub(1)
            .filter(|&before| before < tokens.len())
        else {
            return;
        };
        let last = &tokens[tokens.len() - before..];
        for sequence in tokens.windows(self.no_repeat_ngram_size) {
            if let ([start @ .., end], true) = (sequence, sequence.starts_with(last))
                && start.len() == before
                && let Some(score) = scores.get_mut(*end as usize)
            {
                *score = f64::NEG_INFINITY;
            }
        }
    }
}

impl Sampling {
    fn choose(&self, scores: &[f64], place: [usize; 2]) -> usize {
        let probabilities = self.probabilities(scores);
        let [position, index] = place.map(|number| number as u32);
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let [random, ..] = philox4x32_10([position, index, 0, 0], key);
        let mut rest = f64::from(random) / 2f64.powi(32);
        for (token, probability) in probabilities.iter().enumerate() {
            if rest < *probability {
                return token;
            }
            rest -= probability;
        }
        // Rounding: the probabilities add up to less than 1.
        argmax(probabilities)
    }

    /// Returns the probability of each token. Tokens that are not considered have 0.
    fn probabilities(&self, scores: &[f64]) -> Vec<f64> {
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Without the largest score, since a quotient may be infinite.
        let scaled = |score: &f64| (score - largest) / self.temperature;
        let mut scores: Vec<f64> = scores.iter().map(scaled).collect();
        let mut order: Vec<usize> = Vec::new();
        if self.top_k.is_some() || self.top_p < 1.0 {
            order.extend(0..scores.len());
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        }
        if let Some(last) = self.top_k.and_then(|k| order.get(k - 1)) {
            let least = scores[*last];
            let is_less = |score: &&mut f64| **score < least;
            scores
                .iter_mut()
                .filter(is_less)
                .for_each(|score| *score = f64::NEG_INFINITY);
        }
        let mut probabilities = softmax(&scores);
        if self.top_p < 1.0 {
            let mut sum = 0.0;
            for (rank, &token) in order.iter().enumerate() {
                if rank > 0 && sum >= self.top_p {
                    scores[token] = f64::NEG_INFINITY;
                }
                sum += probabilities[token];
            }
            probabilities = softmax(&scores);
        }
        probabilities
    }
}

fn softmax(scores: &[f64]) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// Returns the index of the largest score, the first of equal ones. NaN is never the largest.
fn argmax<T: PartialOrd>(scores: impl IntoIterator<Item = T>) -> usize {
    let mut scores = scores
        .into_iter()
        .enumerate()
        .filter(|(_, score)| score.partial_cmp(score).is_some());
    let Some(mut best) = scores.next() else {
        return 0;
    };
    for next in scores {
        if next.1 > best.1 {
            best = next;
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    const LOGITS: [f64; 7] = [1.5, -0.5, 2.0, 0.25, 2.0, -3.0, 0.0];

    fn sampling(temperature: f64, top_k: Option<usize>, top_p: f64) -> Sampling {
        Sampling {
            temperature,
            top_k,
            top_p,
            seed: 7,
        }
    }

    /// Softmax of LOGITS after TemperatureLogitsWarper, TopKLogitsWarper and TopPLogitsWarper of transformers 5.24.
    #[test]
    fn probabilities_are_those_of_transformers() {
        let check = |sampling: Sampling, expected: [f64; 7]| {
            for (found, expected) in sampling.probabilities(&LOGITS).into_iter().zip(expected) {
                assert!(
                    (found - expected).abs() < 1e-6,
                    "{sampling:?}: {found} instead of {expected}"
                );
            }
        };
        let all = [
            0.184_179, 0.010_578, 0.376_228, 0.030_883, 0.376_228, 0.000_297, 0.021_608,
        ];
        check(sampling(0.7, None, 1.0), all);
        check(
            sampling(0.7, Some(3), 1.0),
            [0.196_639, 0.0, 0.401_68, 0.0, 0.401_68, 0.0, 0.0],
        );
        check(sampling(1.0, Some(2), 1.0), [0.0, 0.0, 0.5, 0.0, 0.5, 0.0, 0.0]);
        check(
            sampling(1.0, Some(9), 0.8),
            [0.232_697, 0.0, 0.383_652, 0.0, 0.383_652, 0.0, 0.0],
        );
        check(
            sampling(2.0, Some(5), 0.6),
            [0.280_265, 0.0, 0.359_867, 0.0, 0.359_867, 0.0, 0.0],
        );
    }

    #[test]
    fn tokens_are_chosen_by_their_probabilities() {
        let sampling = sampling(0.7, Some(3), 1.0);
        let mut counts = [0; 7];
        for index in 0..4000 {
            counts[sampling.choose(&LOGITS, [3, index])] += 1;
        }
        // Four standard deviations of a count are 4·√(4000·0.4·0.6) < 125.
        for (count, expected) in counts.into_iter().zip([787, 0, 1607, 0, 1607, 0, 0]) {
            let difference: i32 = count - expected;
            assert!(
                difference.abs() <= if expected == 0 { 0 } else { 125 },
                "{counts:?}"
            );
        }
        assert_eq!(sampling.choose(&LOGITS, [3, 5]), sampling.choose(&LOGITS, [3, 5]));
    }

    #[test]
    fn repeated_tokens_lose_and_repeated_sequences_are_excluded() {
        let next = |repetition: Repetition, tokens: &[u32]| {
            next(
                array![1.5, -0.5, 2.0, 0.25, 1.9].view(),
                tokens,
                &repetition,
                None,
                0,
            )
        };
        let rule = |penalty, no_repeat_ngram_size| Repetition {
            penalty,
            no_repeat_ngram_size,
        };
        assert_eq!(next(rule(1.0, 0), &[2, 2]), 2);
        assert_eq!(next(rule(1.3, 0), &[2, 0]), 4);
        // 2 and 4 followed 3 before.
        assert_eq!(next(rule(1.0, 2), &[3, 2, 3]), 4);
        assert_eq!(next(rule(1.0, 2), &[3, 2, 3, 4, 3]), 0);
        assert_eq!(next(rule(1.0, 3), &[3, 2, 3, 4, 3]), 2);
        assert_eq!(next(rule(1.0, 1), &[2, 4]), 0);
        assert_eq!(next(rule(1.0, 4), &[3, 2]), 2, "too short");
        let mut scores = [-1.0, 2.0];
        rule(2.0, 0).apply(&mut scores, &[0, 0, 1]);
        assert_eq!(scores, [-2.0, 1.0]);
        assert_eq!(argmax([0.5, f64::NAN, 2.0, 2.0]), 2);
        assert_eq!(argmax([f32::NAN, f32::NEG_INFINITY]), 1);
        assert_eq!(argmax([f32::NAN; 2]), 0);
    }
}
