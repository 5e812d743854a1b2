//! Sets up the tokenizers of transformers, with the class that the library selects for a directory.
//!
//! Most classes build their own pipeline around the vocabulary, and ignore what `tokenizer.json` says about
//! normalisation and words. `TokenizersBackend` uses the file unchanged.

mod added;

use std::path::PathBuf;

use serde_json::Value;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{Lowercase, NFC, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::processors::roberta::RobertaProcessing;
use tokenizers::{
    ModelWrapper, NormalizerWrapper, PaddingDirection, PreTokenizerWrapper, SplitDelimiterBehavior,
    TruncationDirection,
};

use self::added::Special;
use super::guard::{guarded, shortened};
use super::spec::TokenizerKind;
use super::{limits, sentencepiece};
use crate::error::{Error, Result};
use crate::model::document::Document;
use crate::model::fields::Fields;
use crate::model::invalid::Invalid;
use crate::model::source::Source;

pub(super) const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const CONFIG: &str = "config.json";
pub(super) const VOCABULARY: &str = "vocab.json";
const MERGES: &str = "merges.txt";
const SENTENCE_PIECE: &str = "spiece.model";

/// Regular expression of CLIP's words.
const CLIP_WORDS: &str =
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";

/// Classes that hipvit sets up as transformers does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// `TokenizersBackend`, which uses `tokenizer.json` unchanged.
    Backend,
    /// `CLIPTokenizer`.
    Clip,
    /// `GemmaTokenizer`.
    Gemma,
    /// `SiglipTokenizer`.
    Siglip,
    /// `Siglip2Tokenizer`, which is Gemma's in lower case.
    Siglip2,
}

impl Class {
    /// Returns the class that `AutoTokenizer` selects for a model of type `model` whose files name the class `named`.
    ///
    /// Returns `None` for a class that hipvit does not support.
    fn of(model: Option<&str>, named: Option<&str>) -> Option<Self> {
        if model == Some("siglip2") {
            return Some(Self::Siglip2);
        }
        match named.map(|name| name.strip_suffix("Fast").unwrap_or(name)) {
            Some("TokenizersBackend" | "PreTrainedTokenizer") => Some(Self::Backend),
            Some("CLIPTokenizer") => Some(Self::Clip),
            Some("GemmaTokenizer") => Some(Self::Gemma),
            Some("SiglipTokenizer") => Some(Self::Siglip),
            Some("Siglip2Tokenizer") => Some(Self::Siglip2),
            Some(_) => None,
            None => Some(match model {
                Some("clip") => Self::Clip,
                Some("siglip") => Self::Siglip,
                _ => Self::Backend,
            }),
        }
    }

    /// Returns the default special tokens of the class, with the keys that override them.
    fn special_tokens(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Backend => &[],
            Self::Clip => &[
                ("bos_token", "<|startoftext|>"),
                ("eos_token", "<|endoftext|>"),
                ("unk_token", "<|endoftext|>"),
                ("pad_token", "<|endoftext|>"),
            ],
            Self::Gemma | Self::Siglip2 => &[
                ("bos_token", "<bos>"),
                ("eos_token", "<eos>"),
                ("unk_token", "<unk>"),
                ("pad_token", "<pad>"),
                ("mask_token", "<mask>"),
            ],
            Self::Siglip => &[
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
                ("pad_token", "</s>"),
            ],
        }
    }

    fn pads_left(self) -> bool {
        matches!(self, Self::Gemma | Self::Siglip2)
    }
}

/// A tokenizer, with the settings that its class applies around it.
pub(super) struct Loaded {
    pub(super) inner: tokenizers::Tokenizer,
    pub(super) file: PathBuf,
    /// Set if texts are cleaned as by `SiglipTokenizer`. True if that converts them to lower case.
    pub(super) canonicalize: Option<bool>,
    pub(super) truncation: TruncationDirection,
    pub(super) pad: Option<u32>,
    pub(super) pads_left: bool,
    /// True for the tokenizer in `spiece.model`.
    pub(super) sentence_piece: bool,
    /// Tokens at which `SiglipTokenizer` cuts a text.
    pub(super) cuts: Vec<String>,
    /// Id of the separator token.
    pub(super) separator: Option<u32>,
    /// Maximum number of tokens of a text in the tokenizer's files. The model's context may be shorter.
    pub(super) longest: Option<f64>,
}

