//! Reads and writes JSON as Python's `json` module does, with NaN, Infinity and -Infinity as numbers.
//!
//! A [`Value`] cannot represent these numbers. Each is stored as a string that begins with `MARK`. Readers that
//! expect a number reject the string, and [`text`] writes it as Python does.

use std::borrow::Cow;

use serde_json::Value;

/// Prefix of the strings that represent NaN, Infinity and -Infinity. Unicode assigns no character to this code point.
const MARK: char = '\u{fdd0}';
const NON_FINITE: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// The reason why a document is not JSON. The caller adds the file's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The document begins with a byte order mark.
    #[error("begins with a byte order mark, which JSON does not allow. Save it as UTF-8 without one.")]
    ByteOrderMark,
    /// The document is UTF-16.
    #[error("is UTF-16, and JSON files are UTF-8. Save it as UTF-8.")]
    Utf16,
    /// The document is not valid JSON.
    #[error("is not valid JSON: {0}")]
    Syntax(serde_json::Error),
}

/// Parses a JSON document. If a key occurs twice in an object, the last value counts.
///
/// # Errors
///
/// Returns a [`ParseError`] if the bytes are not valid JSON. Python's reader rejects the same bytes.
pub fn parse(bytes: &[u8]) -> Result<Value, ParseError> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err(ParseError::ByteOrderMark);
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(ParseError::Utf16);
    }
    let parsed =
        serde_json::from_slice(bytes).or_else(|error| match std::str::from_utf8(bytes).map(marked) {
            Ok(Cow::Owned(text)) => serde_json::from_str(&text),
            _ => Err(error),
        });
    parsed.map_err(ParseError::Syntax)
}

/// Serialises a value on one line, with NaN and infinities as Python writes them.
pub fn text(value: &Value) -> String {
    unmarked(value.to_string())
}

/// Serialises a value like [`text`], with one line per entry.
pub fn indented(value: &Value) -> String {
    unmarked(format!("{value:#}"))
}

/// Returns true if `text` represents NaN or an infinity.
pub fn is_non_finite(text: &str) -> bool {
    text.strip_prefix(MARK)
        .is_some_and(|number| NON_FINITE.contains(&number))
}

/// Returns true if the value is truthy in Python: anything but null, false, 0, and an empty string, array or object.
pub fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(entries) => !entries.is_empty(),
    }
}

/// Returns a string as it is, or a number or boolean as JSON text. Returns `None` for NaN, infinities, null, arrays and
/// objects.
pub fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) if !is_non_finite(text) => Some(text.into()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string().into()),
        _ => None,
    }
}

/// Replaces each NaN, Infinity and -Infinity outside of strings by a marked string.
fn marked(text: &str) -> Cow<'_, str> {
    let mut output = String::new();
    let (mut rest, mut in_string) = (text, false);
    while let Some(at) = rest.find(['"', '\\', 'N', 'I', '-']) {
        let (before, from) = rest.split_at(at);
        output.push_str(before);
        let length = match from.as_bytes()[0] {
            b'"' => {
                in_string = !in_string;
                1
            }
            // Skip the escaped character, which may be longer than a byte.
            b'\\' => 1 + from[1..].chars().next().map_or(0, char::len_utf8),
            _ if in_string => 1,
            _ => {
                if let Some(number) = NON_FINITE.iter().find(|number| from.starts_with(**number)) {
                    let after = &from[number.len()..];
                    // A key must already be a string, so leave the text for the parser to reject.
                    if !after.trim_start().starts_with(':') {
                        output.extend(["\"", MARK.encode_utf8(&mut [0; 3]), number, "\""]);
                        rest = after;
                        continue;
                    }
                }
                1
            }
        };
        output.push_str(&from[..length]);
        rest = &from[length..];
    }
    if output.contains(MARK) {
        output.push_str(rest);
        Cow::Owned(output)
    } else {
        Cow::Borrowed(text)
    }
}

fn unmarked(text: String) -> String {
    if text.contains(MARK) {
        let replace = |text: String, number: &&str| text.replace(&format!("\"{MARK}{number}\""), number);
        NON_FINITE.iter().fold(text, replace)
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_python_writes_are_kept_and_written_back() {
        let source = r#"{"a":NaN,"b":[1.5,-Infinity,Infinity,-2],"c":"NaN, \"Infinity\\","d":{"NaN":"é\\"}}"#;
        let value = parse(source.as_bytes()).unwrap();
        assert_eq!(text(&value), source);
        assert_eq!(parse(indented(&value).as_bytes()).unwrap(), value);
        assert_eq!((value["a"].as_f64(), &value["b"][3]), (None, &Value::from(-2)));
        assert!(is_non_finite(value["a"].as_str().unwrap()));
        // Text inside a string is not replaced.
        assert_eq!(value["c"], "NaN, \"Infinity\\");
        assert_eq!(value["d"]["NaN"], "é\\");
        assert!(!is_non_finite("NaN"));
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        assert_eq!(parse(br#"{"a": 1, "a": NaN, "a": 3}"#).unwrap()["a"], 3);
        assert_eq!(
            parse(br#"{"a": {"b": 1}, "a": {}}"#).unwrap()["a"],
            Value::Object(<_>::default())
        );
    }

    #[test]
    fn what_python_refuses_is_refused() {
        let sources = [
            "nan",
            "NAN",
            "infinity",
            "Inf",
            "+Infinity",
            "-NaN",
            "- Infinity",
            "1NaN",
            "NaN1",
            "[NaN",
            "{NaN}",
            "{NaN : NaN}",
            "{'a': NaN}",
            "[NaN,]",
            "// NaN\n1",
            "\"NaN",
            "",
        ];
        for source in sources {
            assert!(
                parse(source.as_bytes())
                    .unwrap_err()
                    .to_string()
                    .starts_with("is not valid JSON: "),
                "{source}"
            );
        }
        let utf_16: Vec<u8> = "\u{feff}{}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (bytes, reason) in [
            (&b"\xef\xbb\xbf{}"[..], "begins with a byte order mark"),
            (&utf_16, "is UTF-16"),
            (b"{\"a\": \"\xff\"}", "is not valid JSON"),
        ] {
            let error = parse(bytes).unwrap_err();
            assert!(error.to_string().starts_with(reason), "{error}");
        }
    }
}
