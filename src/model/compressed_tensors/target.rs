//! Reads the `targets` and `ignore` lists: modules by their name, by a pattern (`re:…`) of their name, or by their
//! class.

use std::cmp::Ordering;

use fancy_regex::Regex;
use serde_json::Value;

use super::super::fields::Fields;
use crate::error::Result;

/// Classes of a linear layer.
const CLASSES: [&str; 2] = ["Linear", "Module"];

/// An entry of a list.
#[derive(Debug)]
pub(super) struct Target {
    text: String,
    /// Pattern, if the text begins with `re:`.
    pattern: Option<Regex>,
}

impl Target {
    fn new(text: &str) -> std::result::Result<Self, Box<fancy_regex::Error>> {
        let pattern = match text.strip_prefix("re:") {
            // Like Python's `re.match`: from the start, but not to the end.
            Some(pattern) => Some(Regex::new(&format!("^(?:{pattern})"))?),
            None => None,
        };
        Ok(Self {
            text: text.to_owned(),
            pattern,
        })
    }

    pub(super) fn is_name(&self, module: &str) -> bool {
        self.text == module
    }

    pub(super) fn is_pattern_of(&self, module: &str) -> bool {
        let matches = |pattern: &Regex| pattern.is_match(module).unwrap_or(false);
        self.pattern.as_ref().is_some_and(matches)
    }

    pub(super) fn is_class(&self) -> bool {
        CLASSES.contains(&self.text.as_str())
    }
}

impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Target {}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Target {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

/// Reads the list under `key`. Returns an empty list if there is none.
pub(super) fn list(fields: &Fields<'_>, key: &str) -> Result<Vec<Target>> {
    let entries = match fields.get(key) {
        None => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(other) => return Err(fields.unexpected(key, other, "a list of strings")),
    };
    let entry = |entry: &Value| match entry.as_str() {
        Some(text) => Target::new(text).map_err(|error| {
            fields.error(
                key,
                format_args!("has a pattern that is not supported, {text}: {error}"),
            )
        }),
        None => Err(fields.unexpected(key, entry, "a list of strings")),
    };
    entries.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_match_as_python_does() {
        let target = |text: &str| Target::new(text).unwrap();
        let name = "vit.layers.0.mlp.fc1";
        assert!(target(name).is_name(name) && !target("vit.layers.0.mlp").is_name(name));
        for (pattern, expected) in [
            ("re:.*fc1", true),
            ("re:vit.layers", true),
            ("re:layers", false),
            (r"re:.*\.fc[12]$", true),
            ("re:^(?!.*attention).*", true),
            ("re:^(?!.*mlp).*", false),
            ("re:fc1|vit", true),
            (".*fc1", false),
        ] {
            assert_eq!(target(pattern).is_pattern_of(name), expected, "{pattern}");
        }
        assert!(target("Linear").is_class() && !target("ViTLayer").is_class());
        assert!(Target::new("re:(").is_err());
    }
}
