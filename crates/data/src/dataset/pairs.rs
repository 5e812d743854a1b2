//! Lists of images with captions: CSV, TSV and JSON Lines files.

use std::path::{Path, PathBuf};

use csv::StringRecord;

use super::list::{IMAGE_COLUMNS, at, is_json, json_objects, read, table_reader, trimmed};
use super::{Content, Dataset, caption_classes};
use crate::error::{Error, Result};

/// Names of the column of captions.
pub(super) const CAPTION_COLUMNS: [&str; 3] = ["title", "caption", "text"];

/// Image files with captions. The classes are the captions.
///
/// A list is a CSV, TSV or JSON Lines file with a column of paths and a column of captions. Paths are relative to its directory.
#[derive(Clone, Debug)]
pub struct Pairs {
    files: Vec<(PathBuf, usize)>,
    captions: Vec<String>,
}

/// A line of a list: its number, the path of the image and the caption.
type Line = (u64, String, String);

impl Pairs {
    /// Reads a list.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Dataset`], with the line, for a list without these columns, a line without an image or with an empty caption, and a
    /// list without lines. Returns [`Error::Io`] if it cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = read(path)?;
        let lines = if is_json(path) {
            json_lines(path, &bytes)?
        } else {
            table_lines(path, &bytes)?
        };
        if lines.is_empty() {
            return Err(Error::dataset(path, "has no pairs of an image and a caption"));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut captions = Vec::with_capacity(lines.len());
        for (line, image, caption) in &lines {
            if image.trim().is_empty() {
                return Err(at(path, *line, "there is no path of an image"));
            }
            let caption = checked_caption(caption).map_err(|reason| at(path, *line, reason))?;
            captions.push(caption.to_owned());
        }
        let (captions, labels) = caption_classes(&captions);
        let images = lines.iter().map(|(_, image, _)| folder.join(image.trim()));
        Ok(Self {
            files: images.zip(labels).collect(),
            captions,
        })
    }
}

/// Returns the caption without white space around it.
///
/// # Errors
///
/// Returns what is wrong with an empty caption.
pub(super) fn checked_caption(caption: &str) -> Result<&str, &'static str> {
    match caption.trim() {
        "" => Err("the caption is empty. Remove the pair, or write a caption"),
        caption => Ok(caption),
    }
}

/// Reads the columns of images and captions of a table.
pub(super) fn table_lines(path: &Path, bytes: &[u8]) -> Result<Vec<Line>> {
    let mut reader = table_reader(path, bytes);
    let invalid = |error: csv::Error| Error::dataset(path, error);
    let names = reader.headers().map_err(invalid)?.clone();
    let [image, caption] = columns(&names).map_err(|reason| Error::dataset(path, reason))?;
    let line = |record: csv::Result<StringRecord>| {
        let record = record.map_err(invalid)?;
        let line = record.position().map_or(0, csv::Position::line);
        let [image, caption] =
            [image, caption].map(|column| record.get(column).unwrap_or_default().to_owned());
        Ok((line, image, caption))
    };
    reader.records().map(line).collect()
}

/// Returns the columns of images and captions.
fn columns(names: &StringRecord) -> Result<[usize; 2], String> {
    let place = |known: &[&str]| {
        let found = |name: &&str| {
            let mut names = names.iter();
            names.position(|column| trimmed(column).eq_ignore_ascii_case(name))
        };
        known.iter().find_map(found)
    };
    match (place(&IMAGE_COLUMNS), place(&CAPTION_COLUMNS)) {
        (Some(image), Some(caption)) => Ok([image, caption]),
        _ => {
            let names: Vec<&str> = names.iter().collect();
            Err(missing(&names))
        }
    }
}

fn missing(names: &[&str]) -> String {
    format!(
        "has no columns of images ({}) and captions ({}); its columns are {}",
        IMAGE_COLUMNS.join(", "),
        CAPTION_COLUMNS.join(", "),
        names.join(", ")
    )
}

/// Reads the images and captions of JSON Lines.
pub(super) fn json_lines(path: &Path, bytes: &[u8]) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for object in json_objects(path, bytes) {
        let (line, object) = object?;
        let text = |known: &[&str]| {
            let mut values = known.iter().filter_map(|name| object.get(*name)?.as_str());
            values.next().map(str::to_owned)
        };
        let (Some(image), Some(caption)) = (text(&IMAGE_COLUMNS), text(&CAPTION_COLUMNS)) else {
            let names: Vec<&str> = object.keys().map(String::as_str).collect();
            return Err(at(path, line, missing(&names)));
        };
        lines.push((line, image, caption));
    }
    Ok(lines)
}

impl Dataset for Pairs {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn classes(&self) -> &[String] {
        &self.captions
    }

    fn label(&self, index: usize) -> usize {
        self.files[index].1
    }

    fn name(&self, index: usize) -> String {
        self.files[index].0.display().to_string()
    }

    fn read(&self, index: usize) -> Result<Content> {
        Content::of_file(&self.files[index].0)
    }

    fn has_captions(&self) -> bool {
        true
    }
}
