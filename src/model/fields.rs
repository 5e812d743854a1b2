//! Typed access to the keys of a JSON configuration. Every error names the file and the key.

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use hipvit_files::json;

/// Maximum size in a configuration. The product of two sizes cannot overflow.
const LARGEST: u64 = 1 << 20;

/// One JSON object of a configuration file.
///
/// A key that is `null` counts as absent. Values of an unexpected type or size are an [`Error::Config`] that names the file and the key.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    file: &'a Path,
    parent: Option<&'a str>,
    /// `None` for an object that does not exist. All of its keys are absent.
    map: Option<&'a Map<String, Value>>,
    /// True if the typed getters return an error for a key that is `null`.
    refuses_null: bool,
}

impl<'a> Fields<'a> {
    /// Creates the fields of the top-level object of `file`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if it is not a JSON object.
    pub fn new(file: &'a Path, document: &'a Value) -> Result<Self> {
        match document {
            Value::Object(map) => Ok(Self {
                file,
                parent: None,
                map: Some(map),
                refuses_null: false,
            }),
            _ => Err(Error::config(file, "is not a JSON object")),
        }
    }

    /// Returns the object under `key`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the value is not an object.
    pub fn object(&self, key: &'a str) -> Result<Option<Self>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Self {
                file: self.file,
                parent: Some(key),
                map: Some(map),
                ..*self
            })),
            Some(other) => Err(self.unexpected(key, other, "an object")),
        }
    }

    /// Returns the object under `key`, or an empty one.
    pub(super) fn object_or_empty(&self, key: &'a str) -> Result<Self> {
        let empty = Self {
            parent: Some(key),
            map: None,
            ..*self
        };
        Ok(self.object(key)?.unwrap_or(empty))
    }

    /// Returns the object with typed getters that return an error for a key that is `null`.
    ///
    /// [`get`](Self::get), [`object`](Self::object) and [`object_or_empty`](Self::object_or_empty) still treat it as
    /// absent.
    pub(super) fn refusing_null(self) -> Self {
        Self {
            refuses_null: true,
            ..self
        }
    }

    /// Returns the object with typed getters that treat a key that is `null` as absent.
    pub(super) fn accepting_null(self) -> Self {
        Self {
            refuses_null: false,
            ..self
        }
    }

    /// Returns an error about `key`.
    pub fn error(&self, key: &str, reason: impl std::fmt::Display) -> Error {
        match self.parent {
            Some(parent) => Error::config(self.file, format!("`{parent}.{key}` {reason}")),
            None => Error::config(self.file, format!("`{key}` {reason}")),
        }
    }

    /// Returns the path of the configuration file.
    pub fn file(&self) -> &'a Path {
        self.file
    }

    /// Returns the value of `key`, if it is present and not `null`.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.map?.get(key).filter(|value| !value.is_null())
    }

    /// Returns true if `key` is present, even if it is `null`.
    pub fn has(&self, key: &str) -> bool {
        self.map.is_some_and(|map| map.contains_key(key))
    }

    /// Iterates over all keys, including those that are `null`.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map.into_iter().flat_map(Map::keys).map(String::as_str)
    }

    /// Reads a whole number of at least 1.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for another value, or one above 2^20.
    pub fn size(&self, key: &str) -> Result<Option<usize>> {
        match self.count(key)? {
            Some(0) => Err(self.error(key, "is 0")),
            size => Ok(size),
        }
    }

    /// Reads a whole number, which may be 0.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for another value, or one above 2^20.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        let value = self.typed(key, "a whole number")?;
        value.map(|value| self.whole(key, value)).transpose()
    }

    /// Reads height and width: a pair, or one number for both.
    pub(super) fn extent(&self, key: &str) -> Result<Option<[usize; 2]>> {
        let positive = |value: &Value| match self.whole(key, value)? {
            0 => Err(self.error(key, "is 0")),
            size => Ok(size),
        };
        match self.typed(key, "a whole number")? {
            None => Ok(None),
            Some(Value::Array(pair)) => match pair.as_slice() {
                [height, width] => Ok(Some([positive(height)?, positive(width)?])),
                _ => Err(self.error(key, "is not a pair of height and width")),
            },
            Some(value) => positive(value).map(|size| Some([size, size])),
        }
    }

    /// Reads a list of whole numbers, which may be 0.
    pub(super) fn counts(&self, key: &str) -> Result<Option<Vec<usize>>> {
        match self.typed(key, "a list of whole numbers")? {
            None => Ok(None),
            Some(Value::Array(list)) => {
                let counts = list.iter().map(|value| self.whole(key, value));
                counts.collect::<Result<_>>().map(Some)
            }
            Some(other) => Err(self.unexpected(key, other, "a list of whole numbers")),
        }
    }

    /// Reads a list of whole numbers of at least 1.
    pub fn sizes(&self, key: &str) -> Result<Option<Vec<usize>>> {
        match self.counts(key)? {
            Some(sizes) if sizes.contains(&0) => Err(self.error(key, "has a 0")),
            sizes => Ok(sizes),
        }
    }

    /// Reads a finite number.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for another value.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number")?
            .map(|value| {
                value
                    .as_f64()
                    .ok_or_else(|| self.unexpected(key, value, "a number"))
            })
            .transpose()
    }

    /// Reads a number from 0 to 1024: the width of a layer as a multiple of another width.
    pub(super) fn ratio(&self, key: &str) -> Result<Option<f64>> {
        match self.number(key)? {
            Some(ratio) if !(0.0..=1024.0).contains(&ratio) => {
                Err(self.error(key, format_args!("is {ratio}, expected a number from 0 to 1024")))
            }
            ratio => Ok(ratio),
        }
    }

    /// Reads `true` or `false`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for another value.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false")?
            .map(|value| {
                value
                    .as_bool()
                    .ok_or_else(|| self.unexpected(key, value, "true or false"))
            })
            .transpose()
    }

    /// Reads a string.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for another value.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string")?
            .map(|value| {
                value
                    .as_str()
                    .filter(|text| !json::is_non_finite(text))
                    .ok_or_else(|| self.unexpected(key, value, "a string"))
            })
            .transpose()
    }

    /// Returns an error that says what value `key` should have.
    pub(super) fn unexpected(&self, key: &str, value: &Value, expected: &str) -> Error {
        let shown: String = json::text(value).chars().take(40).collect();
        self.error(key, format_args!("is {shown}, expected {expected}"))
    }

    /// Returns the value of `key` for a typed getter.
    fn typed(&self, key: &str, expected: &str) -> Result<Option<&'a Value>> {
        match self.get(key) {
            None if self.refuses_null && self.has(key) => Err(self.unexpected(key, &Value::Null, expected)),
            value => Ok(value),
        }
    }

    fn whole(&self, key: &str, value: &Value) -> Result<usize> {
        match value.as_u64() {
            Some(size) if size <= LARGEST => Ok(size as usize),
            Some(_) => Err(self.unexpected(key, value, "at most 2^20")),
            None => Err(self.unexpected(key, value, "a whole number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_named_with_its_file_and_key() {
        let document = serde_json::json!({
            "vision_config": { "hidden_size": "abc", "depth": 0, "image_size": [1, 2, 3], "huge": 1u64 << 40, "none": null }
        });
        let file = Path::new("dir/config.json");
        let top = Fields::new(file, &document).unwrap();
        let vision = top.object("vision_config").unwrap().unwrap();
        let messages = [
            vision.size("hidden_size").unwrap_err(),
            vision.size("depth").unwrap_err(),
            vision.extent("image_size").unwrap_err(),
            vision.count("huge").unwrap_err(),
        ]
        .map(|error| error.to_string());
        assert_eq!(
            messages,
            [
                "dir/config.json: `vision_config.hidden_size` is \"abc\", expected a whole number",
                "dir/config.json: `vision_config.depth` is 0",
                "dir/config.json: `vision_config.image_size` is not a pair of height and width",
                "dir/config.json: `vision_config.huge` is 1099511627776, expected at most 2^20",
            ]
        );
        assert_eq!(vision.size("none").unwrap(), None);
        assert!(vision.has("none") && !vision.has("absent"));
        let strict = top.refusing_null().object("vision_config").unwrap().unwrap();
        assert_eq!(
            strict.flag("none").unwrap_err().to_string(),
            "dir/config.json: `vision_config.none` is null, expected true or false"
        );
        assert_eq!(strict.flag("absent").unwrap(), None);
        assert_eq!(strict.accepting_null().flag("none").unwrap(), None);
        assert!(Fields::new(file, &serde_json::json!([])).is_err());
    }
}
