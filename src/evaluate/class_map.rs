//! Reads class maps: files that assign a class to each directory of a labelled set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::labels::{Labels, file};
use crate::nearest::nearest;

/// Class of each directory of images, by the directory's name.
#[derive(Clone, Debug)]
pub struct ClassMap {
    file: PathBuf,
    classes: BTreeMap<String, usize>,
}

impl ClassMap {
    /// Reads a class map from a text or JSON file. A class is an index, an id or a label, as [`Labels::find`] reads it.
    ///
    /// Text has one directory per line, in one of two forms:
    ///
    /// - the name only, if the lines are in the order of the classes (timm's `--class-map`)
    /// - the name and the class, separated by a tab, or by spaces if the name has none (ImageNet's
    ///   `LOC_synset_mapping.txt`)
    ///
    /// JSON is an object `{"name": class}`, or a list of names in the order of the classes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] or [`Error::Config`]. Both name `file`; the latter also names the invalid line or name.
    pub fn from_file(file: impl AsRef<Path>, labels: &Labels) -> Result<Self> {
        let path = file.as_ref();
        let text = file::read(path)?;
        let rows = match file::json(path, &text)? {
            Some(value) => json_rows(path, value)?,
            None => text_rows(path, &text)?,
        };
        let count = labels.len().max(2);
        let mut classes = BTreeMap::new();
        for (name, class) in rows {
            let index = match class {
                Class::Index(index) if index < count => index,
                Class::Index(index) => {
                    let reason = format!(
                        "{name}: class {index} is not one of the model's {count} classes, counted from 0"
                    );
                    return Err(Error::config(path, reason));
                }
                Class::Named(class) => labels
                    .find_among(&class, count)
                    .map_err(|error| Error::config(path, format!("{name}: {error}")))?,
            };
            if classes
                .insert(name.clone(), index)
                .is_some_and(|other| other != index)
            {
                return Err(Error::config(
                    path,
                    format!("{name} occurs twice, with different classes"),
                ));
            }
        }
        if classes.is_empty() {
            return Err(Error::config(path, "names no directory"));
        }
        Ok(Self {
            file: path.to_owned(),
            classes,
        })
    }

    /// Returns the class of `directory`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::LabelledSet`] if the file does not list the directory. The error suggests similar names.
    pub fn class_of(&self, directory: &Path) -> Result<usize> {
        let name = super::name_of(directory);
        self.classes.get(&*name).copied().ok_or_else(|| {
            let mut some = nearest(&name, self.classes.keys().map(|known| (known, known.as_str())));
            if some.is_empty() {
                some = self.classes.keys().take(3).map(String::as_str).collect();
            }
            Error::LabelledSet {
                path: directory.to_owned(),
                reason: format!(
                    "the class map {} does not have \"{name}\"; it has {} names, among them {}",
                    self.file.display(),
                    self.classes.len(),
                    some.join(", ")
                ),
            }
        })
    }
}

/// A class as written in the file.
enum Class {
    Index(usize),
    Named(String),
}

fn json_rows(file: &Path, value: Value) -> Result<Vec<(String, Class)>> {
    match value {
        Value::Array(list) => list
            .into_iter()
            .enumerate()
            .map(|(index, name)| match name {
                Value::String(name) => Ok((name, Class::Index(index))),
                other => Err(Error::config(
                    file,
                    format!("{other} is not the name of a directory"),
                )),
            })
            .collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(name, class)| {
                let class = match &class {
                    Value::String(class) => Some(Class::Named(class.clone())),
                    Value::Number(index) => index.as_u64().map(|index| Class::Index(index as usize)),
                    _ => None,
                };
                match class {
                    Some(class) => Ok((name, class)),
                    None => Err(Error::config(
                        file,
                        format!("{name}: expected the index, id or label of a class"),
                    )),
                }
            })
            .collect(),
        _ => Err(Error::config(
            file,
            "is neither an object of classes by name nor a list of names",
        )),
    }
}

fn text_rows(file: &Path, text: &str) -> Result<Vec<(String, Class)>> {
    let split = |line: &str| {
        let (name, class) = line
            .split_once('\t')
            .or_else(|| line.split_once(char::is_whitespace))?;
        Some((name.to_owned(), class.trim().to_owned()))
    };
    let columns = file::lines(text)
        .next()
        .is_some_and(|(_, line)| split(line.trim()).is_some());
    file::lines(text)
        .map(
            |(number, line)| match (columns, line.trim(), split(line.trim())) {
                (_, "", _) => Err(Error::config(file, format!("line {number} is empty"))),
                (true, _, Some((name, class))) => Ok((name, Class::Named(class))),
                (false, name, None) => Ok((name.to_owned(), Class::Index(number - 1))),
                _ => {
                    let reason =
                        format!("line {number}: either every line has a name and a class, or none has");
                    Err(Error::config(file, reason))
                }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn class_maps_are_read_from_text_and_json() {
        let directory = tempfile::tempdir().unwrap();
        let labels = Labels::imagenet_1k();
        let read = |name: &str, content: &str| {
            let file = directory.path().join(name);
            fs::write(&file, content).unwrap();
            ClassMap::from_file(&file, &labels)
        };
        for (name, content) in [
            ("order.txt", "fish\ncarp\nshark\n"),
            (
                "mapping.txt",
                "fish n01440764 \ncarp goldfish, Carassius auratus\nshark 2\n",
            ),
            ("tabs.tsv", "fish\ttench\ncarp\t1\nshark\tn01484850\n"),
            (
                "object.json",
                r#"{"fish": 0, "carp": "goldfish", "shark": "n01484850"}"#,
            ),
            ("list.json", r#"["fish", "carp", "shark"]"#),
        ] {
            let map = read(name, content).unwrap();
            for (index, directory) in ["a/fish", "a/carp", "a/shark"].iter().enumerate() {
                assert_eq!(map.class_of(Path::new(directory)).unwrap(), index, "{name}");
            }
            let error = map.class_of(Path::new("a/crap")).unwrap_err().to_string();
            assert!(
                error.starts_with("a/crap: the class map") && error.contains("among them carp"),
                "{error}"
            );
        }
        for (name, content, reason) in [
            ("empty.txt", "", "names no directory"),
            ("mixed.txt", "fish tench\ncarp", "line 2: either every line"),
            ("gap.txt", "fish\n\ncarp", "line 2 is empty"),
            (
                "stranger.txt",
                "fish tensch",
                "fish: class: \"tensch\" is not one of the model's 1000 classes",
            ),
            ("large.json", r#"{"fish": 1000}"#, "fish: class 1000 is not one"),
            ("float.json", r#"{"fish": 0.5}"#, "fish: expected the index"),
            ("number.json", "[1]", "1 is not the name of a directory"),
            ("twice.txt", "fish 0\nfish 1", "fish occurs twice"),
        ] {
            let error = read(name, content).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(reason), "{error}");
        }
    }
}
