//! Reads SentencePiece models of SigLIP's kind: converts `spiece.model` to a tokenizer of the `tokenizers` crate.

use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::Precompiled;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::processors::template::TemplateProcessing;
use tokenizers::{PreTokenizerWrapper, Tokenizer};

use super::guard::shortened;
use super::limits;
use crate::model::invalid::Invalid;

/// Field numbers of the messages in the file.
const PIECES: u32 = 1;
const TRAINER: u32 = 2;
const NORMALIZER: u32 = 3;
/// Supported types of pieces: normal, unknown and control.
const TYPES: std::ops::RangeInclusive<u64> = 1..=3;
const UNKNOWN: u64 = 2;
/// Maximum number of pieces. Gemma's model has 256,000.
const MAX_PIECES: usize = 1 << 20;

/// Creates the tokenizer of a unigram model. It appends the token `end` to each text.
///
/// # Errors
///
/// Returns the reason if the file is damaged or not supported.
pub(super) fn tokenizer(bytes: &[u8], end: &str) -> Result<Tokenizer, Invalid> {
    let damaged = || "is not a SentencePiece model, or is damaged".to_owned();
    let mut pieces = Vec::new();
    let mut unknown = None;
    let mut charsmap: &[u8] = &[];
    for field in fields(bytes) {
        let (number, value) = field.ok_or_else(damaged)?;
        match (number, value) {
            (PIECES, Value::Bytes(bytes)) => {
                let (piece, score, kind) = piece(bytes).ok_or_else(damaged)?;
                if !TYPES.contains(&kind) {
                    return Err(format!(
                        "has the piece \"{}\" of type {kind}; user-defined, unused and byte pieces are not supported",
                        shortened(&piece)
                    ).into());
                }
                if kind == UNKNOWN {
                    unknown = Some(pieces.len());
                }
                pieces.push((piece, f64::from(score)));
                if pieces.len() > MAX_PIECES {
                    return Err(format!("has more than {MAX_PIECES} pieces").into());
                }
            }
            // The type of the model, white space as a suffix, and unknown characters as bytes.
            (TRAINER, Value::Bytes(bytes)) => {
                check(
                    bytes,
                    &[
                        (3, 1, "model_type"),
                        (24, 0, "treat_whitespace_as_suffix"),
                        (35, 0, "byte_fallback"),
                    ],
                )
                .ok_or_else(damaged)??;
            }
            (NORMALIZER, Value::Bytes(bytes)) => {
                check(
                    bytes,
                    &[
                        (3, 1, "add_dummy_prefix"),
                        (4, 1, "remove_extra_whitespaces"),
                        (5, 1, "escape_whitespaces"),
                    ],
                )
                .ok_or_else(damaged)??;
                for field in fields(bytes) {
                    if let (2, Value::Bytes(bytes)) = field.ok_or_else(damaged)? {
                        charsmap = bytes;
                    }
                }
            }
            _ => {}
        }
    }
    limits::check_unigram(pieces.iter().map(|(piece, _)| piece.as_str()))?;
    let text = |error: tokenizers::Error| error.to_string();
    let end_id = pieces.iter().position(|(piece, _)| piece == end);
    let end_id = end_id.ok_or_else(|| format!("lacks the end token {end}"))?;
    let mut tokenizer = Tokenizer::new(Unigram::from(pieces, unknown, false).map_err(text)?);
    if !charsmap.is_empty() {
        limits::check_charsmap(charsmap)?;
        let normalizer = Precompiled::from(charsmap).map_err(|error| error.to_string())?;
        tokenizer.with_normalizer(Some(normalizer)).map_err(text)?;
    }
    let words: Vec<PreTokenizerWrapper> = vec![
        WhitespaceSplit.into(),
        Metaspace::new('▁', PrependScheme::Always, true).into(),
    ];
    let ends = TemplateProcessing::builder()
        .try_single(vec!["$A", end])
        .map_err(|error| error.to_string())?
        .special_tokens(vec![(end, end_id as u32)])
        .build()
        .map_err(|error| error.to_string())?;
    tokenizer
        .with_pre_tokenizer(Some(Sequence::new(words)))
        .with_post_processor(Some(ends));
    Ok(tokenizer)
}