/// JSON files that describe a tokenizer.
struct Files<'a> {
    source: &'a Source<'a>,
    config: Document,
    model: Option<Document>,
}

/// Sets up the tokenizer of the directory as `AutoTokenizer.from_pretrained` does.
///
/// # Errors
///
/// Returns [`Error::Config`] for a file that is missing or invalid, and for a key that hipvit does not support.
pub(super) fn load(source: &Source<'_>, kind: TokenizerKind) -> Result<Loaded> {
    let files = Files {
        source,
        config: json_or_empty(source, TOKENIZER_CONFIG)?,
        model: source.json(CONFIG)?,
    };
    let config = files.config.fields()?;
    let class = files.class(config)?;
    check(config, class)?;
    let special = Special::read(source, config, class.special_tokens())?;
    let (base, file) = files.base(class, kind, special.named("eos_token"))?;
    let padding = base.get_padding().cloned();
    let file_truncates_left = base
        .get_truncation()
        .map(|truncation| truncation.direction == TruncationDirection::Left);
    let added = special.added(&base);
    let cuts = if class == Class::Siglip {
        added.iter().map(|token| token.content.clone()).collect()
    } else {
        Vec::new()
    };
    let mut inner = match class {
        // Do not clone the tokenizer. The vocabulary may take hundreds of megabytes.
        Class::Backend | Class::Siglip => base,
        Class::Clip | Class::Gemma | Class::Siglip2 => {
            let unknown = special.named("unk_token");
            pipeline(class, &base, unknown).map_err(|reason| Error::config(&file, reason))?
        }
    };
    let unusable = |error: tokenizers::Error| Error::config(&file, error.to_string());
    limits::check_added(&added).map_err(|reason| Error::config(&file, reason))?;
    inner.add_tokens(added).map_err(unusable)?;
    inner.set_encode_special_tokens(config.flag("split_special_tokens")?.unwrap_or(false));
    if class == Class::Clip {
        let ends = ["eos_token", "bos_token"].map(|key| special.named(key).map(str::to_owned));
        let ends = ends.map(|token| token.and_then(|token| inner.token_to_id(&token).map(|id| (token, id))));
        let [Some(end), Some(start)] = ends else {
            return Err(Error::config(&file, "has no tokens that begin and end a text"));
        };
        let ends = RobertaProcessing::new(end, start);
        inner.with_post_processor(Some(ends.trim_offsets(false).add_prefix_space(false)));
    }
    let id = |key: &str| special.named(key).and_then(|token| inner.token_to_id(token));
    let pad_of_file = padding
        .as_ref()
        .filter(|_| class == Class::Backend)
        .map(|padding| padding.pad_token.clone());
    let pad = match (config.has("pad_token"), special.named("pad_token"), pad_of_file) {
        (false, None, Some(token)) => inner.token_to_id(&token),
        _ => id("pad_token"),
    };
    let truncates_left = side(config, "truncation_side")?;
    let pads_left = side(config, "padding_side")?;
    let file_pads_left = padding.map(|padding| matches!(padding.direction, PaddingDirection::Left));
    let separator = id("sep_token");
    inner.with_padding(None);
    Ok(Loaded {
        sentence_piece: file.ends_with(SENTENCE_PIECE),
        cuts,
        canonicalize: if class == Class::Siglip {
            Some(config.flag("do_lower_case")?.unwrap_or(true))
        } else {
            None
        },
        truncation: if truncates_left.or(file_truncates_left).unwrap_or(false) {
            TruncationDirection::Left
        } else {
            TruncationDirection::Right
        },
        pad,
        pads_left: pads_left.or(file_pads_left).unwrap_or(class.pads_left()),
        separator,
        longest: config.number("model_max_length")?.or(config.number("max_len")?),
        inner,
        file,
    })
}

