//! Scores of tokens, with rules against repeated ones.

use std::fmt;

use super::operands::{count, exactly, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, Operand, activation, integers};
use crate::dtype::DType;
use crate::softmax::log_sum_exp;
use crate::tolerance::tolerance;

/// `(logits [B,V], tokens [B,L] i32) → scores [B,V]` in f32: the logits or the logarithms of the probabilities, lowered for tokens that would repeat. A row of tokens
/// is a text, up to the first number below 0.
///
/// Scores of tokens that the text has are divided by the penalty, or multiplied if they are below 0 (Keskar et al., 2019, <https://arxiv.org/abs/1909.05858>). A token
/// that would end a sequence of `ngram` tokens that the text has already gets −∞. Tokens beyond the vocabulary change nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenScores {
    /// True for the logarithms of the probabilities.
    pub log: bool,
    /// Divisor, above 0. 1 changes nothing.
    pub penalty: f32,
    /// Number of tokens of sequences that may occur only once. 0 for no such rule.
    pub ngram: usize,
}

impl TokenScores {
    /// The logarithms of the probabilities, without rules.
    pub const LOGARITHMS: Self = Self {
        log: true,
        penalty: 1.0,
        ngram: 0,
    };

    /// Replaces the logits of a row by scores. `tokens` may be padded by numbers below 0.
    pub fn apply<T: Real>(&self, scores: &mut [T], tokens: &[T]) {
        if self.log {
            let sum = log_sum_exp(scores.iter().copied());
            scores.iter_mut().for_each(|score| *score -= sum);
        }
        let padding = tokens.iter().position(|&token| token < T::ZERO);
        let tokens = &tokens[..padding.unwrap_or(tokens.len())];
        let mut place: Vec<usize> = tokens.iter().map(|token| token.to_f64() as usize).collect();
        if let Some(before) = self.ngram.checked_sub(1).filter(|&before| before < tokens.len()) {
            let last = &tokens[tokens.len() - before..];
            for (start, &end) in tokens.windows(self.ngram).zip(&place[before..]) {
                if start.starts_with(last)
                    && let Some(score) = scores.get_mut(end)
                {
                    *score = T::NEG_INFINITY;
                }
            }
        }
        place.sort_unstable();
        place.dedup();
        let penalty = T::from_f32(self.penalty);
        for place in place {
            if let Some(score) = scores.get_mut(place) {
                *score = if *score < T::ZERO {
                    *score * penalty
                } else {
                    *score / penalty
                };
            }
        }
    }
}

impl Definition for TokenScores {
    const NAME: &'static str = "token_scores";