/// Value of a field in a protocol buffer message.
enum Value<'a> {
    Number(u64),
    Float(f32),
    Bytes(&'a [u8]),
}

/// Iterates over the fields of a message. An item is `None` if it is damaged.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Option<(u32, Value<'_>)>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let field = field(&mut bytes);
        if field.is_none() {
            bytes = &[];
        }
        Some(field)
    })
}

fn field<'a>(bytes: &mut &'a [u8]) -> Option<(u32, Value<'a>)> {
    let tag = number(bytes)?;
    let value = match tag & 7 {
        0 => Value::Number(number(bytes)?),
        1 => {
            take(bytes, 8)?;
            Value::Number(0)
        }
        2 => {
            let length = usize::try_from(number(bytes)?).ok()?;
            Value::Bytes(take(bytes, length)?)
        }
        5 => Value::Float(f32::from_le_bytes(take(bytes, 4)?.try_into().ok()?)),
        _ => return None,
    };
    Some((u32::try_from(tag >> 3).ok()?, value))
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// Reads a number in base 128, lowest digit first.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Returns the text, score and type of a piece.
fn piece(bytes: &[u8]) -> Option<(String, f32, u64)> {
    let (mut text, mut score, mut kind) = (String::new(), 0.0, 1);
    for field in fields(bytes) {
        match field? {
            (1, Value::Bytes(bytes)) => text = str::from_utf8(bytes).ok()?.to_owned(),
            (2, Value::Float(value)) => score = value,
            (3, Value::Number(value)) => kind = value,
            _ => {}
        }
    }
    Some((text, score, kind))
}

/// Checks that numbers of a message have the supported values, which are their defaults. Returns `None` for a damaged
/// message.
fn check(bytes: &[u8], supported: &[(u32, u64, &str)]) -> Option<Result<(), Invalid>> {
    for field in fields(bytes) {
        let (number, value) = field?;
        let known = supported.iter().find(|(key, ..)| *key == number);
        if let (Some((_, expected, name)), Value::Number(value)) = (known, value)
            && value != *expected
        {
            return Some(Err(format!("has `{name}` {value}, which is not supported").into()));
        }
    }
    Some(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::tokenizer;

    /// Encodes a field of bytes in a message.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = bytes.len();
        let digits = [0, 7, 14].map(|shift| (length >> shift) as u8 & 0x7f);
        let length = [digits[0] | 0x80, digits[1] | 0x80, digits[2]];
        [&[number << 3 | 2], &length[..], bytes].concat()
    }

    /// Returns the error for a file with these pieces, if there is one.
    fn error<'a>(pieces: impl Iterator<Item = &'a str>) -> Option<String> {
        let pieces = pieces.chain(["</s>"]);
        let file: Vec<u8> = pieces
            .flat_map(|piece| field(1, &field(1, piece.as_bytes())))
            .collect();
        tokenizer(&file, "</s>").err().map(|reason| reason.to_string())
    }

    #[test]
    fn long_pieces_are_refused() {
        let long = "x".repeat(200_000);
        assert_eq!(error(["a", &long[..1024]].into_iter()), None);
        let reason = error(["a", &long].into_iter()).unwrap();
        assert_eq!(reason, "`vocab` has 200000 bytes in a piece, which exceeds 1024");
        let many: Vec<_> = (0..4096)
            .map(|index| format!("{index:0>8}") + &long[..1000])
            .collect();
        let reason = error(many.iter().map(String::as_str)).unwrap();
        assert!(reason.contains("prefixes of pieces"), "{reason}");
    }
}
