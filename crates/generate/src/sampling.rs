//! The choice of the next token from the logits, as transformers' logits processors and warpers make it.

use hipvit::error::{Error, Result};
use hipvit::ops::dropout::philox4x32_10;
use ndarray::ArrayView1;

/// Logits of a row that are copied to the host. The next token is usually among them.
pub(crate) const CANDIDATES: usize = 64;

/// Rules for the next token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateOptions {
    /// Maximum number of new tokens of a text. `None`: as the model's files say.
    pub max_tokens: Option<usize>,
    /// Text that the model continues, such as a task of Donut: `<s_docvqa><s_question>…</s_question><s_answer>`. It is not part of the result.
    pub prompt: Option<String>,
    /// Random choice of tokens. `None`: the most likely token, the first of equally likely ones.
    pub sampling: Option<Sampling>,
    /// Number of texts of an image that are continued together, of which the best one is returned. `None`: as the model's files say, or 1 with
    /// `sampling` or a `draft`.
    pub beams: Option<usize>,
    /// Maximum number of tokens that are guessed from the text so far, and checked in the same step. 0: none. Only for texts without `sampling`.
    ///
    /// The text is the same, except where two logits differ by less than the error of the dtype: a step with more rows may sum in another order.
    pub draft: usize,
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

/// Logits of one token, or of several, in the order of the tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Logits<'a> {
    /// All tokens.
    All(ArrayView1<'a, f32>),
    /// The largest ones, in descending order, and their tokens.
    Largest {
        values: ArrayView1<'a, f32>,
        tokens: ArrayView1<'a, f32>,
        /// Number of all tokens.
        vocabulary: usize,
    },
}

/// A text, and the rules for its next token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    /// Tokens so far, with the first one.
    pub(crate) tokens: &'a [u32],
    pub(crate) repetition: &'a Repetition,
    /// The next token, whatever the logits are.
    pub(crate) forced: Option<u32>,
    pub(crate) sampling: Option<&'a Sampling>,
    /// Index of the image.
    pub(crate) index: usize,
}

impl Rules<'_> {
    /// Returns true if the next token always depends on all logits.
    pub(crate) fn need_all(&self) -> bool {
        let is_open = self.sampling.is_some_and(|sampling| {
            let few = |k| k < CANDIDATES;
            !sampling.top_k.is_some_and(few)
        });
        is_open || self.repetition.penalty < 1.0
    }

    /// Returns the next token. `None` if it depends on logits that are not among the largest.
    pub(crate) fn next(&self, logits: Logits<'_>) -> Option<u32> {
        if self.forced.is_some() {
            return self.forced;
        }
        if let Logits::Largest { tokens, .. } = logits
            && self.sampling.is_none()
            && self.repetition.changes_nothing()
        {
            return tokens.first().map(|&token| token as u32);
        }
        let (mut scores, known, least): (Vec<f64>, _, _) = match logits {
            Logits::All(values) => {
                let scores = values.iter().map(|&logit| logit.into());
                (scores.collect(), None, f64::NEG_INFINITY)
            }
            Logits::Largest {
                values,
                tokens,
                vocabulary,
            } => {
                let last = values.last().filter(|_| values.len() < vocabulary);
                let least = last.map_or(f64::NEG_INFINITY, |&last| last.into());
                let of_tokens = tokens.iter().zip(values);
                let of_tokens = of_tokens.map(|(&token, &value)| (token as u32, value.into()));
                let mut pairs: Vec<(u32, f64)> = of_tokens.collect();
                pairs.sort_unstable_by_key(|&(token, _)| token);
                let (tokens, scores): (Vec<u32>, Vec<f64>) = pairs.into_iter().unzip();
                (scores, Some(tokens), least)
            }
        };
        let place_of = |token: u32| match &known {
            Some(known) => known.binary_search(&token).ok(),
            None => Some(token as usize),
        };
        self.repetition.apply(&mut scores, self.tokens, &place_of);
        // A rule lowers scores only, so that no other token has a larger one than the least.
        let needed = self.sampling.and_then(|sampling| sampling.top_k).unwrap_or(1);
        if known.is_some() && least > f64::NEG_INFINITY {
            let above = scores.iter().filter(|&&score| score > least).count();
            if above < needed {
                return None;
            }
        }
        let chosen = match self.sampling {
            None => argmax(scores),
            Some(sampling) => sampling.choose(&scores, [self.tokens.len(), self.index]),
        };
        // Vocabularies are far smaller than 2³².
        Some(known.map_or(chosen as u32, |known| known[chosen]))
    }
}

