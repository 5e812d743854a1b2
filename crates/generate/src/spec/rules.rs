//! Rules of generation, from the files of a model.

use std::path::Path;

use hipvit::error::{Error, Result};
use hipvit::model::Fields;
use hipvit::ops::TokenScores;
use serde_json::Value;

use crate::beam::{BeamRules, EarlyStopping};

/// File with the rules of generation.
pub(super) const GENERATION_CONFIG: &str = "generation_config.json";

const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Maximum number of new tokens if no file sets one: the default of transformers.
pub(super) const DEFAULT_NEW_TOKENS: usize = 20;

/// Default of `eos_token_id` and `forced_eos_token_id` of MBart.
pub(super) const MBART_END: u32 = 2;

/// Rules of generation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    /// The first token.
    pub(crate) start: u32,
    /// True if a prompt comes in place of the first token, false if it follows it.
    pub(crate) prompt_is_start: bool,
    /// Tokens that end a text.
    pub(crate) ends: Vec<u32>,
    /// The token of a text that has reached the maximum length, whatever the logits are.
    pub(crate) forced_end: Option<u32>,
    /// Tokens that a text does not show, if it shows other special tokens.
    pub(crate) hidden: Option<Vec<u32>>,
    pub(crate) max_length: Length,
    pub(crate) beams: BeamRules,
    /// Rules against repeated tokens.
    pub(crate) repetition: Option<TokenScores>,
}

/// Maximum length of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// Number of tokens, with those of the prompt.
    All(usize),
    /// Number of tokens after the prompt.
    New(usize),
}

impl Length {
    /// Returns the number of all tokens of a text whose prompt has `prompt` tokens.
    pub(crate) fn with_prompt(self, prompt: usize) -> usize {
        match self {
            Self::All(tokens) => tokens,
            Self::New(tokens) => prompt.saturating_add(tokens),
        }
    }
}

/// Reads the rules of generation. As in transformers, limits of the configuration apply only if there is no `generation_config.json`. MBart's configuration has
/// defaults.
pub(super) fn rules(
    directory: &Path,
    whole: &Fields<'_>,
    decoder: &Fields<'_>,
    is_mbart: bool,
) -> Result<Rules> {
    let path = directory.join(GENERATION_CONFIG);
    let own = match hipvit_files::regular_file::read_within(&path, MAX_CONFIG_BYTES) {
        Ok(bytes) => {
            let value = hipvit_files::json::parse(&bytes);
            Some(value.map_err(|error| Error::config(&path, error))?)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(Error::io(&path, error)),
    };
    let own = own.as_ref().map(|value| Fields::new(&path, value)).transpose()?;
    let limits = match &own {
        Some(own) => vec![own],
        None => vec![whole, decoder],
    };
    let ids = Sections(own.iter().chain([whole, decoder]).collect());
    let limits = Sections(limits);
    limits.refuse_others()?;
    let start = match ids.read("decoder_start_token_id", token)? {
        Some(start) => Some(start),
        None => ids
            .read("bos_token_id", token)?
            .or((is_mbart && !decoder.has("bos_token_id")).then_some(0)),
    };
    let missing = || {
        let reason = format!("`decoder_start_token_id` is neither here nor in {GENERATION_CONFIG}. Add it");
        Error::config(whole.file(), reason)
    };
    let start = start.ok_or_else(missing)?;
    let max_length = match limits.read("max_new_tokens", Fields::size)? {
        Some(new) => Some(Length::New(new)),
        None => limits.read("max_length", Fields::size)?.map(Length::All),
    };
    let forced = "forced_eos_token_id";
    let forced_end = match limits.find(forced) {
        Some(section) => match tokens(section, forced)?.as_slice() {
            &[end] => Some(end),
            [] => None,
            _ => return Err(section.error(forced, "is a list of several tokens, which is not supported")),
        },
        None => (is_mbart && own.is_none() && !decoder.has(forced)).then_some(MBART_END),
    };
    let penalty = limits.read("repetition_penalty", Fields::number)?.unwrap_or(1.0);
    if penalty <= 0.0 {
        let reason = format!("`repetition_penalty` is {penalty}, and must be above 0");
        return Err(Error::config(whole.file(), reason));
    }
    let repetition = TokenScores {
        log: false,
        penalty: penalty as f32,
        ngram: limits.read("no_repeat_ngram_size", Fields::count)?.unwrap_or(0),
    };
    Ok(Rules {
        start,
        prompt_is_start: false,
        ends: match ids.find("eos_token_id") {
            Some(section) => tokens(section, "eos_token_id")?,
            None if is_mbart && !decoder.has("eos_token_id") => vec![MBART_END],
            None => Vec::new(),
        },
        forced_end,
        hidden: None,
        max_length: max_length.unwrap_or(Length::New(DEFAULT_NEW_TOKENS)),
        beams: BeamRules {
            beams: limits.read("num_beams", Fields::size)?.unwrap_or(1),
            length_penalty: limits.read("length_penalty", Fields::number)?.unwrap_or(1.0),
            stopping: early_stopping(&limits)?,
        },
        repetition: (penalty != 1.0 || repetition.ngram > 0).then_some(repetition),
    })
}

fn early_stopping(limits: &Sections<'_>) -> Result<EarlyStopping> {
    let key = "early_stopping";
    let Some(section) = limits.find(key) else {
        return Ok(EarlyStopping::Unlikely);
    };
    match section.get(key) {
        Some(Value::Bool(true)) => Ok(EarlyStopping::Full),
        Some(Value::Bool(false)) => Ok(EarlyStopping::Unlikely),
        Some(Value::String(word)) if word == "never" => Ok(EarlyStopping::Never),
        _ => {
            let reason = "`early_stopping` must be true, false or \"never\"";
            Err(Error::config(section.file(), reason))
        }
    }
}

/// Sections of which the first that has a key counts.
struct Sections<'a>(Vec<&'a Fields<'a>>);

impl<'a> Sections<'a> {
    fn find(&self, key: &str) -> Option<&'a Fields<'a>> {
        self.0.iter().copied().find(|section| section.get(key).is_some())
    }

    fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&Fields<'a>, &str) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.find(key).map_or(Ok(None), |section| read(section, key))
    }

    /// Refuses rules that would change the text and are not supported.
    fn refuse_others(&self) -> Result<()> {
        // A minimum length of 0, and of the first token alone, changes nothing.
        for (key, neutral) in [("min_length", 1), ("min_new_tokens", 0)] {
            if self
                .read(key, Fields::count)?
                .is_some_and(|least| least > neutral)
            {
                return Err(self.unsupported(key));
            }
        }
        let lists = [
            "forced_bos_token_id",
            "suppress_tokens",
            "begin_suppress_tokens",
            "bad_words_ids",
        ];
        match lists.into_iter().find(|key| self.find(key).is_some()) {
            Some(key) => Err(self.unsupported(key)),
            None => Ok(()),
        }
    }

    fn unsupported(&self, key: &str) -> Error {
        let file = self
            .find(key)
            .map_or(Path::new(GENERATION_CONFIG), |section| section.file());
        Error::config(
            file,
            format!("`{key}` is not supported. Remove it to read texts without this rule"),
        )
    }
}

/// Reads a token, or the first of a list.
pub(super) fn token(fields: &Fields<'_>, key: &str) -> Result<Option<u32>> {
    Ok(tokens(fields, key)?.first().copied())
}

/// Reads a token or a list of tokens.
fn tokens(fields: &Fields<'_>, key: &str) -> Result<Vec<u32>> {
    let one = |value: &Value| {
        let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| fields.error(key, "is not a token id"))
    };
    match fields.get(key) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}