impl Files<'_> {
    fn class(&self, config: Fields<'_>) -> Result<Class> {
        let model = self.model.as_ref().map(Document::fields).transpose()?;
        let model_type = model.map(|model| model.text("model_type")).transpose()?.flatten();
        let named = match (config.text("tokenizer_class")?, model) {
            (Some(class), _) => Some((class, config)),
            (None, Some(model)) => model.text("tokenizer_class")?.map(|class| (class, model)),
            (None, None) => None,
        };
        let class = Class::of(model_type, named.map(|(class, _)| class));
        class.ok_or_else(|| {
            let (name, fields) = named.unwrap_or(("", config));
            fields.error(
                "tokenizer_class",
                format_args!(
                    "is \"{name}\", which is not supported. CLIPTokenizer, GemmaTokenizer, SiglipTokenizer, Siglip2Tokenizer and \
                     TokenizersBackend are"
                ),
            )
        })
    }

    /// Returns the tokenizer in the files, and the path of its file.
    fn base(
        &self,
        class: Class,
        kind: TokenizerKind,
        end: Option<&str>,
    ) -> Result<(tokenizers::Tokenizer, PathBuf)> {
        if class == Class::Siglip
            && let Some(bytes) = self.source.bytes(SENTENCE_PIECE, limits::MAX_VOCABULARY_FILE)?
        {
            let file = self.source.place(SENTENCE_PIECE);
            let tokenizer = guarded(&file, || {
                let tokenizer = sentencepiece::tokenizer(&bytes, end.unwrap_or("</s>"));
                tokenizer.map_err(|reason| Error::config(&file, reason))
            })?;
            return Ok((tokenizer, file));
        }
        if let Some(found) = from_json(self.source)? {
            let unigram = matches!(found.0.get_model(), ModelWrapper::Unigram(_));
            if class == Class::Siglip && !unigram {
                let reason = "is not a SentencePiece model, which SiglipTokenizer needs; `tokenizer_class` of \
                              tokenizer_config.json names another class";
                return Err(Error::config(&found.1, reason));
            }
            return Ok(found);
        }
        if class == Class::Clip
            && let Some(bpe) = bpe_files(self.source)?
        {
            return Ok((tokenizers::Tokenizer::new(bpe), self.source.place(VOCABULARY)));
        }
        Err(missing(self.source, kind))
    }
}

/// Returns an error for keys that would change the tokens in an unsupported way.
fn check(config: Fields<'_>, class: Class) -> Result<()> {
    let code = config.object("auto_map").ok().flatten();
    if code.is_some_and(|map| map.has("AutoTokenizer"))
        || matches!(config.get("auto_map"), Some(Value::Array(_)))
    {
        return Err(config.error("auto_map", "names a tokenizer's code, which hipvit does not run"));
    }
    if config.flag("legacy")? == Some(false) && class == Class::Siglip {
        return Err(config.error("legacy", "is false, which is not supported for SiglipTokenizer"));
    }
    if let Some(arguments) = config.get("sp_model_kwargs")
        && arguments.as_object().is_none_or(|map| !map.is_empty())
    {
        return Err(config.unexpected("sp_model_kwargs", arguments, "{}"));
    }
    if let Some(files) = config.get("fast_tokenizer_files")
        && files
            .as_array()
            .is_none_or(|files| files.iter().any(|file| file.as_str() != Some(TOKENIZER)))
    {
        return Err(config.unexpected("fast_tokenizer_files", files, "[\"tokenizer.json\"]"));
    }
    Ok(())
}

/// Returns true if the key is "left", or `None` if the key is missing.
fn side(config: Fields<'_>, key: &str) -> Result<Option<bool>> {
    match config.text(key)? {
        None => Ok(None),
        Some("left") => Ok(Some(true)),
        Some("right") => Ok(Some(false)),
        Some(other) => Err(config.error(
            key,
            format_args!("is \"{other}\", expected \"left\" or \"right\""),
        )),
    }
}