impl Repetition {
    fn changes_nothing(&self) -> bool {
        self.penalty == 1.0 && self.no_repeat_ngram_size == 0
    }

    /// Changes the scores of a text with these tokens. `place_of` returns the place of a token's score.
    pub(crate) fn apply(&self, scores: &mut [f64], tokens: &[u32], place_of: &dyn Fn(u32) -> Option<usize>) {
        if self.penalty != 1.0 {
            let mut seen = tokens.to_vec();
            seen.sort_unstable();
            seen.dedup();
            for token in seen {
                if let Some(score) = place_of(token).and_then(|place| scores.get_mut(place)) {
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
                && let Some(score) = place_of(*end).and_then(|place| scores.get_mut(place))
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
        let logits = array![1.5, -0.5, 2.0, 0.25, 1.9];
        let next = |repetition: Repetition, tokens: &[u32]| {
            let rules = Rules {
                tokens,
                repetition: &repetition,
                forced: None,
                sampling: None,
                index: 0,
            };
            let all = rules.next(Logits::All(logits.view())).unwrap();
            // The two largest suffice, or are known not to.
            let few = rules.next(Logits::Largest {
                values: array![2.0, 1.9].view(),
                tokens: array![2.0, 4.0].view(),
                vocabulary: 5,
            });
            assert!(few.is_none_or(|few| few == all), "{few:?}");
            all
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
        rule(2.0, 0).apply(&mut scores, &[0, 0, 1], &|token| Some(token as usize));
        assert_eq!(scores, [-2.0, 1.0]);
        assert_eq!(argmax([0.5, f64::NAN, 2.0, 2.0]), 2);
        assert_eq!(argmax([f32::NAN, f32::NEG_INFINITY]), 1);
        assert_eq!(argmax([f32::NAN; 2]), 0);
    }

    #[test]
    fn the_largest_logits_suffice_or_are_known_not_to() {
        let logits: Vec<f32> = (0..500).map(|i| ((i * 7919) % 97) as f32 / 8.0).collect();
        let mut order: Vec<usize> = (0..logits.len()).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let tokens: Vec<u32> = order[..9].iter().map(|&token| token as u32).collect();
        let mut found = [0; 2];
        for (penalty, no_repeat_ngram_size) in [(1.0, 0), (1.2, 0), (1.0, 1), (3.0, 2)] {
            let repetition = Repetition {
                penalty,
                no_repeat_ngram_size,
            };
            for top_k in [None, Some(3), Some(8), Some(12)] {
                let sampling = top_k.map(|k| sampling(1.3, Some(k), 0.9));
                for (index, count) in (0..20).zip([4, 16, 64, 500].into_iter().cycle()) {
                    let rules = Rules {
                        tokens: &tokens[..1 + index % 9],
                        repetition: &repetition,
                        forced: None,
                        sampling: sampling.as_ref(),
                        index,
                    };
                    let all = rules.next(Logits::All(ArrayView1::from(&logits)));
                    let of = |values: Vec<f32>| ndarray::Array1::from(values);
                    let few = rules.next(Logits::Largest {
                        values: of(order[..count].iter().map(|&i| logits[i]).collect()).view(),
                        tokens: of(order[..count].iter().map(|&i| i as f32).collect()).view(),
                        vocabulary: logits.len(),
                    });
                    found[usize::from(few.is_some())] += 1;
                    assert!(few.is_none() || few == all, "{few:?} {all:?}");
                    assert!(few.is_some() || count < logits.len());
                }
            }
        }
        assert!(found[0] > 40 && found[1] > 100, "{found:?}");
    }
}
