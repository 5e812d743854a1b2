//! WebDataset shards: tar archives in which the files of a sample have the same name before the first dot.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use hipvit_files::{positioned, regular_file};
use hipvit_image::EXTENSIONS;
use serde_json::Value;

use super::pairs::checked_caption;
use super::tar::{self, Entry};
use super::{Content, Dataset, numbered_classes};
use crate::error::{Error, Result};

/// Maximum length of a file that contains a label.
const LONGEST_LABEL: u64 = 1 << 20;

/// Images in tar archives. Labels are in `.cls` files, or in `.json` files with the key `label` or `cls`. Without these, captions are in
/// `.txt` files.
///
/// A label is a number, or the name of a class. Opening reads headers, labels and captions, but no images.
#[derive(Debug)]
pub struct WebDataset {
    shards: Vec<(PathBuf, File)>,
    samples: Vec<Sample>,
    classes: Vec<String>,
    has_captions: bool,
}

#[derive(Debug)]
struct Sample {
    shard: usize,
    entry: Entry,
    label: usize,
}

/// A label before the classes are known.
enum Label {
    Number(usize),
    Name(String),
    Caption(String),
}

impl WebDataset {
    /// Lists the images of all shards.
    ///
    /// Classes with names are sorted by name. `classes` replaces the classes that the shards have, for example with
    /// those of the training set.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Dataset`] if an image has no label, or a label is not one of `classes`. Returns [`Error::Io`] if
    /// an archive is damaged.
    pub fn open(shards: &[PathBuf], classes: Option<&[String]>) -> Result<Self> {
        let (mut opened, mut found) = (Vec::new(), Vec::new());
        for (shard, path) in shards.iter().enumerate() {
            let io = |source| Error::io(path, source);
            let mut file = regular_file::open(path).map_err(io)?;
            let entries = tar::list(&mut file).map_err(io)?;
            let samples = read_labels(path, &file, entries)?;
            found.extend(samples.into_iter().map(|(entry, label)| (shard, entry, label)));
            opened.push((path.clone(), file));
        }
        let path = &shards[0];
        if found.is_empty() {
            return Err(Error::dataset(path, "contains no images with labels or captions"));
        }
        let captions = found
            .iter()
            .filter(|(_, _, label)| matches!(label, Label::Caption(_)));
        let captions = captions.count();
        let has_captions = captions > 0;
        if has_captions && captions < found.len() {
            let reason =
                "has captions (.txt) for some images, and labels (.cls or .json) for others. Keep them apart";
            return Err(Error::dataset(path, reason));
        }
        let classes = class_names(path, found.iter().map(|(_, _, label)| label), classes)?;
        let positions = classes.iter().enumerate();
        let positions: HashMap<&str, usize> = positions.map(|(at, class)| (class.as_str(), at)).collect();
        let samples = found
            .into_iter()
            .map(|(shard, entry, label)| {
                let label = match label {
                    Label::Number(number) => Some(number).filter(|&number| number < classes.len()),
                    Label::Name(name) | Label::Caption(name) => positions.get(name.as_str()).copied(),
                };
                let label = label.ok_or_else(|| {
                    let reason = format!("{}: its class does not occur in the training set", entry.name);
                    Error::dataset(&shards[shard], reason)
                })?;
                Ok(Sample { shard, entry, label })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            shards: opened,
            samples,
            classes,
            has_captions,
        })
    }
}

/// Returns the sample's key, which ends at the first dot after the last slash, and what follows the last dot.
fn key_of(name: &str) -> (&str, &str) {
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    match (name[start..].find('.'), name.rfind('.')) {
        (Some(first), Some(last)) => (&name[..start + first], &name[last + 1..]),
        _ => (name, ""),
    }
}

/// Returns the images of a shard with their labels. The files of a sample are adjacent.
fn read_labels(path: &Path, file: &File, entries: Vec<Entry>) -> Result<Vec<(Entry, Label)>> {
    let mut samples = Vec::new();
    let mut entries = entries.into_iter().peekable();
    while let Some(first) = entries.next() {
        let key = key_of(&first.name).0.to_owned();
        let mut parts = vec![first];
        while let Some(part) = entries.next_if(|entry| key_of(&entry.name).0 == key) {
            parts.push(part);
        }
        let label = parts
            .iter()
            .find_map(|part| label_of(path, file, part).transpose());
        let is_image = |entry: &Entry| {
            let extension = key_of(&entry.name).1;
            EXTENSIONS
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known))
        };
        let Some(image) = parts.iter().position(is_image) else {
            continue;
        };
        let label = label.unwrap_or_else(|| {
            let caption = parts.iter().find_map(|part| caption_of(path, file, part).transpose());
            caption.unwrap_or_else(|| {
                let reason = format!(
                    "{key}: has an image but no label ({key}.cls, or `label` in {key}.json) and no caption ({key}.txt)"
                );
                Err(Error::dataset(path, reason))
            })
        })?;
        samples.push((parts.swap_remove(image), label));
    }
    Ok(samples)
}

