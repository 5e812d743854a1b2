//! The tokens that a text begins with.

use hipvit::error::{Error, Result};
use hipvit::model::Detokenizer;

use crate::spec::DecoderSpec;

/// Returns the tokens that a text with this prompt begins with: the model's first token, and those of the prompt. Donut's prompts have a first token
/// of their own.
///
/// # Errors
///
/// [`Error::Argument`] for a prompt without tokens, or with tokens that the model does not have.
pub(crate) fn first_tokens(
    spec: &DecoderSpec,
    detokenizer: &Detokenizer,
    prompt: Option<&str>,
) -> Result<Vec<u32>> {
    let start = spec.rules.start;
    let Some(prompt) = prompt else {
        return Ok(vec![start]);
    };
    let mut tokens = detokenizer.tokens(prompt)?;
    let vocabulary = spec.vocabulary;
    if let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
        let reason = format!(
            "\"{prompt}\" has token {token}, but the model's vocabulary has {vocabulary} tokens. Use the model's own tokenizer"
        );
        return Err(Error::argument("prompt", reason));
    }
    match tokens.first() {
        None => Err(Error::argument(
            "prompt",
            "is empty. Leave it out, or give a text",
        )),
        Some(&first) => {
            if !spec.rules.prompt_is_start && first != start {
                tokens.insert(0, start);
            }
            Ok(tokens)
        }
    }
}
