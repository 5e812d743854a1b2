//! Replacement of the matches of a regular expression.

use fancy_regex::Regex;

/// An error of a regular expression, such as a text that takes too many steps.
pub(in crate::model::text) type Fault = Box<fancy_regex::Error>;

/// Replaces each match of `expression` in the text by the result of `replace`.
pub(super) fn replaced(
    expression: &Regex,
    text: &str,
    mut replace: impl FnMut(&str) -> std::result::Result<String, Fault>,
) -> std::result::Result<String, Fault> {
    let mut result = String::with_capacity(text.len());
    let mut end = 0;
    for found in expression.find_iter(text) {
        let found = found?;
        result += &text[end..found.start()];
        result += &replace(found.as_str())?;
        end = found.end();
    }
    result += &text[end..];
    Ok(result)
}
