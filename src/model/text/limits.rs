//! Limits on the files of a tokenizer. The `tokenizers` crate has none, and allocates whatever a file repeats or
//! multiplies.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use tokenizers::AddedToken;

use super::charsmap;
use crate::model::invalid::Invalid;

/// Maximum size of `tokenizer.json` in bytes. Gemma's has 34 MB.
pub(super) const MAX_FILE: u64 = 64 << 20;
/// Maximum size of `spiece.model`, `vocab.json` and `merges.txt` in bytes.
pub(super) const MAX_VOCABULARY_FILE: u64 = 16 << 20;
/// Maximum number of JSON values in a vocabulary with its merges. Gemma's has 2 million.
const MAX_VOCABULARY: usize = 4 << 20;
/// Maximum length of a piece of a vocabulary in bytes. The crate descends a Unigram model's pieces byte by byte,
/// recursively.
const MAX_PIECE: usize = 1 << 10;
/// Maximum number of bytes of all pieces of a vocabulary. Gemma's have 2 million.
const MAX_PIECES: usize = 8 << 20;
/// Maximum number of different prefixes of a Unigram model's pieces.
///
/// The crate makes a hash table of some 300 bytes for each prefix. Vocabularies of 250,000 pieces in many languages
/// have about one million.
const MAX_PREFIXES: usize = 2 << 20;
/// Maximum number of JSON values in each other part of a file.
const MAX_VALUES: usize = 1 << 18;
/// Maximum number of bytes of all added tokens.
const MAX_ADDED: usize = 1 << 20;
/// Maximum number of bytes that the steps before the vocabulary produce from one byte.
const MAX_GROWTH: usize = 2048;
/// Maximum depth of nested sequences.
const MAX_DEPTH: usize = 8;

/// Parts of `tokenizer.json`, each as a `T`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Parts<T: Default> {
    truncation: T,
    padding: T,
    added_tokens: T,
    normalizer: T,
    pre_tokenizer: T,
    post_processor: T,
    decoder: T,
    model: T,
}

/// Parts whose values matter.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Steps<'a> {
    added_tokens: Value,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    #[serde(borrow)]
    model: Model<'a>,
}

/// Vocabulary of a model.
#[derive(Default)]
struct Model<'a>(Vocabulary<'a>);

/// Pieces of a vocabulary.
#[derive(Default)]
struct Vocabulary<'a> {
    pieces: Vec<Cow<'a, str>>,
    /// True for an array of pieces with scores, which only Unigram models have.
    is_unigram: bool,
}

impl Vocabulary<'_> {
    fn check(&self) -> Result<(), Invalid> {
        let pieces = self.pieces.iter().map(Cow::as_ref);
        if self.is_unigram {
            check_unigram(pieces)
        } else {
            check_pieces(pieces)
        }
    }
}

/// Checks a `tokenizer.json` before the `tokenizers` crate reads it.
///
/// # Errors
///
/// Returns the reason why the file is rejected.
pub(super) fn check(bytes: &[u8]) -> Result<(), Invalid> {
    let fault = |error: &dyn fmt::Display| format!("is not a tokenizer: {error}");
    // serde_json does not check UTF-8 in values that it skips, on which the crate panics.
    let text = str::from_utf8(bytes).map_err(|error| fault(&error))?;
    let counts: Parts<Count> = serde_json::from_str(text).map_err(|error| fault(&error))?;
    within("model", counts.model.0, MAX_VOCABULARY, "values")?;
    let others = [
        counts.truncation,
        counts.padding,
        counts.added_tokens,
        counts.normalizer,
        counts.pre_tokenizer,
        counts.post_processor,
        counts.decoder,
    ];
    let count = others.into_iter().map(|count| count.0).sum();
    within("pipeline", count, MAX_VALUES, "values")?;
    let steps: Steps<'_> = serde_json::from_str(text).map_err(|error| fault(&error))?;
    steps.model.0.check()?;
    if let Value::Array(tokens) = &steps.added_tokens {
        let contents = tokens.iter().filter_map(|token| token.get("content")?.as_str());
        within("added_tokens", contents.map(str::len).sum(), MAX_ADDED, "bytes")?;
    }
    let growth =
        [&steps.normalizer, &steps.pre_tokenizer]
            .into_iter()
            .try_fold(1, |growth: usize, part| {
                let of_part = growth_of(part, MAX_DEPTH)?;
                Ok::<_, Invalid>(growth.saturating_mul(of_part))
            })?;
    if growth > MAX_GROWTH {
        return Err(format!(
            "has a `normalizer` or `pre_tokenizer` by which a byte of a text may become more than {MAX_GROWTH} bytes"
        ).into());
    }
    check_templates(&steps.post_processor, MAX_DEPTH)
}