/// Reads the JSON file `name` of the directory. Returns an empty object if there is no such file.
pub(super) fn json_or_empty(source: &Source<'_>, name: &str) -> Result<Document> {
    let found = source.json(name)?;
    Ok(found.unwrap_or_else(|| Document {
        file: source.place(name),
        value: Value::Object(serde_json::Map::new()),
    }))
}

/// Reads the tokenizer in `tokenizer.json`. Returns it with the path of the file, or `None` if there is no such file.
pub(super) fn from_json(source: &Source<'_>) -> Result<Option<(tokenizers::Tokenizer, PathBuf)>> {
    let Some(bytes) = source.bytes(TOKENIZER, limits::MAX_FILE)? else {
        return Ok(None);
    };
    let file = source.place(TOKENIZER);
    limits::check(&bytes).map_err(|reason| Error::config(&file, reason))?;
    let tokenizer = guarded(&file, || {
        let tokenizer = tokenizers::Tokenizer::from_bytes(&bytes);
        tokenizer.map_err(|error| Error::config(&file, format!("is not a tokenizer: {}", shortened(&error))))
    })?;
    Ok(Some((tokenizer, file)))
}

/// Reads the model in `vocab.json` and `merges.txt`. Returns `None` if a file is missing.
pub(super) fn bpe_files(source: &Source<'_>) -> Result<Option<BPE>> {
    // The crate opens the files by name. Reject files that are not regular or too long first.
    let [vocabulary, merges] =
        [VOCABULARY, MERGES].map(|name| source.bytes(name, limits::MAX_VOCABULARY_FILE));
    let (Some(vocabulary), Some(_)) = (vocabulary?, merges?) else {
        return Ok(None);
    };
    let [file, merges] = [VOCABULARY, MERGES].map(|name| source.place(name));
    limits::check_vocabulary(&vocabulary).map_err(|reason| Error::config(&file, reason))?;
    let model = guarded(&file, || {
        let model = BPE::from_file(&file.to_string_lossy(), &merges.to_string_lossy()).build();
        model.map_err(|error| Error::config(&file, format!("is not a vocabulary: {}", shortened(&error))))
    })?;
    Ok(Some(model))
}

/// Returns CLIP's vocabulary and merges in the directory, in either form, and the path of the file.
pub(super) fn clip_vocabulary(source: &Source<'_>) -> Result<(BPE, PathBuf)> {
    let (model, file) = match from_json(source)? {
        Some((tokenizer, file)) => match tokenizer.get_model() {
            ModelWrapper::BPE(model) => (model.clone(), file),
            _ => {
                return Err(Error::config(
                    &file,
                    "is not a byte-pair model, which CLIP's tokenizer needs",
                ));
            }
        },
        None => match bpe_files(source)? {
            Some(model) => (model, source.place(VOCABULARY)),
            None => return Err(missing(source, TokenizerKind::Clip)),
        },
    };
    Ok((clip_model(model, None), file))
}

fn missing(source: &Source<'_>, kind: TokenizerKind) -> Error {
    let why = if kind == TokenizerKind::Siglip && source.place(SENTENCE_PIECE).is_file() {
        "which texts need; its spiece.model is for `tokenizer_class` SiglipTokenizer"
    } else {
        "which texts need"
    };
    source.missing(&[TOKENIZER.to_owned()], why)
}

fn clip_model(mut model: BPE, unknown: Option<&str>) -> BPE {
    model.dropout = None;
    model.unk_token = unknown.map(str::to_owned);
    model.continuing_subword_prefix = None;
    model.end_of_word_suffix = Some("</w>".to_owned());
    model.fuse_unk = false;
    model.byte_fallback = false;
    model.ignore_merges = false;
    model
}

