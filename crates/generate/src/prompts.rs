//! Prompts of clients: messages, and options that are checked before a text begins.

use std::sync::Arc;

use hipvit::error::Result;
use hipvit::image::Tiling;
use hipvit::model::Detokenizer;

use crate::prompt::first_tokens;
use crate::sampling::GenerateOptions;
use crate::searched::{ToSearch, beam_rules, check_pages};
use crate::spec::DecoderSpec;
use crate::template::{self, Message};

/// Converts messages to prompts, and checks options before they are used: see [`Generator::prompts`](crate::Generator::prompts).
#[derive(Clone, Debug)]
pub struct Prompts {
    pub(crate) spec: Arc<DecoderSpec>,
    pub(crate) detokenizer: Arc<Detokenizer>,
    pub(crate) tiling: Option<Tiling>,
    /// Number of pages of the cache.
    pub(crate) pages: usize,
}

impl Prompts {
    /// Returns the prompt for the messages of a conversation about one image, as the chat template of the model's files writes it. `None` if the files have no
    /// template of SmolVLM.
    pub fn conversation(&self, messages: &[Message]) -> Option<String> {
        let has_template = self.spec.llama.as_ref().is_some_and(|llama| llama.has_template);
        has_template.then(|| template::conversation(messages))
    }

    /// Checks the options of a text of any image.
    ///
    /// # Errors
    ///
    /// [`Error::Argument`](hipvit::Error::Argument) for a prompt that the model cannot take, for more tokens than the model has positions, or for an option out of range.
    pub fn check(&self, options: &GenerateOptions) -> Result<()> {
        options.check()?;
        let grid = self.tiling.map_or([0, 0], |tiling| tiling.largest_grid());
        let prompt = options.prompt.as_deref();
        let first = first_tokens(&self.spec, &self.detokenizer, prompt, grid)?;
        let length = self.spec.length(options.max_tokens, first.tokens.len())?;
        match beam_rules(&self.spec, options)? {
            Some(rules) => {
                let text = ToSearch { rules, first, length };
                check_pages(&text, self.pages)
            }
            None => Ok(()),
        }
    }
}