/// Checks the number of JSON values and the pieces of a `vocab.json`.
///
/// # Errors
///
/// Returns the reason why the file is rejected.
pub(super) fn check_vocabulary(bytes: &[u8]) -> Result<(), Invalid> {
    let fault = |error| format!("is not a vocabulary: {error}");
    let count: Count = serde_json::from_slice(bytes).map_err(fault)?;
    within("vocabulary", count.0, MAX_VOCABULARY, "values")?;
    let vocabulary: Vocabulary<'_> = serde_json::from_slice(bytes).map_err(fault)?;
    vocabulary.check()
}

/// Checks the pieces of a Unigram model.
///
/// # Errors
///
/// Returns the reason why they are rejected.
pub(super) fn check_unigram<'a>(pieces: impl Iterator<Item = &'a str> + Clone) -> Result<(), Invalid> {
    check_pieces(pieces.clone())?;
    let mut sorted: Vec<&[u8]> = pieces.map(str::as_bytes).collect();
    sorted.sort_unstable();
    let mut prefixes = 0;
    let mut last: &[u8] = &[];
    for piece in sorted {
        let shared = piece.iter().zip(last).take_while(|(a, b)| a == b).count();
        prefixes += piece.len() - shared;
        last = piece;
    }
    within("vocab", prefixes, MAX_PREFIXES, "prefixes of pieces")
}

/// Checks the lengths of a vocabulary's pieces.
fn check_pieces<'a>(pieces: impl Iterator<Item = &'a str> + Clone) -> Result<(), Invalid> {
    let lengths = pieces.map(str::len);
    let longest = lengths.clone().max().unwrap_or(0);
    within("vocab", longest, MAX_PIECE, "bytes in a piece")?;
    within("vocab", lengths.sum(), MAX_PIECES, "bytes in its pieces")
}

/// Checks the tokens that are added to a tokenizer.
///
/// # Errors
///
/// Returns the reason why they are rejected.
pub(super) fn check_added(tokens: &[AddedToken]) -> Result<(), Invalid> {
    let bytes = tokens.iter().map(|token| token.content.len()).sum();
    within("added_tokens", bytes, MAX_ADDED, "bytes")
}

/// Checks SentencePiece's compiled normalisation rules. Returns the maximum number of bytes that they produce from one
/// byte.
///
/// # Errors
///
/// Returns the reason why they are rejected.
pub(super) fn check_charsmap(rules: &[u8]) -> Result<usize, Invalid> {
    let longest = charsmap::longest_replacement(rules).ok_or(charsmap::DAMAGED)?;
    within(
        "precompiled_charsmap",
        longest,
        MAX_GROWTH,
        "bytes in a replacement",
    )?;
    Ok(longest)
}

fn within(part: &str, count: usize, limit: usize, unit: &str) -> Result<(), Invalid> {
    if count > limit {
        return Err(format!("`{part}` has {count} {unit}, which exceeds {limit}").into());
    }
    Ok(())
}

fn too_deep() -> Invalid {
    format!("has sequences in sequences deeper than {MAX_DEPTH}").into()
}