/// Creates the class's pipeline around the vocabulary of `base`. Keeps the post-processor of `base`.
fn pipeline(
    class: Class,
    base: &tokenizers::Tokenizer,
    unknown: Option<&str>,
) -> std::result::Result<tokenizers::Tokenizer, Invalid> {
    let ModelWrapper::BPE(model) = base.get_model() else {
        return Err(format!("is not a byte-pair model, which {class:?}Tokenizer needs").into());
    };
    let text = |error: tokenizers::Error| Invalid::from(error.to_string());
    let model = model.clone();
    let mut tokenizer = if class == Class::Clip {
        let spaces = Replace::new(ReplacePattern::Regex(r"\s+".into()), " ").map_err(text)?;
        let normalizers: Vec<NormalizerWrapper> = vec![NFC.into(), spaces.into(), Lowercase.into()];
        let words = SplitPattern::Regex(CLIP_WORDS.into());
        let words = Split::new(words, SplitDelimiterBehavior::Removed, true).map_err(text)?;
        let pre_tokenizers: Vec<PreTokenizerWrapper> =
            vec![words.into(), ByteLevel::default().add_prefix_space(false).into()];
        let mut tokenizer = tokenizers::Tokenizer::new(clip_model(model, unknown));
        tokenizer
            .with_normalizer(Some(Normalizers::new(normalizers)))
            .map_err(text)?
            .with_pre_tokenizer(Some(PreTokenizers::new(pre_tokenizers)));
        tokenizer
    } else {
        let mut model = model;
        model.dropout = None;
        model.unk_token = unknown.map(str::to_owned);
        model.continuing_subword_prefix = None;
        model.end_of_word_suffix = None;
        model.fuse_unk = true;
        model.byte_fallback = true;
        model.ignore_merges = false;
        let spaces = Replace::new(ReplacePattern::String(" ".into()), "▁").map_err(text)?;
        let lower = (class == Class::Siglip2).then(|| Lowercase.into());
        let normalizers: Vec<NormalizerWrapper> = lower.into_iter().chain([spaces.into()]).collect();
        let words = SplitPattern::String(" ".into());
        let words = Split::new(words, SplitDelimiterBehavior::MergedWithPrevious, false).map_err(text)?;
        let mut tokenizer = tokenizers::Tokenizer::new(model);
        tokenizer
            .with_normalizer(Some(Normalizers::new(normalizers)))
            .map_err(text)?
            .with_pre_tokenizer(Some(words));
        tokenizer
    };
    tokenizer.with_post_processor(base.get_post_processor().cloned());
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use super::Class;

    /// Expected classes are from transformers 5.23, run for each pair.
    #[test]
    fn the_class_is_the_named_one_but_for_siglip2() {
        for (model, named, class) in [
            ("siglip2", None, Some(Class::Siglip2)),
            ("siglip2", Some("GemmaTokenizer"), Some(Class::Siglip2)),
            ("siglip2", Some("GemmaTokenizerFast"), Some(Class::Siglip2)),
            ("siglip2", Some("TokenizersBackend"), Some(Class::Siglip2)),
            ("siglip2", Some("SiglipTokenizer"), Some(Class::Siglip2)),
            ("siglip", None, Some(Class::Siglip)),
            ("siglip", Some("GemmaTokenizer"), Some(Class::Gemma)),
            ("siglip", Some("GemmaTokenizerFast"), Some(Class::Gemma)),
            ("siglip", Some("Siglip2Tokenizer"), Some(Class::Siglip2)),
            ("siglip", Some("PreTrainedTokenizerFast"), Some(Class::Backend)),
            ("siglip", Some("T5Tokenizer"), None),
            ("clip", None, Some(Class::Clip)),
            ("clip", Some("CLIPTokenizerFast"), Some(Class::Clip)),
            ("clip", Some("TokenizersBackend"), Some(Class::Backend)),
            ("clip", Some("BertTokenizer"), None),
        ] {
            assert_eq!(Class::of(Some(model), named), class, "{model} {named:?}");
        }
        assert_eq!(Class::of(None, None), Some(Class::Backend));
    }
}
