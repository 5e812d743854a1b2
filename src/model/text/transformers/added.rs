//! Reads the tokens that a directory adds to a tokenizer's vocabulary, or marks in it. Texts are split at these tokens.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;
use tokenizers::AddedToken;

use crate::error::Result;
use crate::model::document::Document;
use crate::model::fields::Fields;
use crate::model::source::Source;

const SPECIAL_TOKENS: &str = "special_tokens_map.json";
const ADDED_TOKENS: &str = "added_tokens.json";
/// Key that makes the library ignore the two older files.
const DECODER: &str = "added_tokens_decoder";
/// Names of special tokens, in the library's order.
const NAMES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// Special and added tokens of a directory.
pub(super) struct Special {
    /// Named tokens, in the order in which the library adds them.
    named: Vec<(String, AddedToken)>,
    /// Tokens without a name.
    extra: Vec<AddedToken>,
    /// Tokens that the configuration lists, in the order of their ids. `None` if `tokenizer.json` lists them.
    decoder: Option<Vec<AddedToken>>,
    /// Tokens of `added_tokens.json`.
    older: Vec<AddedToken>,
}

impl Special {
    /// Reads the tokens in the files. `defaults` are the tokens of the class.
    pub(super) fn read(source: &Source<'_>, config: Fields<'_>, defaults: &[(&str, &str)]) -> Result<Self> {
        let decoder = if config.has(DECODER) {
            Some(config.object_or_empty(DECODER)?)
        } else {
            None
        };
        // Tokens of the older file come before those of the configuration.
        let older = match decoder {
            Some(_) => None,
            None => source.json(SPECIAL_TOKENS)?,
        };
        let older = older.as_ref().map(Document::fields).transpose()?;
        let value = |key: &str| match older {
            Some(older) if older.has(key) => (true, older.get(key)),
            _ => (config.has(key), config.get(key)),
        };
        let mut named = Vec::new();
        for key in NAMES {
            let token = match value(key) {
                (_, Some(value)) => token(value),
                (true, None) => None,
                (false, None) => {
                    let default = defaults.iter().find(|(name, _)| *name == key);
                    default.map(|(_, content)| AddedToken::from(*content, true))
                }
            };
            named.extend(token.map(|token| (key.to_owned(), token)));
        }
        // Names that only this model uses.
        for fields in std::iter::once(config).chain(older) {
            for key in fields
                .keys()
                .filter(|key| key.ends_with("_token") && !NAMES.contains(key))
            {
                let token = fields.get(key).and_then(token);
                named.extend(token.map(|token| (key.to_owned(), token)));
            }
        }
        let mut extra = Vec::new();
        for key in ["extra_special_tokens", "additional_special_tokens"] {
            match value(key).1 {
                Some(Value::Array(tokens)) if extra.is_empty() => {
                    extra.extend(tokens.iter().filter_map(token));
                }
                Some(Value::Object(tokens)) if key == "extra_special_tokens" => {
                    let tokens = tokens
                        .iter()
                        .filter_map(|(name, value)| Some((name.clone(), token(value)?)));
                    named.extend(tokens);
                }
                _ => {}
            }
        }
        let decoder = decoder.map(|fields| {
            let tokens = fields
                .keys()
                .filter_map(|key| Some((key.parse::<u32>().ok()?, token(fields.get(key)?)?)));
            let sorted: BTreeMap<u32, AddedToken> = tokens.collect();
            sorted.into_values().collect()
        });
        let older = match decoder {
            Some(_) => Vec::new(),
            None => older_tokens(source, &named, &extra)?,
        };
        Ok(Self {
            named,
            extra,
            decoder,
            older,
        })
    }

    /// Returns the content of the special token with this name.
    pub(super) fn named(&self, key: &str) -> Option<&str> {
        let found = self.named.iter().find(|(name, _)| name == key);
        found.map(|(_, token)| token.content.as_str())
    }

    /// Returns all tokens in the order in which the library adds them to the tokenizer. `base` is the tokenizer in the
    /// file.
    pub(super) fn added(&self, base: &tokenizers::Tokenizer) -> Vec<AddedToken> {
        let of_file: BTreeMap<u32, AddedToken> = base.get_added_tokens_decoder().into_iter().collect();
        let mut tokens = match &self.decoder {
            Some(decoder) => decoder.clone(),
            None => self.older.iter().cloned().chain(of_file.into_values()).collect(),
        };
        let mut contents: HashSet<String> = tokens.iter().map(|token| token.content.clone()).collect();
        for token in self.named.iter().map(|(_, token)| token).chain(&self.extra) {
            if contents.insert(token.content.clone()) {
                tokens.push(token.clone().special(true));
            }
        }
        tokens
    }
}

/// Reads a token, which is a text or an object with properties.
fn token(value: &Value) -> Option<AddedToken> {
    let map = match value {
        Value::String(content) => return Some(AddedToken::from(content, true)),
        value => value.as_object()?,
    };
    let flag = |key: &str| map.get(key).and_then(Value::as_bool);
    let special = flag("special").unwrap_or(false);
    Some(AddedToken {
        content: map.get("content")?.as_str()?.to_owned(),
        single_word: flag("single_word").unwrap_or(false),
        lstrip: flag("lstrip").unwrap_or(false),
        rstrip: flag("rstrip").unwrap_or(false),
        normalized: flag("normalized").unwrap_or(!special),
        special,
    })
}

/// Returns the tokens of `added_tokens.json` in the order of their ids.
fn older_tokens(
    source: &Source<'_>,
    named: &[(String, AddedToken)],
    extra: &[AddedToken],
) -> Result<Vec<AddedToken>> {
    let Some(document) = source.json(ADDED_TOKENS)? else {
        return Ok(Vec::new());
    };
    let fields = document.fields()?;
    let mut tokens = BTreeMap::new();
    for content in fields.keys() {
        let special = named
            .iter()
            .map(|(_, token)| token)
            .chain(extra)
            .any(|token| token.content == *content);
        tokens.insert(fields.count(content)?, AddedToken::from(content, special));
    }
    Ok(tokens.into_values().collect())
}