/// Reads the label in a `.cls` or `.json` file. Other files have none.
fn label_of(path: &Path, file: &File, entry: &Entry) -> Result<Option<Label>> {
    let extension = key_of(&entry.name).1;
    if !["cls", "json"].contains(&extension) {
        return Ok(None);
    }
    let invalid = |reason: &str| Error::dataset(path, format!("{}: {reason}", entry.name));
    if entry.length > LONGEST_LABEL {
        return Err(invalid("is longer than 1 MiB"));
    }
    let bytes = read(file, entry).map_err(|source| Error::io(path, source))?;
    if extension == "cls" {
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        if text.is_empty() {
            return Err(invalid("is empty, but should contain a class"));
        }
        return Ok(Some(
            text.parse()
                .map_or_else(|_| Label::Name(text.to_owned()), Label::Number),
        ));
    }
    let value: Value = serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
    match value.get("label").or_else(|| value.get("cls")) {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(Label::Name(name.clone()))),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(Label::Number(number as usize))),
            None => Err(invalid(&format!(
                "its label is {value}, not a class's number or name"
            ))),
        },
    }
}

/// Reads the caption in a `.txt` file. Other files have none.
fn caption_of(path: &Path, file: &File, entry: &Entry) -> Result<Option<Label>> {
    if key_of(&entry.name).1 != "txt" {
        return Ok(None);
    }
    let invalid = |reason: &str| Error::dataset(path, format!("{}: {reason}", entry.name));
    if entry.length > LONGEST_LABEL {
        return Err(invalid("is longer than 1 MiB"));
    }
    let bytes = read(file, entry).map_err(|source| Error::io(path, source))?;
    let text = String::from_utf8(bytes).map_err(|_| invalid("is not UTF-8"))?;
    let caption = checked_caption(&text).map_err(invalid)?;
    Ok(Some(Label::Caption(caption.to_owned())))
}

fn read(file: &File, entry: &Entry) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(entry.length as usize)?;
    bytes.resize(entry.length as usize, 0);
    positioned::read_exact_at(file, &mut bytes, entry.offset)?;
    Ok(bytes)
}

/// Returns the classes: `known`, the sorted names, or the numbers.
fn class_names<'a>(
    path: &Path,
    labels: impl Iterator<Item = &'a Label>,
    known: Option<&[String]>,
) -> Result<Vec<String>> {
    /// Maximum number of classes, a limit for damaged labels.
    const MOST: usize = 1 << 24;
    let (mut names, mut count) = (Vec::new(), 0);
    for label in labels {
        match label {
            Label::Number(number) => count = count.max(number.saturating_add(1)),
            Label::Name(name) | Label::Caption(name) => names.push(name.clone()),
        }
    }
    if names.is_empty() {
        if count > MOST {
            let reason = format!("has class {}, which is more than {MOST} classes", count - 1);
            return Err(Error::dataset(path, reason));
        }
        return numbered_classes(path, count, known);
    }
    if let Some(known) = known {
        return Ok(known.to_vec());
    }
    if count > 0 {
        return Err(Error::dataset(path, "some labels are numbers and some are names"));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

impl Dataset for WebDataset {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn has_captions(&self) -> bool {
        self.has_captions
    }

    fn label(&self, index: usize) -> usize {
        self.samples[index].label
    }

    fn name(&self, index: usize) -> String {
        let Sample { shard, entry, .. } = &self.samples[index];
        format!("{}/{}", self.shards[*shard].0.display(), entry.name)
    }

    fn read(&self, index: usize) -> Result<Content> {
        let Sample { shard, entry, .. } = &self.samples[index];
        let (path, file) = &self.shards[*shard];
        let bytes = read(file, entry).map_err(|source| Error::io(path, source))?;
        Ok(Content::Encoded(bytes))
    }
}
