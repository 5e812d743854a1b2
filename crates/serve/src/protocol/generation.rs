//! Outputs and parameters of models that make texts of images.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use hipvit::model::Detokenizer;
use hipvit_generate::{Finish, GenerateOptions, Generated, Sampling};

use super::parameters::Parameters;
use super::selection::select;
use super::{Datatype, OutputData, OutputTensor, RequestedOutput, TensorMetadata};
use crate::failure::Failure;

/// Outputs with their data types. Each has an element per image.
const OUTPUTS: [(&str, Datatype); 3] = [
    ("text", Datatype::Bytes),
    ("finish_reason", Datatype::Bytes),
    ("tokens", Datatype::Int32),
];

/// Bytes that a text takes for each of its tokens: as ids, as text, and in an answer. Tokens of common vocabularies have at most some
/// dozen bytes.
const TOKEN_BYTES: usize = 64;

/// Bytes that a text takes without its tokens.
const TEXT_BYTES: usize = 256;

/// A model that makes texts of images.
#[derive(Clone, Debug)]
pub(crate) struct TextProtocol {
    pub(crate) detokenizer: Arc<Detokenizer>,
    /// Number of tokens of a text whose request has no limit.
    pub(crate) default_tokens: usize,
    /// Maximum number of tokens of a text.
    pub(crate) max_tokens: usize,
}

/// Returns why a text ended, in the terms of OpenAI.
pub(crate) fn finish_reason(generated: &Generated) -> &'static str {
    match generated.finish {
        Finish::End => "stop",
        Finish::Length => "length",
    }
}

/// Returns a number that differs from call to call.
pub(crate) fn unique() -> u64 {
    RandomState::new().hash_one(())
}

impl TextProtocol {
    pub(crate) fn output_metadata() -> Vec<TensorMetadata> {
        let metadata = |(name, datatype): (&'static str, _)| TensorMetadata {
            name: name.into(),
            datatype,
            shape: vec![-1],
        };
        OUTPUTS.into_iter().map(metadata).collect()
    }

    /// Returns the names of the requested outputs, or of all.
    pub(crate) fn select(requested: &[RequestedOutput]) -> Result<Vec<&'static str>, Failure> {
        let names = OUTPUTS.map(|(name, _)| name);
        select(requested, &names, "the model makes texts of images, and")
    }

    /// Reads the options of texts from the parameters of a request.
    ///
    /// Each token is the most likely one, unless `temperature` is above 0, or `top_k` or `top_p` is given without it.
    pub(crate) fn options(&self, parameters: &Parameters) -> Result<GenerateOptions, Failure> {
        let max_tokens = match parameters.unsigned("max_tokens")? {
            None => self.default_tokens,
            Some(0) => {
                let reason = "parameter `max_tokens`: 0; a text has at least one token";
                return Err(Failure::invalid(reason));
            }
            Some(tokens) => match usize::try_from(tokens) {
                Ok(tokens) if tokens <= self.max_tokens => tokens,
                _ => {
                    let most = self.max_tokens;
                    let reason = format!(
                        "parameter `max_tokens`: {tokens}; a text has at most {most} tokens. Ask for fewer, or start the server with --max-tokens"
                    );
                    return Err(Failure::invalid(reason));
                }
            },
        };
        let temperature = parameters.number("temperature")?;
        // 0 disables the rule, as in other servers.
        let top_k = parameters.unsigned("top_k")?.filter(|&k| k > 0);
        let top_k = top_k.map(|k| usize::try_from(k).unwrap_or(usize::MAX));
        let top_p = parameters.number("top_p")?;
        let seed = parameters.bits("seed")?.unwrap_or_else(unique);
        let sampling = Sampling::by_rules(temperature, top_k, top_p, seed);
        let options = GenerateOptions {
            max_tokens: Some(max_tokens),
            prompt: None,
            sampling: sampling.filter(|sampling| sampling.temperature != 0.0),
            beams: Some(1),
            draft: 0,
            first_index: 0,
        };
        let checked = options.check();
        checked.map_err(|error| Failure::invalid(format!("parameter {error}")))?;
        Ok(options)
    }

    /// Returns the maximum memory of texts and of their answer.
    pub(crate) fn answer_size(texts: usize, options: &GenerateOptions) -> usize {
        let tokens = options.max_tokens.unwrap_or(0);
        let each = tokens.saturating_mul(TOKEN_BYTES).saturating_add(TEXT_BYTES);
        texts.saturating_mul(each)
    }

    /// Writes the selected outputs.
    pub(crate) fn write(selected: &[&'static str], texts: &[&Generated]) -> Vec<OutputTensor> {
        let strings = |of: &dyn Fn(&Generated) -> String| {
            OutputData::Bytes(texts.iter().map(|text| of(text)).collect())
        };
        let write = |&name: &&'static str| OutputTensor {
            name: name.into(),
            shape: vec![texts.len()],
            data: match name {
                "text" => strings(&|text| text.text.clone()),
                "finish_reason" => strings(&|text| finish_reason(text).to_owned()),
                _ => {
                    let tokens = texts.iter().map(|text| text.tokens.len() as i32);
                    OutputData::Int32(tokens.collect())
                }
            },
        };
        selected.iter().map(write).collect()
    }
}
