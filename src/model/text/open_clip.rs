//! Prepares texts as open_clip does, with its cleaning and its own tokenizer. The `tokenizer_kwargs` of a model's
//! configuration select them, as in the library's `get_tokenizer`.

mod ftfy;
mod html;
pub(super) mod replace;
mod tables;

use fancy_regex::Regex;
use serde_json::Value;
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

use self::ftfy::Ftfy;
use self::html::Html;
use self::replace::Fault;
use super::python;
use super::tokens::Tokens;
use crate::error::Result;
use crate::model::fields::Fields;
use hipvit_files::json::is_true;

/// Regular expression of words in the library's `SimpleTokenizer`.
const WORDS: &str =
    r"(?i)<start_of_text>|<end_of_text>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
/// Tokens before and after a text, by the library's names. Model directories use the names of transformers.
const START: &str = "<start_of_text>";
const END: &str = "<end_of_text>";

/// Options for texts in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) cleaning: Cleaning,
    /// True if the tokenizer is one of transformers, in the model's directory.
    pub(super) transformers: bool,
    /// True if the separator token is replaced by token 0.
    pub(super) strip_separator: bool,
}

/// Methods of the library to clean a text after ftfy and HTML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cleaning {
    /// Single spaces.
    Whitespace,
    /// Single spaces, lower case.
    Lower,
    /// Single spaces, lower case, no ASCII punctuation.
    Canonicalize,
}

impl Options {
    /// Reads the options in `text_cfg`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Config`](crate::Error::Config) for a key that hipvit does not support or the library rejects.
    pub(super) fn read(text: Fields<'_>) -> Result<Self> {
        let name = text.text("hf_tokenizer_name")?;
        let transformers = name.is_some_and(|name| !name.is_empty());
        if transformers && text.text("tokenizer_mode")? == Some("clips") {
            return Err(text.error("tokenizer_mode", "is \"clips\", which is not supported"));
        }
        let arguments = text.object_or_empty("tokenizer_kwargs")?;
        let mut options = Self {
            cleaning: if transformers {
                Cleaning::Whitespace
            } else {
                Cleaning::Lower
            },
            transformers,
            strip_separator: false,
        };
        for key in arguments.keys() {
            let value = arguments.get(key);
            match key {
                "clean" => options.cleaning = cleaning(arguments)?,
                "strip_sep_token" if transformers => options.strip_separator = value.is_some_and(is_true),
                // The tokenizers that hipvit reads have no languages. The library only warns.
                "language" if transformers => {}
                "additional_special_tokens" | "reduction_mask"
                    if !transformers && !value.is_some_and(is_true) => {}
                "reduction_mask" if !transformers => {
                    return Err(arguments.error(key, "leaves out tokens at random, which is not supported"));
                }
                _ => return Err(arguments.error(key, "is not supported")),
            }
        }
        Ok(options)
    }
}

fn cleaning(arguments: Fields<'_>) -> Result<Cleaning> {
    match arguments.text("clean")? {
        Some("whitespace") => Ok(Cleaning::Whitespace),
        Some("lower") => Ok(Cleaning::Lower),
        Some("canonicalize") => Ok(Cleaning::Canonicalize),
        _ => {
            let value = arguments.get("clean").unwrap_or(&Value::Null);
            Err(arguments.unexpected("clean", value, "\"whitespace\", \"lower\" or \"canonicalize\""))
        }
    }
}

/// Cleans texts as open_clip does before it splits them into tokens.
pub(super) struct Cleaner {
    ftfy: Ftfy,
    html: Html,
    cleaning: Cleaning,
}

impl Cleaner {
    pub(super) fn new(cleaning: Cleaning) -> std::result::Result<Self, Fault> {
        Ok(Self {
            ftfy: Ftfy::new()?,
            html: Html::new()?,
            cleaning,
        })
    }

    pub(super) fn clean(&self, text: &str) -> std::result::Result<String, Fault> {
        let fixed = self.ftfy.fix_text(text, &self.html)?;
        let text = self.html.unescape(&self.html.unescape(&fixed)?)?;
        Ok(match self.cleaning {
            Cleaning::Whitespace => python::single_spaced(&text),
            Cleaning::Lower => python::single_spaced(&text).to_lowercase(),
            Cleaning::Canonicalize => {
                let mut bare = text.replace('_', " ");
                bare.retain(|character| !character.is_ascii_punctuation());
                python::single_spaced(&bare.to_lowercase())
            }
        })
    }
}

/// The library's `SimpleTokenizer`, with the vocabulary in the model's directory.
pub(super) struct SimpleTokenizer {
    words: Regex,
    bpe: BPE,
    start: u32,
    end: u32,
    /// Character of the vocabulary for each byte.
    bytes: Vec<char>,
}

impl SimpleTokenizer {
    /// Creates the tokenizer with the tokens and merges of `bpe`. Returns `None` if the start or end token is missing.
    pub(super) fn new(bpe: BPE) -> std::result::Result<Option<Self>, Fault> {
        let id = |names: [&str; 2]| names.iter().find_map(|name| bpe.token_to_id(name));
        let ends = id([START, "<|startoftext|>"]).zip(id([END, "<|endoftext|>"]));
        let words = Regex::new(WORDS)?;
        Ok(ends.map(|(start, end)| Self {
            words,
            bpe,
            start,
            end,
            bytes: python::byte_characters(),
        }))
    }

    /// Returns the tokens of a clean text, at most `context`.
    pub(super) fn encode(
        &self,
        text: &str,
        context: usize,
    ) -> std::result::Result<Tokens, tokenizers::Error> {
        let mut ids = vec![self.start];
        for word in self.words.find_iter(text) {
            match word?.as_str() {
                START => ids.push(self.start),
                END => ids.push(self.end),
                word => {
                    let word: String = word.bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
                    ids.extend(self.bpe.tokenize(&word)?.iter().map(|token| token.id));
                }
            }
        }
        ids.push(self.end);
        let truncated = ids.len() > context;
        if truncated {
            ids.truncate(context - 1);
            ids.push(self.end);
        }
        Ok(Tokens { ids, truncated })
    }
}

#[cfg(test)]
mod tests {
    use super::{Cleaner, Cleaning};

    /// Cases of damaged and other texts, cleaned by open_clip 3.3 with ftfy 6.3.
    #[test]
    fn texts_are_cleaned_as_open_clip_does() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/text/cleaning.json");
        let cases: Vec<[String; 4]> = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let ways = [Cleaning::Lower, Cleaning::Whitespace, Cleaning::Canonicalize];
        for (way, cleaning) in ways.into_iter().enumerate() {
            let cleaner = Cleaner::new(cleaning).unwrap();
            let clean = |case: &[String; 4]| cleaner.clean(&case[0]).unwrap();
            let wrong: Vec<_> = cases.iter().filter(|case| clean(case) != case[way + 1]).collect();
            let shown = &wrong[..wrong.len().min(10)];
            assert!(
                wrong.is_empty(),
                "{cleaning:?}: {} of {} wrong: {shown:?}",
                wrong.len(),
                cases.len()
            );
        }
    }
}
