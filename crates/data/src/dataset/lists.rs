//! Lists of images with captions or annotations, by their columns.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hipvit_files::regular_file;

use super::annotated::{Annotated, is_annotated};
use super::list::{is_json, rows_of};
use super::pairs::{Pairs, json_lines, table_lines};
use super::{Dataset, Split, Splits, has_extension, name_of, without_tests};
use crate::error::{Error, Result};

/// Beginnings of the names of lists in a directory, beside those of splits.
const LISTS: [&str; 3] = ["metadata", "captions", "pairs"];

/// Maximum length of the first line of a list, in bytes.
const MAX_HEADER: u64 = 1 << 20;

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

/// Columns of a list, beside that of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    Captions,
    Annotations,
}

impl Columns {
    /// Returns the columns of a list by its first lines. `None` without images, captions and annotations.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let file = regular_file::open(path).ok()?;
        let mut lines = Vec::new();
        let mut file = BufReader::new(file).take(MAX_HEADER);
        file.read_until(b'\n', &mut lines).ok()?;
        if is_json(path) {
            let first = rows_of(path, &lines).ok()?;
            if first.first().is_some_and(|(_, row)| is_annotated(row)) {
                return Some(Self::Annotations);
            }
            let first = json_lines(path, &lines).ok()?;
            return (!first.is_empty()).then_some(Self::Captions);
        }
        let has_captions = table_lines(path, &lines).is_ok();
        file.read_until(b'\n', &mut lines).ok()?;
        let first = rows_of(path, &lines).ok();
        let first = first.as_ref().and_then(|rows| rows.first());
        if first.is_some_and(|(_, row)| is_annotated(row)) {
            return Some(Self::Annotations);
        }
        has_captions.then_some(Self::Captions)
    }
}

/// Opens a list of captions or annotations, by its columns.
pub(super) fn open_list(path: &Path) -> Result<Arc<dyn Dataset>> {
    Ok(match Columns::of(path) {
        Some(Columns::Annotations) => Arc::new(Annotated::open(path)?),
        _ => Arc::new(Pairs::open(path)?),
    })
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
        [list] => Ok(Some(open_list(list)?)),
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