    fn fmt_attributes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} penalty {}",
            if self.log { " log" } else { "" },
            self.penalty
        )?;
        match self.ngram {
            0 => Ok(()),
            ngram => write!(f, ", {ngram} tokens once"),
        }
    }

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [logits, tokens] = exactly(operands)?;
        match (logits, tokens) {
            (&[rows, vocabulary], &[texts, length]) if rows == texts && vocabulary > 0 && length > 0 => {}
            _ => {
                let reason = format!("takes logits [B, V] and tokens [B, L], not {logits:?} and {tokens:?}");
                return Err(reason.into());
            }
        }
        if !(self.penalty > 0.0 && self.penalty.is_finite()) {
            return Err(format!("has the penalty {}, which must be above 0", self.penalty).into());
        }
        one(logits)
    }

    fn result_dtype(&self, _index: usize, _dtype: DType) -> DType {
        DType::F32
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            0 => dtype,
            _ => DType::I32,
        }
    }

    fn flops(&self, operands: &[&[usize]], _results: &[Shape]) -> u64 {
        count(operands[1]) + if self.log { 4 * count(operands[0]) } else { 0 }
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Rows { parameters: 0..0 }
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let [logits, tokens] = operands else { return };
        let [vocabulary, length] = [logits.shape()[1], tokens.shape()[1]];
        let scores = results[0].values_mut();
        scores.copy_from_slice(logits.values());
        let texts = tokens.values().chunks_exact(length);
        for (scores, text) in scores.chunks_exact_mut(vocabulary).zip(texts) {
            self.apply(scores, text);
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            let (rows, is_micro) = ((batch * tokens).min(40), cases.is_micro());
            // No sequence is excluded: results of cases are finite.
            let mut push = |rows: usize, vocabulary: usize, length: usize| {
                let logits = Operand {
                    spread: 4.0,
                    ..activation(&[rows, vocabulary])
                };
                let below = vocabulary.min(2 * length) as i32;
                for log in [false, true] {
                    let op = Self {
                        log,
                        penalty: 1.3,
                        ngram: 0,
                    };
                    cases.push(op, vec![logits.clone(), integers(&[rows, length], below)]);
                }
            };
            push(rows, channels, 7);
            if is_micro {
                push(3, 5003, 900);
                push(1, 50_265, 513);
            }
        });
    }

    /// One product or quotient in f32, after a sum of exponentials for logarithms.
    fn tolerance(&self, _index: usize, operands: &[&Array], _dtype: DType) -> f64 {
        if self.log {
            tolerance(DType::F32, operands[0].shape()[1])
        } else {
            f64::from(f32::EPSILON)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(penalty: f32, ngram: usize, tokens: &[f64]) -> Vec<f64> {
        let logits = Array::new([1, 5], vec![1.5, -0.5, 2.0, 0.25, 1.9]).unwrap();
        let tokens = Array::new([1, tokens.len()], tokens.to_vec()).unwrap();
        let mut results = TokenScores {
            log: false,
            penalty,
            ngram,
        }
        .eval(&[&logits, &tokens])
        .unwrap();
        results.remove(0).values().to_vec()
    }

    #[test]
    fn repeated_tokens_lose() {
        assert_eq!(
            scores(2.0, 0, &[0.0, 0.0, 1.0, -1.0, 2.0]),
            [0.75, -1.0, 2.0, 0.25, 1.9]
        );
        assert_eq!(scores(1.0, 0, &[0.0, 1.0]), [1.5, -0.5, 2.0, 0.25, 1.9]);
        assert_eq!(scores(2.0, 0, &[9.0, -1.0]), [1.5, -0.5, 2.0, 0.25, 1.9]);
    }

    #[test]
    fn repeated_sequences_are_excluded() {
        let excluded = |ngram, tokens: &[f64]| -> Vec<usize> {
            let scores = scores(1.0, ngram, tokens);
            (0..5)
                .filter(|&token| scores[token] == f64::NEG_INFINITY)
                .collect()
        };
        // 2 and 4 followed 3 before.
        assert_eq!(excluded(2, &[3.0, 2.0, 3.0]), [2]);
        assert_eq!(excluded(2, &[3.0, 2.0, 3.0, 4.0, 3.0, -1.0]), [2, 4]);
        assert_eq!(excluded(3, &[3.0, 2.0, 3.0, 4.0, 3.0]), [0_usize; 0]);
        assert_eq!(excluded(3, &[3.0, 2.0, 1.0, 3.0, 2.0]), [1]);
        assert_eq!(excluded(1, &[2.0, 4.0]), [2, 4]);
        assert_eq!(excluded(4, &[3.0, 2.0]), [0_usize; 0], "too short");
        assert_eq!(excluded(1, &[-1.0, 2.0]), [0_usize; 0]);
        let none = TokenScores {
            log: false,
            penalty: 0.0,
            ngram: 0,
        };
        assert!(none.shapes(&[&[1, 5], &[1, 2]]).is_err());
    }

    #[test]
    fn logarithms_are_punished_as_numbers_below_0() {
        let logits = Array::new([1, 2], vec![1.0, 1.0]).unwrap();
        let tokens = Array::new([1, 1], vec![1.0]).unwrap();
        let op = TokenScores {
            log: true,
            penalty: 2.0,
            ngram: 0,
        };
        let scores = op.eval(&[&logits, &tokens]).unwrap().remove(0);
        for (score, expected) in scores.values().iter().zip([0.5_f64.ln(), 2.0 * 0.5_f64.ln()]) {
            assert!((score - expected).abs() < 1e-12, "{scores:?}");
        }
    }
}
