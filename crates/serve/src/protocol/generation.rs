//! Outputs and parameters of models that make texts of images.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use hipvit::error::Error;
use hipvit::model::Detokenizer;
use hipvit_generate::{Finish, GenerateOptions, Generated, Message, MessagePart, Prompts, Sampling};

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

/// Maximum bytes of a prompt, before its tokens are counted.
const MAX_PROMPT_BYTES: usize = 16 << 10;

/// Maximum number of texts that are continued together.
const MAX_BEAMS: u64 = 16;

/// Maximum number of tokens that are guessed in a step.
const MAX_DRAFT: u64 = 32;

/// A model that makes texts of images.
#[derive(Clone, Debug)]
pub(crate) struct TextProtocol {
    pub(crate) detokenizer: Arc<Detokenizer>,
    pub(crate) prompts: Prompts,
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
    /// Each token is the most likely one, unless `temperature` is above 0, or `top_k` or `top_p` is given without it. `messages` are those of a chat, which has no
    /// parameter `prompt`.
    pub(crate) fn options(
        &self,
        parameters: &Parameters,
        messages: Option<&[Message]>,
    ) -> Result<GenerateOptions, Failure> {
        let prompt = match messages {
            Some(messages) => self.prompt_of(messages)?,
            None => parameters.text("prompt")?.map(str::to_owned),
        };
        let prompt = prompt.filter(|prompt| !prompt.is_empty());
        let source = messages.map_or("parameter `prompt`", |_| "`messages`");
        if let Some(prompt) = &prompt
            && prompt.len() > MAX_PROMPT_BYTES
        {
            let bytes = prompt.len();
            let reason =
                format!("{source}: {bytes} bytes of text; the maximum is {MAX_PROMPT_BYTES}. Shorten it");
            return Err(Failure::invalid(reason));
        }
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
        let number = |name: &str, most: u64| match parameters.unsigned(name)? {
            Some(number) if number > most => {
                let reason = format!("parameter `{name}`: {number}; the maximum is {most}. Ask for fewer");
                Err(Failure::invalid(reason))
            }
            number => Ok(number.unwrap_or(0) as usize),
        };
        let options = GenerateOptions {
            max_tokens: Some(max_tokens),
            prompt,
            sampling: sampling.filter(|sampling| sampling.temperature != 0.0),
            beams: Some(number("beams", MAX_BEAMS)?.max(1)),
            draft: number("speculate", MAX_DRAFT)?,
            first_index: 0,
        };
        if options.draft > 0 && options.sampling.is_some() {
            let reason =
                "parameter `speculate`: guesses need the most likely tokens. Leave it out with random ones";
            return Err(Failure::invalid(reason));
        }
        self.prompts.check(&options).map_err(|error| match error {
            Error::Argument {
                what: "prompt",
                reason,
            } => Failure::invalid(format!("{source}: the prompt {reason}")),
            error => Failure::invalid(format!("parameter {error}")),
        })?;
        Ok(options)
    }

    /// Returns the prompt of a chat: the whole conversation, or the text that the model continues.
    fn prompt_of(&self, messages: &[Message]) -> Result<Option<String>, Failure> {
        if let Some(prompt) = self.prompts.conversation(messages) {
            return Ok(Some(prompt));
        }
        let mut texts = Vec::new();
        for (index, Message { role, parts }) in messages.iter().enumerate() {
            if role != "user" || index > 0 {
                let reason = format!(
                    "`messages`[{index}] has the role `{role}`, and the model continues one text, without a conversation. Send one message of the role `user`"
                );
                return Err(Failure::invalid(reason));
            }
            texts.extend(parts.iter().filter_map(|part| match part {
                MessagePart::Text(text) if !text.trim().is_empty() => Some(text.as_str()),
                MessagePart::Text(_) | MessagePart::Image => None,
            }));
        }
        Ok((!texts.is_empty()).then(|| texts.join("\n")))
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
