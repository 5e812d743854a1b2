//! Reads labels from text and JSON files.

use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use super::{LabelSource, Labels};
use crate::error::{Error, Result};
use hipvit_files::encoding::to_utf8;
use hipvit_files::regular_file;

/// Maximum size of a file in bytes. The names of ImageNet-21k take less than a megabyte.
const LARGEST: u64 = 64 << 20;

impl Labels {
    /// Reads labels from a text or JSON file.
    ///
    /// Text has one label per line, in the order of the logits. If every line has a tab, it separates an id from the
    /// label.
    ///
    /// JSON has one of these forms:
    ///
    /// - a list of labels
    /// - an object by index: `{"0": "cat"}`, or `{"0": ["n02121808", "cat"]}` with ids
    /// - an object by label: `{"cat": 0}`
    /// - a transformers configuration with `id2label`
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] or [`Error::Config`]. Both name `file`; the latter also names the invalid line or key.
    pub fn from_file(file: impl AsRef<Path>) -> Result<Self> {
        let file = file.as_ref();
        let text = read(file)?;
        let labels = match json(file, &text)? {
            Some(value) => from_json(file, &value)?,
            None => from_text(file, &text)?,
        };
        if labels.is_empty() {
            return Err(Error::config(file, "has no labels"));
        }
        Ok(Self {
            source: LabelSource::File(file.into()),
            ..labels
        })
    }
}

/// Reads a file of names in UTF-8 or UTF-16, and removes a byte order mark.
pub(crate) fn read(file: &Path) -> Result<String> {
    let io = |error| Error::io(file, error);
    let opened = regular_file::open(file).map_err(io)?;
    let mut bytes = Vec::new();
    opened.take(LARGEST + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Error::config(
            file,
            format!("has more than {} MiB", LARGEST >> 20),
        ));
    }
    let text = to_utf8(&bytes, false).map_err(|error| Error::config(file, error))?;
    String::from_utf8(text.into_owned()).map_err(|_| Error::config(file, "is not UTF-8. Save it in UTF-8"))
}

/// Parses the text if the file is JSON, which the extension decides, or the first character if the extension is
/// unknown. Returns `None` for other text.
pub(crate) fn json(file: &Path, text: &str) -> Result<Option<Value>> {
    let ending = file.extension().unwrap_or_default().to_ascii_lowercase();
    let plain = ["txt", "tsv", "csv"].iter().any(|plain| ending == *plain);
    if ending != "json" && (plain || !text.trim_start().starts_with(['[', '{'])) {
        return Ok(None);
    }
    match serde_json::from_str(text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(Error::config(file, format!("is not valid JSON: {error}"))),
    }
}

/// Iterates over the lines, numbered from 1, without empty lines at the end.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.trim_end()
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

fn from_text(file: &Path, text: &str) -> Result<Labels> {
    let columns = lines(text).next().is_some_and(|(_, line)| line.contains('\t'));
    let (mut names, mut ids) = (Vec::new(), Vec::new());
    for (number, line) in lines(text) {
        let name = match (columns, line.split_once('\t')) {
            (true, Some((id, name))) => {
                ids.push(id.trim());
                name.trim()
            }
            (false, None) => line.trim(),
            _ => {
                let reason = format!(
                    "line {number}: either every line has an id, a tab and a label, or none has a tab"
                );
                return Err(Error::config(file, reason));
            }
        };
        if name.is_empty() {
            return Err(Error::config(
                file,
                format!("line {number} is empty; expected a label"),
            ));
        }
        names.push(name);
    }
    Ok(Labels::with_ids(names, ids))
}

fn from_json(file: &Path, value: &Value) -> Result<Labels> {
    let map = match value {
        Value::Array(list) => {
            let labels: Option<Labels> = list
                .iter()
                .map(Value::as_str)
                .collect::<Option<Vec<_>>>()
                .map(Labels::from_iter);
            return labels
                .ok_or_else(|| Error::config(file, "is a list with an element that is not a string"));
        }
        Value::Object(map) => match map.get("id2label") {
            None => map,
            Some(Value::Object(map)) => map,
            Some(_) => return Err(Error::config(file, "`id2label` is not an object")),
        },
        _ => return Err(Error::config(file, "is neither a list of labels nor an object")),
    };
    let entries = entries(file, map)?;
    let mut rows: Vec<Option<(Option<&str>, &str)>> = vec![None; map.len()];
    for (index, id, name) in entries {
        match rows.get_mut(index) {
            Some(row @ None) => *row = Some((id, name)),
            Some(Some(_)) => return Err(Error::config(file, format!("has two labels of class {index}"))),
            None => {
                let reason = format!(
                    "has {} labels, but one of class {index}: they are counted from 0",
                    map.len()
                );
                return Err(Error::config(file, reason));
            }
        }
    }
    let (mut names, mut ids) = (Vec::new(), Vec::new());
    for (id, name) in rows.into_iter().flatten() {
        names.push(name);
        ids.extend(id);
    }
    if ids.len() != names.len() {
        ids.clear();
    }
    Ok(Labels::with_ids(names, ids))
}

/// Index, id and label of a class.
type Entry<'a> = (usize, Option<&'a str>, &'a str);

fn entries<'a>(file: &Path, map: &'a Map<String, Value>) -> Result<Vec<Entry<'a>>> {
    map.iter()
        .map(|(key, value)| {
            entry(key, value).ok_or_else(|| {
                let reason = format!("`{key}` is neither an index with a label nor a label with an index");
                Error::config(file, reason)
            })
        })
        .collect()
}

/// Reads an entry in which either the index or the label is the key.
fn entry<'a>(key: &'a str, value: &'a Value) -> Option<Entry<'a>> {
    match value {
        Value::String(name) => Some((key.parse().ok()?, None, name)),
        Value::Array(pair) => match pair.as_slice() {
            [id, name] => Some((key.parse().ok()?, Some(id.as_str()?), name.as_str()?)),
            _ => None,
        },
        Value::Number(index) => Some((usize::try_from(index.as_u64()?).ok()?, None, key)),
        _ => None,
    }
}
