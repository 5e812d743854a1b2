//! From texts to tokens, by the `tokenizers` crate: `tokenizer.json`, or CLIP's older `vocab.json` and `merges.txt`.

use std::path::PathBuf;

use serde_json::Value;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{Lowercase, NFC, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::{
    AddedToken, ModelWrapper, NormalizerWrapper, PaddingDirection, PostProcessor, PreTokenizerWrapper,
    SplitDelimiterBehavior, TruncationDirection, TruncationParams,
};

use super::siglip::canonicalize;
use super::{TextSpec, TokenizerKind};
use crate::error::{Error, Result};
use crate::model::source::Source;

const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS: &str = "special_tokens_map.json";
const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";
const SENTENCE_PIECE: &str = "spiece.model";

/// CLIP's words, by `tokenizer.json` of its repositories.
const CLIP_WORDS: &str =
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
const CLIP_START: &str = "<|startoftext|>";
const CLIP_END: &str = "<|endoftext|>";

/// Makes tokens of texts, as transformers' processor of the model does.
pub(crate) struct Tokenizer {
    inner: tokenizers::Tokenizer,
    file: PathBuf,
    canonical: Option<Canonical>,
    /// The context, the id that fills it, and whether from the front.
    padding: Option<(usize, u32, bool)>,
}

/// What is done to a text before its tokens are found.
#[derive(Clone, Copy, Debug)]
enum Canonical {
    /// SigLIP's, in lower case or not.
    Siglip(bool),
    /// SigLIP 2's.
    Lower,
}

/// A text's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// With the tokens that begin and end a text.
    pub(crate) ids: Vec<u32>,
    /// Whether the text was longer than the context.
    pub(crate) truncated: bool,
}

impl Tokenizer {
    pub(super) fn load(source: &Source<'_>, spec: &TextSpec) -> Result<Self> {
        let config = match source.json(TOKENIZER_CONFIG)? {
            Some(document) => document.value,
            None => Value::Null,
        };
        let (mut inner, file) = match source.bytes(TOKENIZER)? {
            Some(bytes) => {
                let file = source.place(TOKENIZER);
                let inner = tokenizers::Tokenizer::from_bytes(&bytes)
                    .map_err(|error| Error::config(&file, format!("is not a tokenizer: {error}")))?;
                (inner, file)
            }
            None => older_clip(source, spec)?,
        };
        let unusable = |reason: String| Error::config(&file, reason);
        let added = inner.get_post_processor().map_or(0, |p| p.added_tokens(false));
        if added >= spec.context {
            return Err(unusable(format!(
                "adds {added} tokens to each text, but the model's context is {}",
                spec.context
            )));
        }
        let right = config.get("truncation_side").and_then(Value::as_str) != Some("left");
        let truncation = TruncationParams {
            max_length: spec.context,
            direction: match right {
                true => TruncationDirection::Right,
                false => TruncationDirection::Left,
            },
            ..TruncationParams::default()
        };
        inner
            .with_truncation(Some(truncation))
            .map_err(|error| unusable(error.to_string()))?;
        let padding = match spec.tokenizer {
            TokenizerKind::Clip => None,
            TokenizerKind::Siglip => {
                let from_file = inner.get_padding().map(|padding| padding.pad_id);
                let id = match pad_token(source, &config)? {
                    Some(token) => inner.token_to_id(&token),
                    None => from_file.or(spec.padding),
                };
                let id = id.ok_or_else(|| {
                    unusable(format!(
                        "has no padding token; {TOKENIZER_CONFIG}'s `pad_token` names it"
                    ))
                })?;
                let of_file = inner.get_padding().map(|padding| padding.direction);
                let left = match config.get("padding_side").and_then(Value::as_str) {
                    Some(side) => side == "left",
                    None => matches!(of_file, Some(PaddingDirection::Left)),
                };
                Some((spec.context, id, left))
            }
        };
        // Ours is after truncation, so that what is padding is known.
        inner.with_padding(None);
        let canonical = canonical(&config, spec, inner.get_model());
        Ok(Self {
            inner,
            file,
            canonical,
            padding,
        })
    }

    /// The tokens of `text`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the tokenizer cannot make tokens of it.
    pub(crate) fn encode(&self, text: &str) -> Result<Tokens> {
        let encoding = match self.canonical {
            None => self.inner.encode(text, true),
            Some(Canonical::Siglip(lower)) => self.inner.encode(canonicalize(text, lower), true),
            Some(Canonical::Lower) => self.inner.encode(text.to_lowercase(), true),
        };
        let encoding = encoding.map_err(|error| {
            let reason = format!("makes no tokens of \"{text}\": {error}");
            Error::config(&self.file, reason)
        })?;
        let mut ids = encoding.get_ids().to_vec();
        if let Some((context, pad, left)) = self.padding {
            let missing = context.saturating_sub(ids.len());
            let at = if left { 0 } else { ids.len() };
            ids.splice(at..at, std::iter::repeat_n(pad, missing));
        }
        Ok(Tokens {
            ids,
            truncated: !encoding.get_overflowing().is_empty(),
        })
    }
}

