//! Converts tokens to text, and texts to tokens, with the `tokenizers` crate.

use std::fmt;
use std::path::{Path, PathBuf};

use tokenizers::AddedToken;
use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::processors::roberta::RobertaProcessing;

use super::guard::{guarded, shortened};
use super::transformers::{TOKENIZER, VOCABULARY, bpe_files, from_json};
use crate::error::{Error, Result};
use crate::model::source::Source;

/// Special tokens of RoBERTa, whose vocabulary TrOCR has if there is no `tokenizer.json`.
const SPECIAL: [&str; 5] = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"];

/// Converts the tokens that a decoder makes to text, and texts to the tokens before them or to those that it should make.
pub struct Detokenizer {
    tokenizer: tokenizers::Tokenizer,
    file: PathBuf,
    /// Tokens that texts do not have, if they have other special tokens.
    hidden: Option<Vec<u32>>,
}

impl fmt::Debug for Detokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Detokenizer")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Detokenizer {
    /// Reads `tokenizer.json` of the directory, or `vocab.json` and `merges.txt` of a byte-level BPE.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for files that are missing or damaged.
    pub fn load(directory: &Path) -> Result<Self> {
        let source = Source::of_directory(directory.to_owned(), None);
        if let Some((mut tokenizer, file)) = from_json(&source)? {
            let unusable = |error: tokenizers::Error| Error::config(&file, shortened(&error));
            // A file may have the settings of the call before it was saved.
            tokenizer.with_padding(None);
            tokenizer.with_truncation(None).map_err(unusable)?;
            return Ok(Self {
                tokenizer,
                file,
                hidden: None,
            });
        }
        let Some(model) = bpe_files(&source)? else {
            let reason = "is missing, and so are vocab.json and merges.txt. SentencePiece files are not read: save the tokenizer with \
                          `AutoTokenizer.from_pretrained(…).save_pretrained(…)`";
            return Err(Error::config(source.place(TOKENIZER), reason));
        };
        let file = source.place(VOCABULARY);
        let mut tokenizer = tokenizers::Tokenizer::new(model);
        tokenizer.with_decoder(Some(ByteLevel::default()));
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        guarded(&file, || {
            let added = tokenizer.add_special_tokens(SPECIAL.map(|token| AddedToken::from(token, true)));
            added.map_err(|error| Error::config(&file, shortened(&error)))
        })?;
        let special = |token: &str| (token.to_owned(), tokenizer.token_to_id(token).unwrap_or_default());
        let ends = RobertaProcessing::new(special("</s>"), special("<s>"));
        tokenizer.with_pre_tokenizer(Some(ByteLevel::default().add_prefix_space(false)));
        tokenizer.with_post_processor(Some(ends.add_prefix_space(false)));
        Ok(Self {
            tokenizer,
            file,
            hidden: None,
        })
    }

    /// Keeps special tokens in texts, except those in `hidden`.
    #[must_use]
    pub fn keeping_special(self, hidden: Vec<u32>) -> Self {
        Self {
            hidden: Some(hidden),
            ..self
        }
    }

    /// Returns the text of tokens, without blanks around it, and without special tokens unless they are [kept](Self::keeping_special).
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the steps of the tokenizer's decoder fail.
    pub fn text(&self, tokens: &[u32]) -> Result<String> {
        guarded(&self.file, || {
            let text = match &self.hidden {
                None => self.tokenizer.decode(tokens, true),
                Some(hidden) => {
                    let shown = tokens.iter().copied().filter(|token| !hidden.contains(token));
                    self.tokenizer.decode(&shown.collect::<Vec<u32>>(), false)
                }
            };
            let text = text.map_err(|error| Error::config(&self.file, shortened(&error)))?;
            Ok(text.trim().to_owned())
        })
    }

    /// Returns the tokens of a text, without special tokens around it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the tokenizer fails.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        self.encode(text, false)
    }

    /// Returns the tokens of a text, with the special ones that the tokenizer puts around it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the tokenizer fails.
    pub fn target_tokens(&self, text: &str) -> Result<Vec<u32>> {
        self.encode(text, true)
    }

    /// Returns the first of `count` tokens that `other` writes in another way, or does not have.
    pub fn first_difference(&self, other: &Self, count: usize) -> Option<u32> {
        let mut tokens = 0..u32::try_from(count).unwrap_or(u32::MAX);
        tokens.find(|&token| self.tokenizer.id_to_token(token) != other.tokenizer.id_to_token(token))
    }

    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>> {
        guarded(&self.file, || {
            let encoding = self.tokenizer.encode(text, add_special);
            let encoding = encoding.map_err(|error| {
                let reason = format!("cannot convert \"{text}\" to tokens: {}", shortened(&error));
                Error::config(&self.file, reason)
            })?;
            Ok(encoding.get_ids().to_vec())
        })
    }

    /// Returns the file of the tokenizer.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Writes the files to a directory, and loads it.
    fn load(files: &[(&str, &str)]) -> Result<Detokenizer> {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        Detokenizer::load(directory.path())
    }

    #[test]
    fn vocabularies_of_bytes_have_special_tokens() {
        let vocabulary = json!({"<s>": 0, "</s>": 1, "Ġ": 2, "h": 3, "i": 4, "hi": 5, "Ġhi": 6}).to_string();
        let files = [("vocab.json", vocabulary.as_str()), ("merges.txt", "h i\nĠ hi\n")];
        let loaded = load(&files).unwrap();
        assert_eq!(loaded.text(&[0, 6, 6, 3, 1]).unwrap(), "hi hih");
        assert_eq!(loaded.target_tokens("hi hi").unwrap(), [0, 5, 6, 1]);
        assert_eq!(loaded.tokens("hi hi").unwrap(), [5, 6]);
        let error = load(&files[..1]).unwrap_err().to_string();
        assert!(
            error.contains("tokenizer.json") && error.contains("SentencePiece"),
            "{error}"
        );
    }

    #[test]
    fn damaged_files_are_errors_that_name_them() {
        for content in ["{", "[]", "{\"model\": {\"type\": \"BPE\", \"vocab\": 7}}"] {
            let error = load(&[("tokenizer.json", content)]).unwrap_err().to_string();
            assert!(error.contains("tokenizer.json"), "{error}");
        }
        let files = [("vocab.json", "{\"a\": -1}"), ("merges.txt", "")];
        let error = load(&files).unwrap_err().to_string();
        assert!(error.contains("vocab.json"), "{error}");
    }
}
