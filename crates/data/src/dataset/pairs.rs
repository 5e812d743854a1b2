//! Lists of images with captions: CSV, TSV and JSON Lines files.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::{ReaderBuilder, StringRecord};
use hipvit_files::regular_file;
use serde_json::{Map, Value};

use super::{Content, Dataset, Split, Splits, caption_classes, has_extension, name_of, without_tests};
use crate::error::{Error, Result};

/// Names of the column of images, the first of which a file has counts.
const IMAGE_COLUMNS: [&str; 7] = [
    "filepath",
    "image",
    "image_path",
    "path",
    "file_name",
    "filename",
    "file",
];

/// Names of the column of captions.
pub(super) const CAPTION_COLUMNS: [&str; 3] = ["title", "caption", "text"];

/// Beginnings of the names of lists in a directory, beside those of splits.
const LISTS: [&str; 3] = ["metadata", "captions", "pairs"];

/// Maximum length of the first line of a list, in bytes.
const MAX_HEADER: u64 = 1 << 20;

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
        let bytes = regular_file::read(path).map_err(|source| Error::io(path, source))?;
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

fn at(path: &Path, line: u64, reason: impl std::fmt::Display) -> Error {
    Error::dataset(path, format!("line {line}: {reason}"))
}

fn is_json(path: &Path) -> bool {
    has_extension(path, "jsonl") || has_extension(path, "ndjson")
}

/// Returns true for the extension of a list.
pub(super) fn is_list(path: &Path) -> bool {
    is_json(path) || has_extension(path, "csv") || has_extension(path, "tsv")
}

/// Returns true for a list in a directory that belongs to the dataset.
pub(super) fn is_list_of_folder(path: &Path) -> bool {
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .to_lowercase();
    is_list(path) && (LISTS.contains(&stem.as_str()) || Split::of_name(&stem).is_some())
}

/// Returns true if a list has a column of images and one of captions, by its first line.
pub(super) fn has_columns(path: &Path) -> bool {
    let Ok(file) = regular_file::open(path) else {
        return false;
    };
    let mut line = Vec::new();
    let read = BufReader::new(file).take(MAX_HEADER).read_until(b'\n', &mut line);
    if read.is_err() {
        return false;
    }
    if is_json(path) {
        json_lines(path, &line).is_ok_and(|lines| !lines.is_empty())
    } else {
        table_lines(path, &line).is_ok()
    }
}

/// Reads a table with a line of names. Columns are separated by tabs if the first line has one and no comma, or if the file is a TSV.
fn table_lines(path: &Path, bytes: &[u8]) -> Result<Vec<Line>> {
    let first = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let has_tabs = first.contains(&b'\t') && !first.contains(&b',');
    let separator = if has_tabs || has_extension(path, "tsv") {
        b'\t'
    } else {
        b','
    };
    let mut reader = ReaderBuilder::new().delimiter(separator).from_reader(bytes);
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
            names.position(|column| {
                column
                    .trim_start_matches('\u{feff}')
                    .trim()
                    .eq_ignore_ascii_case(name)
            })
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

/// Reads an object per line.
fn json_lines(path: &Path, bytes: &[u8]) -> Result<Vec<Line>> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut lines = Vec::new();
    for (index, text) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = index as u64 + 1;
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let object: Map<String, Value> =
            serde_json::from_slice(text).map_err(|error| at(path, line, error))?;
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

/// Opens a list, or those of a directory. A list whose name denotes no split is for training.
pub(super) fn open_splits(path: &Path, lists: &[PathBuf]) -> Result<Splits> {
    let of = |split: Split| {
        let belongs = |list: &&PathBuf| {
            let found = Split::of_name(&name_of(list)).unwrap_or(Split::Train);
            lists.len() == 1 && split == Split::Train || lists.len() > 1 && found == split
        };
        lists.iter().filter(belongs).collect::<Vec<_>>()
    };
    let mut validation = of(Split::Validation);
    without_tests(&mut validation);
    let only = |lists: Vec<&PathBuf>, what: &str| match lists.as_slice() {
        [] => Ok(None),
        [list] => Ok(Some(Arc::new(Pairs::open(list)?) as Arc<dyn Dataset>)),
        [first, second, ..] => {
            let [first, second] = [first, second].map(|list| name_of(list));
            let reason = format!("has several lists for {what}: {first} and {second}. Name one of them");
            Err(Error::dataset(path, reason))
        }
    };
    let train = only(of(Split::Train), "training")?;
    let train = train.ok_or_else(|| Error::dataset(path, "has lists for validation only. Add train.csv"))?;
    Ok(Splits {
        train,
        validation: only(validation, "validation")?,
    })
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