/// Returns the maximum number of bytes that a normalizer or pre-tokenizer produces from one byte.
fn growth_of(step: &Value, depth: usize) -> Result<usize, Invalid> {
    if step.is_null() {
        return Ok(1);
    }
    let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
    let text = |key: &str| step.get(key).and_then(Value::as_str);
    let mut growth: usize = 1;
    for key in ["normalizers", "pretokenizers"] {
        if let Some(Value::Array(steps)) = step.get(key) {
            for step in steps {
                growth = growth.saturating_mul(growth_of(step, depth)?);
            }
        }
    }
    if let Some(rules) = text("precompiled_charsmap") {
        let rules = STANDARD.decode(rules).map_err(|_| charsmap::DAMAGED)?;
        growth = growth.saturating_mul(check_charsmap(&rules)?.max(1));
    }
    if let Some(content) = text("content") {
        let pattern = step
            .get("pattern")
            .and_then(|pattern| pattern.get("String")?.as_str());
        growth = growth.saturating_mul(match pattern.map_or(0, str::len) {
            // An expression may match between all bytes.
            0 if content.is_empty() => 1,
            0 => content.len() + 1,
            pattern => content.len().div_ceil(pattern).max(1),
        });
    }
    if let Some(prefix) = text("prepend") {
        growth = growth.saturating_mul(prefix.len() + 1);
    }
    Ok(match text("type") {
        // Two bytes for one byte, doubled for the space before the text.
        Some("ByteLevel") => growth.saturating_mul(4),
        // Three bytes for a space, doubled for the three bytes before the text.
        Some("Metaspace") => growth.saturating_mul(6),
        _ => growth,
    })
}

/// Checks that no template repeats the text. The crate would combine all parts of each occurrence with all parts of the
/// other.
fn check_templates(processor: &Value, depth: usize) -> Result<(), Invalid> {
    if processor.is_null() {
        return Ok(());
    }
    let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
    if let Some(Value::Array(processors)) = processor.get("processors") {
        for processor in processors {
            check_templates(processor, depth)?;
        }
    }
    let Some(Value::Array(pieces)) = processor.get("single") else {
        return Ok(());
    };
    let mut texts = pieces.iter().filter_map(|piece| piece.get("Sequence"));
    if texts
        .clone()
        .any(|text| text.get("id").is_none_or(|id| id != "A"))
    {
        return Err("has a template for one text with a second one. `single` may name `A` alone".into());
    }
    if texts.nth(1).is_some() {
        return Err("has a template that repeats the text. `single` may name `A` once".into());
    }
    Ok(())
}

/// Number of values in a JSON value, which is discarded.
#[derive(Clone, Copy, Default)]
struct Count(usize);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Counter)
    }
}

struct Counter;

