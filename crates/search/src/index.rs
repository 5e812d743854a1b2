//! An index: the shards of one set of embeddings.

use std::borrow::Cow;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::description::Description;
use crate::error::{Error, Result};
use crate::shard::{Element, Shard, extension};

/// Maximum number of rows. Rows are numbered in 32 bits.
const MAX_ROWS: usize = u32::MAX as usize;

/// Embeddings in one file, or in the shards of a directory.
#[derive(Debug)]
pub struct Index {
    path: PathBuf,
    shards: Vec<Shard>,
    /// Index of the first row of each shard, then the number of rows.
    starts: Vec<usize>,
}

impl Index {
    /// Opens a `.npy` or `.safetensors` file, or a directory of them. The files of a directory are sorted by name.
    ///
    /// The files are memory-mapped, so no process may truncate or rewrite them in place while the index is open. Replacing a file by a new
    /// one is safe.
    ///
    /// # Errors
    ///
    /// - [`Error::Io`] if a file cannot be read.
    /// - [`Error::Index`] if a file has no embeddings, or if the shards of a directory do not belong together or are incomplete.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let files = if path.is_dir() {
            files(path)?
        } else {
            vec![path.to_owned()]
        };
        let shards = files
            .iter()
            .map(|file| Shard::open(file))
            .collect::<Result<Vec<_>>>()?;
        check(path, &shards)?;
        let mut starts = vec![0];
        for shard in &shards {
            starts.push(starts[starts.len() - 1] + shard.rows);
        }
        if starts[shards.len()] > MAX_ROWS {
            let reason = format!("has more than {MAX_ROWS} rows. Divide it into several indexes");
            return Err(Error::index(path, reason));
        }
        Ok(Self {
            path: path.to_owned(),
            shards,
            starts,
        })
    }

    /// Returns the path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.starts[self.shards.len()]
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of values of a row.
    pub fn width(&self) -> usize {
        self.shards[0].width
    }

    /// Returns the dtype of the stored values.
    pub fn element(&self) -> Element {
        self.shards[0].element
    }

    /// Returns the facts about the embeddings. `None` for a file that `hipvit embed` did not write.
    pub fn description(&self) -> Option<&Description> {
        self.shards[0].description.as_ref()
    }

    /// Returns the name of a row: the path of an image, or a text. Without names, returns the number of the row.
    pub fn name(&self, row: usize) -> Cow<'_, str> {
        let named = self.locate(row).and_then(|(shard, row)| shard.names.get(row));
        named.unwrap_or_else(|| Cow::Owned(row.to_string()))
    }

    /// Writes a row in f32 to `out`. Writes nothing if there is no such row.
    pub fn copy_row(&self, row: usize, out: &mut Vec<f32>) {
        out.clear();
        if let Some((shard, row)) = self.locate(row) {
            let mut scratch = Vec::new();
            out.extend_from_slice(shard.values(row..row + 1, &mut scratch));
        }
    }

    /// Returns the shard with a row, and the index of the row in the shard.
    fn locate(&self, row: usize) -> Option<(&Shard, usize)> {
        let shard = self.starts.partition_point(|&start| start <= row) - 1;
        Some((self.shards.get(shard)?, row - self.starts[shard]))
    }

    /// Divides all rows into blocks of at most `rows` rows, each of one shard.
    pub(crate) fn blocks(&self, rows: usize) -> Vec<Block<'_>> {
        let of_shard = |(shard, &first): (_, &usize)| Blocks {
            shard,
            first,
            rows,
            next: 0,
        };
        self.shards.iter().zip(&self.starts).flat_map(of_shard).collect()
    }

    /// Checks that queries fit the index. Returns their number.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if they do not.
    pub(crate) fn check_queries(&self, queries: &[f32]) -> Result<usize> {
        let width = self.width();
        if !queries.len().is_multiple_of(width) {
            let reason = format!(
                "{} values are not a whole number of rows: {} has rows of {width}",
                queries.len(),
                self.path.display()
            );
            return Err(Error::argument("queries", reason));
        }
        if queries.iter().any(|value| !value.is_finite()) {
            return Err(Error::argument("queries", "have values that are NaN or infinite"));
        }
        Ok(queries.len() / width)
    }
}

/// Successive rows of a shard.
#[derive(Clone, Debug)]
pub(crate) struct Block<'a> {
    pub(crate) shard: &'a Shard,
    /// Rows of the shard.
    pub(crate) rows: Range<usize>,
    /// Index of the first row, counted over all shards.
    pub(crate) first: usize,
}

/// Iterator over the blocks of a shard.
struct Blocks<'a> {
    shard: &'a Shard,
    first: usize,
    rows: usize,
    next: usize,
}

impl<'a> Iterator for Blocks<'a> {
    type Item = Block<'a>;

    fn next(&mut self) -> Option<Block<'a>> {
        let begin = self.next;
        if begin == self.shard.rows {
            return None;
        }
        self.next = (begin + self.rows).min(self.shard.rows);
        Some(Block {
            shard: self.shard,
            rows: begin..self.next,
            first: self.first + begin,
        })
    }
}

/// Returns the files of embeddings in a directory, sorted by name.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).map_err(Error::io(directory))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<PathBuf> = paths
        .collect::<std::io::Result<_>>()
        .map_err(Error::io(directory))?;
    paths.retain(|path| matches!(extension(path).as_deref(), Some("npy" | "safetensors")));
    paths.sort();
    if paths.is_empty() {
        let reason = "has no .npy or .safetensors files. Write some with `hipvit embed … -o DIR/FILE.npy`";
        return Err(Error::index(directory, reason));
    }
    Ok(paths)
}

/// Checks that the shards belong together, and that all of them are there.
fn check(path: &Path, shards: &[Shard]) -> Result<()> {
    let first = &shards[0];
    for (position, shard) in shards.iter().enumerate() {
        let differs = |what: &str| {
            let reason = format!(
                "differs from {} in {what}. Move it out of the index",
                first.path.display()
            );
            Err(Error::index(&shard.path, reason))
        };
        if shard.width != first.width {
            return differs("the length of its rows");
        }
        if shard.element != first.element {
            return differs("its dtype");
        }
        match (&shard.description, &first.description) {
            (Some(own), Some(others)) if !own.belongs_to(others) => {
                let is_model = own.digest != others.digest;
                return differs(if is_model { "its model" } else { "its description" });
            }
            (None, Some(_)) | (Some(_), None) => return differs("its description"),
            _ => {}
        }
        // A file that is named by itself may be a shard.
        if let Some((index, count)) = shard
            .description
            .as_ref()
            .and_then(|description| description.shard)
            && path.is_dir()
            && (count != shards.len() || index != position)
        {
            let reason = format!(
                "is shard {} of {count}, but file {} of {} in the directory. Write the index again into an empty directory",
                index + 1,
                position + 1,
                shards.len()
            );
            return Err(Error::index(&shard.path, reason));
        }
    }
    Ok(())
}
