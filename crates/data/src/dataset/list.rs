//! Rows of lists of images: CSV, TSV and JSON Lines files.

use std::path::Path;

use csv::{ReaderBuilder, StringRecord};
use hipvit_files::regular_file;
use serde_json::{Map, Value};

use super::has_extension;
use crate::error::{Error, Result};

/// Names of the column of images, the first of which a file has counts.
pub(super) const IMAGE_COLUMNS: [&str; 7] = [
    "filepath",
    "image",
    "image_path",
    "path",
    "file_name",
    "filename",
    "file",
];

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    regular_file::read(path).map_err(|source| Error::io(path, source))
}

/// Returns all columns of the lines of a list, with the number of each line. Tables have texts only.
pub(super) fn rows(path: &Path) -> Result<Vec<(u64, Map<String, Value>)>> {
    rows_of(path, &read(path)?)
}

pub(super) fn rows_of(path: &Path, bytes: &[u8]) -> Result<Vec<(u64, Map<String, Value>)>> {
    if is_json(path) {
        return json_objects(path, bytes).collect();
    }
    let invalid = |error: csv::Error| Error::dataset(path, error);
    let mut reader = table_reader(path, bytes);
    let names = reader.headers().map_err(invalid)?.clone();
    let row = |record: csv::Result<StringRecord>| {
        let record = record.map_err(invalid)?;
        let columns = names.iter().zip(&record);
        let columns = columns.map(|(name, value)| (trimmed(name).to_owned(), value.into()));
        Ok((
            record.position().map_or(0, csv::Position::line),
            columns.collect(),
        ))
    };
    reader.records().map(row).collect()
}

/// Returns the path of the image of a row.
pub(super) fn image_of(row: &Map<String, Value>) -> Option<&str> {
    let image = IMAGE_COLUMNS.iter().find_map(|name| row.get(*name)?.as_str());
    image.map(str::trim).filter(|image| !image.is_empty())
}

/// Returns the name of a column without what surrounds it.
pub(super) fn trimmed(name: &str) -> &str {
    name.trim_start_matches('\u{feff}').trim()
}

/// Returns the error of a line.
pub(super) fn at(path: &Path, line: u64, reason: impl std::fmt::Display) -> Error {
    Error::dataset(path, format!("line {line}: {reason}"))
}

pub(super) fn is_json(path: &Path) -> bool {
    has_extension(path, "jsonl") || has_extension(path, "ndjson")
}

/// Opens a table with a line of names. Columns are separated by tabs if the first line has one and no comma, or if the file is a TSV.
pub(super) fn table_reader<'a>(path: &Path, bytes: &'a [u8]) -> csv::Reader<&'a [u8]> {
    let first = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let has_tabs = first.contains(&b'\t') && !first.contains(&b',');
    let separator = if has_tabs || has_extension(path, "tsv") {
        b'\t'
    } else {
        b','
    };
    ReaderBuilder::new().delimiter(separator).from_reader(bytes)
}

/// Reads an object per line, with the number of the line.
pub(super) fn json_objects(
    path: &Path,
    bytes: &[u8],
) -> impl Iterator<Item = Result<(u64, Map<String, Value>)>> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let lines = bytes.split(|&byte| byte == b'\n').enumerate();
    let lines = lines.filter(|(_, text)| !text.iter().all(u8::is_ascii_whitespace));
    lines.map(|(index, text)| {
        let line = index as u64 + 1;
        let object = serde_json::from_slice(text).map_err(|error| at(path, line, error))?;
        Ok((line, object))
    })
}
