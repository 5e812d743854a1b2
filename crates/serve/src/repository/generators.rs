//! Models that make texts of images.

use std::path::Path;
use std::sync::Arc;

use super::{Model, Repository};
use crate::metrics::Runs;
use crate::protocol::generation::TextProtocol;
use crate::scheduler::{Backend, GeneratorBackend, SessionBackend};
use hipvit::error::{Error, Result};
use hipvit_generate::{GenerateOptions, Generator};

/// Number of tokens of a prompt for which the cache has room in each text. Longer prompts take room of other texts.
const PROMPT_TOKENS: usize = 64;

impl Repository {
    /// Loads a model that makes texts of images.
    pub(super) fn load_generator(&self, name: &str, version: u64, directory: &Path) -> Result<Model> {
        let options = &self.options;
        let limit = options.limits.max_tokens;
        let (mut model, mut backends) = (None, Vec::<Arc<dyn Backend>>::new());
        for (builder, turns) in options.instances.iter().zip(&self.turns) {
            let builder = builder.clone().batch(options.max_batch);
            let longest = GenerateOptions {
                max_tokens: limit.map(|limit| limit.saturating_add(PROMPT_TOKENS)),
                ..GenerateOptions::default()
            };
            let generator = Generator::load(directory, &builder, &longest).map_err(advised)?;
            let session = generator.session().clone();
            self.log_session(name, &session);
            if generator.beams() > 1 {
                let beams = generator.beams();
                tracing::warn!(
                    model = name,
                    beams,
                    "texts are decoded with one beam unless a request has `beams`; the model's files ask for more"
                );
            }
            if model.is_none() {
                let default_tokens = generator.default_tokens();
                let max_tokens = limit.unwrap_or(default_tokens).min(generator.max_tokens());
                let protocol = TextProtocol {
                    detokenizer: generator.detokenizer(),
                    prompts: generator.prompts(),
                    default_tokens: default_tokens.min(max_tokens),
                    max_tokens,
                };
                model = Some((protocol, session.clone()));
            }
            let encoder = SessionBackend::new(session, false, turns.clone());
            let backend = GeneratorBackend::new(encoder, generator);
            backend.warm_up()?;
            backends.push(Arc::new(backend));
        }
        let none = || Error::argument("instances", "there must be at least one");
        let (protocol, session) = model.ok_or_else(none)?;
        let model = self.image_model(
            (name, version),
            &session,
            (backends, Runs::Generation),
            "the model takes no texts: it makes texts of images",
        )?;
        Ok(Model {
            generation: Some(protocol),
            ..model
        })
    }
}

/// Adds how a model is served whose decoder is not supported.
fn advised(error: Error) -> Error {
    match error {
        Error::Config { file, reason } => {
            let advice = "With --no-texts, the server embeds images by the encoder alone";
            Error::config(&file, format!("{}. {advice}", reason.trim_end_matches('.')))
        }
        error => error,
    }
}