/// The preparation of texts that transformers' class has beside `tokenizer.json`.
fn canonical(config: &Value, spec: &TextSpec, model: &ModelWrapper) -> Option<Canonical> {
    let lower = config.get("do_lower_case").and_then(Value::as_bool);
    let class = config.get("tokenizer_class").and_then(Value::as_str);
    match class.map(|class| class.strip_suffix("Fast").unwrap_or(class)) {
        Some("SiglipTokenizer") => Some(Canonical::Siglip(lower.unwrap_or(true))),
        Some("Siglip2Tokenizer") => Some(Canonical::Lower),
        Some(_) => None,
        // The class is the model type's, unless it is SigLIP 2's tokenizer.
        None => {
            let siglip = spec.tokenizer == TokenizerKind::Siglip && matches!(model, ModelWrapper::Unigram(_));
            siglip.then(|| Canonical::Siglip(lower.unwrap_or(true)))
        }
    }
}

/// The padding token that the tokenizer's other files name.
fn pad_token(source: &Source<'_>, config: &Value) -> Result<Option<String>> {
    let of = |value: &Value| {
        let token = value.get("pad_token")?;
        let text = token.as_str().or_else(|| token.get("content")?.as_str())?;
        Some(text.to_owned())
    };
    if let Some(token) = of(config) {
        return Ok(Some(token));
    }
    let special = source.json(SPECIAL_TOKENS)?;
    Ok(special.and_then(|document| of(&document.value)))
}

/// CLIP's tokenizer of `vocab.json` and `merges.txt`, as transformers makes it.
fn older_clip(source: &Source<'_>, spec: &TextSpec) -> Result<(tokenizers::Tokenizer, PathBuf)> {
    let [vocabulary, merges, sentence_piece] =
        [VOCABULARY, MERGES, SENTENCE_PIECE].map(|name| source.place(name));
    if spec.tokenizer != TokenizerKind::Clip || !vocabulary.is_file() || !merges.is_file() {
        let why = match sentence_piece.is_file() {
            true => {
                "which texts need; of spiece.model, transformers makes it: python3 -c 'import sys, transformers as t; \
                 t.AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])' and the directory"
            }
            false => "which texts need",
        };
        return Err(source.missing(&[TOKENIZER.to_owned()], why));
    }
    let unusable =
        |error: tokenizers::Error| Error::config(&vocabulary, format!("is not a vocabulary: {error}"));
    let [vocabulary_file, merges_file] = [&vocabulary, &merges].map(|path| path.to_string_lossy());
    let model = BPE::from_file(&vocabulary_file, &merges_file)
        .end_of_word_suffix("</w>".into())
        .unk_token(CLIP_END.into())
        .build()
        .map_err(unusable)?;
    let mut tokenizer = tokenizers::Tokenizer::new(model);
    let id = |token: &str| {
        let id = tokenizer.token_to_id(token);
        id.ok_or_else(|| Error::config(&vocabulary, format!("has no token {token}, so it is not CLIP's")))
    };
    let ends = RobertaProcessing::new(
        (CLIP_END.to_owned(), id(CLIP_END)?),
        (CLIP_START.to_owned(), id(CLIP_START)?),
    );
    let spaces = Replace::new(
        tokenizers::normalizers::replace::ReplacePattern::Regex(r"\s+".into()),
        " ",
    );
    let normalizers: Vec<NormalizerWrapper> =
        vec![NFC.into(), spaces.map_err(unusable)?.into(), Lowercase.into()];
    let words = Split::new(
        SplitPattern::Regex(CLIP_WORDS.into()),
        SplitDelimiterBehavior::Removed,
        true,
    );
    let pre_tokenizers: Vec<PreTokenizerWrapper> = vec![
        words.map_err(unusable)?.into(),
        ByteLevel::default().add_prefix_space(false).into(),
    ];
    tokenizer
        .with_normalizer(Some(Normalizers::new(normalizers)))
        .map_err(unusable)?
        .with_pre_tokenizer(Some(PreTokenizers::new(pre_tokenizers)))
        .with_post_processor(Some(ends.trim_offsets(false).add_prefix_space(false)));
    let special = [CLIP_START, CLIP_END].map(|token| AddedToken::from(token, true));
    tokenizer.add_special_tokens(special).map_err(unusable)?;
    Ok((tokenizer, vocabulary))
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("file", &self.file)
            .field("canonical", &self.canonical)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use safetensors::SafeTensors;

    use crate::model::{self, LoadOptions};

    #[test]
    fn ids_are_those_of_transformers() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/zero_shot");
        for case in ["hf_clip", "hf_clip_older", "open_clip", "hf_siglip", "hf_siglip2"] {
            let directory = root.join(case);
            let model = model::load(&directory, &LoadOptions::default()).unwrap();
            let tokenizer = model.text.unwrap().tokenizer().unwrap();
            let golden: serde_json::Value =
                serde_json::from_slice(&fs::read(directory.join("golden.json")).unwrap()).unwrap();
            let bytes = fs::read(directory.join("golden.safetensors")).unwrap();
            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            let ids: Vec<i64> = tensors
                .tensor("input_ids")
                .unwrap()
                .data()
                .as_chunks()
                .0
                .iter()
                .map(|&b| i64::from_le_bytes(b))
                .collect();
            let texts = golden["texts"].as_array().unwrap();
            for (text, expected) in texts.iter().zip(ids.chunks(ids.len() / texts.len())) {
                let text = text.as_str().unwrap();
                let got = tokenizer.encode(text).unwrap().ids;
                // What CLIP's tokenizer does not pad is −1.
                let expected: Vec<u32> = expected.iter().filter_map(|&id| u32::try_from(id).ok()).collect();
                assert_eq!(got, expected, "{case}: {text}");
            }
        }
    }
}
