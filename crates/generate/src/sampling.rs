//! Rules for the choice of the next token, which the op [`Sample`] makes as transformers' logits warpers do.

use hipvit::error::{Error, Result};
use hipvit::ops::Sample;
use hipvit::ops::dropout::philox4x32_10;
use hipvit::ops::sample::SampleRules;

/// Rules for the token of the largest logit.
pub(crate) const GREEDY: SampleRules = SampleRules {
    temperature: 0.0,
    top_k: 0,
    top_p: 1.0,
    random: 0,
};

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

/// Returns the rules for the token at `position` of the text of the image with index `index`.
pub(crate) fn rules_of(sampling: Option<&Sampling>, [position, index]: [usize; 2]) -> SampleRules {
    let Some(sampling) = sampling else {
        return GREEDY;
    };
    let key = [sampling.seed as u32, (sampling.seed >> 32) as u32];
    let [random, ..] = philox4x32_10([position as u32, index as u32, 0, 0], key);
    SampleRules {
        temperature: sampling.temperature as f32,
        top_k: sampling.top_k.unwrap_or(0).min(Sample::MAX_TOKENS),
        top_p: sampling.top_p as f32,
        random,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ_by_seed_image_and_position() {
        let random = |seed, place| {
            let sampling = Sampling {
                seed,
                ..Sampling::default()
            };
            rules_of(Some(&sampling), place).random
        };
        let numbers = [
            random(7, [3, 0]),
            random(7, [4, 0]),
            random(7, [3, 1]),
            random(8, [3, 0]),
            random(7 << 32, [3, 0]),
        ];
        for (index, number) in numbers.iter().enumerate() {
            assert!(!numbers[..index].contains(number), "{numbers:?}");
        }
        assert_eq!(random(7, [3, 0]), numbers[0]);
        assert_eq!(rules_of(None, [3, 0]), GREEDY);
    }
}