impl<'de> Visitor<'de> for Counter {
    type Value = Count;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Count, E> {
        Ok(Count(1))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Count, E> {
        Ok(Count(1))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Count, E> {
        Ok(Count(1))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Count, E> {
        Ok(Count(1))
    }

    fn visit_str<E>(self, _: &str) -> Result<Count, E> {
        Ok(Count(1))
    }

    fn visit_unit<E>(self) -> Result<Count, E> {
        Ok(Count(1))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Count, A::Error> {
        let mut count = 1;
        while let Some(value) = values.next_element::<Count>()? {
            count += value.0;
        }
        Ok(Count(count))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Count, A::Error> {
        let mut count = 1;
        while values.next_key::<IgnoredAny>()?.is_some() {
            count += values.next_value::<Count>()?.0;
        }
        Ok(Count(count))
    }
}

/// A string, borrowed if JSON has it without escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Model<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ModelVisitor)
    }
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = Model<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Model<'de>, A::Error> {
        let mut model = Model::default();
        while let Some(Text(key)) = values.next_key()? {
            if key == "vocab" {
                // The crate also takes the last one.
                model = Model(values.next_value()?);
            } else {
                values.next_value::<IgnoredAny>()?;
            }
        }
        Ok(model)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Vocabulary<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(VocabularyVisitor)
    }
}

struct VocabularyVisitor;

impl<'de> Visitor<'de> for VocabularyVisitor {
    type Value = Vocabulary<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pieces with their ids or scores")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Vocabulary<'de>, A::Error> {
        let mut pieces = Vec::new();
        while let Some((Text(piece), IgnoredAny)) = values.next_element()? {
            pieces.push(piece);
        }
        Ok(Vocabulary {
            pieces,
            is_unigram: true,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<Vocabulary<'de>, A::Error> {
        let mut pieces = Vec::new();
        while let Some((Text(piece), IgnoredAny)) = values.next_entry()? {
            pieces.push(piece);
        }
        Ok(Vocabulary {
            pieces,
            is_unigram: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(parts: &Value) -> String {
        let text = parts.to_string();
        check(text.as_bytes())
            .err()
            .map_or(String::new(), |reason| reason.to_string())
    }

    #[test]
    fn usual_tokenizers_are_within_the_limits() {
        let unigram = json!({
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Lowercase"},
                {"type": "Replace", "pattern": {"Regex": "[!\"#$%]"}, "content": ""},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
                {"type": "Prepend", "prepend": "▁"},
            ]},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
            ]},
            "post_processor": {"type": "TemplateProcessing", "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "</s>", "type_id": 0}},
            ]},
        });
        assert_eq!(refused(&unigram), "");
        assert_eq!(refused(&json!({})), "");
    }

    #[test]
    fn steps_that_multiply_a_text_are_refused() {
        let twice = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
        let often = |step: &Value, count: usize| json!({"type": "Sequence", "normalizers": vec![step.clone(); count]});
        for normalizer in [
            often(&twice, 40),
            often(&often(&twice, 4), 4),
            json!({"type": "Prepend", "prepend": "x".repeat(4096)}),
            json!({"type": "Replace", "pattern": {"Regex": "^|$"}, "content": "x".repeat(4096)}),
            json!({"type": "Replace", "pattern": {"String": ""}, "content": "x".repeat(4096)}),
            json!({"pattern": {"String": "a"}, "content": "x".repeat(4096)}),
            often(&json!({"type": "ByteLevel"}), 40),
        ] {
            let reason = refused(&json!({"normalizer": normalizer}));
            assert!(reason.contains("may become more than"), "{reason}");
        }
        let levels = vec![json!({"type": "ByteLevel", "add_prefix_space": true}); 6];
        let reason = refused(&json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": levels}}));
        assert!(reason.contains("may become more than"), "{reason}");
        // Each growth is below the limit, but not their product.
        let normalizer = often(&twice, 10);
        assert_eq!(refused(&json!({"normalizer": normalizer})), "");
        let both = json!({"normalizer": normalizer, "pre_tokenizer": {"type": "Metaspace"}});
        assert!(refused(&both).contains("may become more than"));
    }

    #[test]
    fn templates_that_repeat_the_text_are_refused() {
        let template = |ids: &[&str]| {
            let pieces: Vec<Value> = ids
                .iter()
                .map(|id| json!({"Sequence": {"id": id, "type_id": 0}}))
                .collect();
            json!({"type": "TemplateProcessing", "single": pieces})
        };
        let processed = |processor: Value| refused(&json!({"post_processor": processor}));
        assert_eq!(processed(template(&["A"])), "");
        assert!(processed(template(&["A", "A"])).contains("repeats the text"));
        assert!(processed(template(&["B"])).contains("second one"));
        let nested = json!({"type": "Sequence", "processors": [template(&["A"]), template(&["A", "A"])]});
        assert!(processed(nested).contains("repeats the text"));
    }

    #[test]
    fn parts_of_many_values_are_refused() {
        let many = |count| Value::from(vec![Value::Array(Vec::new()); count]);
        for part in ["truncation", "padding", "normalizer", "pre_tokenizer", "decoder"] {
            let reason = refused(&json!({ part: many(MAX_VALUES) }));
            assert!(
                reason.starts_with("`pipeline` has 262145 values"),
                "{part}: {reason}"
            );
        }
        let vocabulary = format!("[{}0]", "0,".repeat(MAX_VOCABULARY));
        assert!(
            check_vocabulary(vocabulary.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("exceeds")
        );
        assert!(check(format!("{{\"model\":{vocabulary}}}").as_bytes()).is_err());
        let tokens = json!([{"content": "x".repeat(MAX_ADDED)}, {"content": "y"}]);
        assert!(refused(&json!({"added_tokens": tokens})).contains("1048577 bytes"));
    }

    #[test]
    fn sequences_are_not_followed_without_a_limit() {
        for (part, key) in [
            ("normalizer", "normalizers"),
            ("pre_tokenizer", "pretokenizers"),
            ("post_processor", "processors"),
        ] {
            let nested =
                (0..MAX_DEPTH).fold(json!({"type": "Lowercase"}), |inner, _| json!({ key: [inner] }));
            assert!(
                refused(&json!({ part: nested })).contains("deeper than 8"),
                "{part}"
            );
        }
    }

    /// Returns pieces of the given length. Their only common prefixes are those of their numbers.
    fn pieces(count: usize, length: usize) -> Vec<String> {
        (0..count)
            .map(|index| format!("{index:0>8}") + &"x".repeat(length - 8))
            .collect()
    }

    #[test]
    fn pieces_that_take_too_much_memory_are_refused() {
        let unigram = |pieces: &[String]| {
            let pieces: Vec<_> = pieces.iter().map(|piece| json!([piece, -5.0])).collect();
            refused(&json!({"model": {"type": "Unigram", "vocab": pieces}}))
        };
        let map = |pieces: &[String]| {
            let pieces = pieces.iter().enumerate();
            let pieces: serde_json::Map<_, _> =
                pieces.map(|(id, piece)| (piece.clone(), id.into())).collect();
            let vocabulary = Value::from(pieces);
            let alone = check_vocabulary(vocabulary.to_string().as_bytes());
            let reason = refused(&json!({"model": {"vocab": vocabulary}}));
            assert_eq!(
                alone.err().map_or(String::new(), |reason| reason.to_string()),
                reason
            );
            reason
        };
        for check in [&unigram as &dyn Fn(&[String]) -> String, &map] {
            assert_eq!(check(&pieces(2, MAX_PIECE)), "");
            assert_eq!(
                check(&pieces(1, MAX_PIECE + 1)),
                "`vocab` has 1025 bytes in a piece, which exceeds 1024"
            );
            let reason = check(&pieces(8193, MAX_PIECE));
            assert_eq!(
                reason,
                "`vocab` has 8389632 bytes in its pieces, which exceeds 8388608"
            );
        }
        let many = pieces(4096, MAX_PIECE);
        assert_eq!(map(&many), "");
        let reason = unigram(&many);
        assert!(
            reason.contains("prefixes of pieces, which exceeds 2097152"),
            "{reason}"
        );
        // Pieces that are equal share their prefixes.
        assert_eq!(unigram(&vec!["x".repeat(MAX_PIECE); 4096]), "");
    }

    #[test]
    fn the_last_vocabulary_of_a_model_counts() {
        let long = format!(r#"{{"{}": 0}}"#, "x".repeat(MAX_PIECE + 1));
        let model = format!(r#"{{"model": {{"vocab": {{}}, "\u0076ocab": {long}}}}}"#);
        assert!(
            check(model.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("bytes in a piece")
        );
    }

    #[test]
    fn what_serde_json_skips_is_checked() {
        assert!(check(b"{\"decoder\": {\"type\": \"\xb5\"}}").is_err());
        assert!(check(b"{\"decoder\": {\"type\": }}").is_err());
        assert!(check(b"{\"normalizer\": null, \"normalizer\": null}").is_err());
    }
}
