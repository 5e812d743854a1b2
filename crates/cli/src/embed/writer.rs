//! Writers of embeddings in the formats of `hipvit embed`, in one file or in shards.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hipvit::Replays;
use hipvit::timing::Timing;
use hipvit_search::{Description, Kind};
use serde_json::json;

use crate::arrays::{Npy, Parquet, Tensors, names_path};
use crate::format::{self, Format};
use crate::output::{self, Sink};
use crate::record;

/// Writer of the results in one format.
pub(super) struct Writer {
    /// File that rows are written to.
    part: Part,
    kind: Kind,
    /// `None` for formats that hold none.
    description: Option<Description>,
    shards: Option<Shards>,
}

/// Division of the rows into files.
struct Shards {
    /// Maximum rows of a file.
    rows: NonZeroUsize,
    /// Rows of the last file.
    filled: usize,
    /// Files with as many rows as possible.
    complete: Vec<Part>,
    format: Format,
    /// Path that the command line names.
    path: PathBuf,
    /// The opened path, which is never written.
    _sink: Sink,
}

/// Writer of one file.
enum Part {
    Json(Sink),
    /// The second field is the heading of the first column, until the header is written.
    Csv(Box<csv::Writer<Sink>>, Option<&'static str>),
    /// The second field is the file of the description.
    Npy(Box<Npy<Sink>>, Option<Sink>),
    Safetensors(Sink, Tensors),
    Parquet(Box<Parquet>),
}

/// Opens the files for the names and the description of the array at `path`.
///
/// # Errors
///
/// Returns [`hipvit::Error::Io`] if one cannot be written.
pub(super) fn sidecars(path: &Path) -> Result<Vec<Sink>> {
    let paths = [names_path(path), path.with_extension(Description::EXTENSION)];
    Ok(paths
        .iter()
        .map(|path| Sink::file(path))
        .collect::<hipvit::Result<_>>()?)
}

/// Returns the path of a shard: `photos-00003.npy` for `photos.npy`.
fn shard_path(path: &Path, index: usize) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{index:05}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Returns what a row describes, as the heading of a column.
fn heading(kind: Kind) -> &'static str {
    match kind {
        Kind::Image => "image",
        Kind::Text => "text",
    }
}

impl Part {
    fn new(format: Format, sink: Sink, sidecars: Vec<Sink>, kind: Kind) -> Result<Self> {
        let directory = sink.directory();
        Ok(match format {
            Format::Csv => Self::Csv(Box::new(csv::Writer::from_writer(sink)), Some(heading(kind))),
            Format::Npy => {
                let mut sidecars = sidecars.into_iter();
                let names = sidecars.next();
                Self::Npy(Box::new(Npy::new(sink, names, &directory)), sidecars.next())
            }
            Format::Safetensors => {
                let tensors = Tensors::new(&directory);
                let tensors = match kind {
                    Kind::Text => tensors.of_texts(),
                    Kind::Image => tensors,
                };
                Self::Safetensors(sink, tensors)
            }
            Format::Parquet => Self::Parquet(Box::new(Parquet::new(sink, heading(kind))?)),
            _ => Self::Json(sink),
        })
    }

    /// Opens a shard.
    fn shard(format: Format, path: &Path, kind: Kind) -> Result<Self> {
        let sidecars = match format {
            Format::Npy => sidecars(path)?,
            _ => Vec::new(),
        };
        Self::new(format, Sink::file(path)?, sidecars, kind)
    }

    fn row(&mut self, name: &str, embedding: &[f32]) -> Result<()> {
        match self {
            Self::Json(_) => {}
            Self::Csv(out, header) => {
                if let Some(kind) = header.take() {
                    let names = (0..embedding.len()).map(|index| format!("e{index}"));
                    format::written(out.write_record(std::iter::once(kind.to_owned()).chain(names)))?;
                }
                let values = embedding.iter().map(ToString::to_string);
                format::written(out.write_record(std::iter::once(name.to_owned()).chain(values)))?;
            }
            Self::Npy(npy, _) => npy.push(name, &[embedding.len()], embedding)?,
            Self::Safetensors(_, tensors) => {
                tensors.image(name);
                tensors.push("embeddings", &[embedding.len()], embedding)?;
            }
            Self::Parquet(table) => table.push(name, embedding)?,
        }
        Ok(())
    }

    /// Writes what remains. Returns the files that are still to be finished.
    fn finish(self, description: Option<&Description>) -> Result<Vec<Sink>> {
        Ok(match self {
            Self::Json(sink) => vec![sink],
            Self::Csv(writer, _) => vec![writer.into_inner().map_err(csv::IntoInnerError::into_error)?],
            Self::Npy(npy, sink) => {
                let mut files = npy.finish()?;
                if let Some((mut sink, description)) = sink.zip(description) {
                    record::write(&mut sink, description)?;
                    files.push(sink);
                }
                files
            }
            Self::Safetensors(mut sink, mut tensors) => {
                if let Some(description) = description {
                    tensors.describe(Description::KEY, description.to_json());
                }
                tensors.write(&mut sink)?;
                vec![sink]
            }
            Self::Parquet(mut table) => {
                if let Some(description) = description {
                    table.describe(Description::KEY, description.to_json());
                }
                vec![table.finish()?]
            }
        })
    }
}

impl Writer {
    /// Creates a writer to `sink`, or to shards of `rows` rows. `sidecars` are the files beside an array.
    pub(super) fn new(
        format: Format,
        sink: Sink,
        sidecars: Vec<Sink>,
        (kind, description): (Kind, Option<Description>),
        rows: Option<NonZeroUsize>,
    ) -> Result<Self> {
        let path = sink.path().map(Path::to_owned);
        let (part, shards) = match rows.zip(path) {
            Some((rows, path)) => {
                let part = Part::shard(format, &shard_path(&path, 0), kind)?;
                let shards = Shards {
                    rows,
                    filled: 0,
                    complete: Vec::new(),
                    format,
                    path,
                    _sink: sink,
                };
                (part, Some(shards))
            }
            None => (Part::new(format, sink, sidecars, kind)?, None),
        };
        Ok(Self {
            part,
            kind,
            description,
            shards,
        })
    }

    /// Returns the destination of JSON, which has records instead of rows.
    pub(super) fn json(&mut self) -> Option<&mut Sink> {
        match &mut self.part {
            Part::Json(sink) => Some(sink),
            _ => None,
        }
    }

    /// Returns the arrays of the current row, if the format holds several.
    pub(super) fn tensors(&mut self) -> Option<&mut Tensors> {
        match &mut self.part {
            Part::Safetensors(_, tensors) => Some(tensors),
            _ => None,
        }
    }

    /// Writes the row of an image or a text. Not used for JSON.
    pub(super) fn row(&mut self, name: &str, embedding: &[f32]) -> Result<()> {
        if let Some(shards) = &mut self.shards {
            if shards.filled == shards.rows.get() {
                let path = shard_path(&shards.path, shards.complete.len() + 1);
                let next = Part::shard(shards.format, &path, self.kind)?;
                shards.complete.push(std::mem::replace(&mut self.part, next));
                shards.filled = 0;
            }
            shards.filled += 1;
        }
        self.part.row(name, embedding)
    }

    /// Writes what remains. Returns the files that are still to be finished. The times of the phases are the last line
    /// of JSON, or go to standard error.
    pub(super) fn finish(mut self, timed: Option<(&Timing, Option<Replays>)>) -> Result<Vec<Sink>> {
        if let Some((timing, hip_graphs)) = timed {
            if let Some(sink) = self.json() {
                record::write(sink, &json!({ "timing": timing, "hip_graphs": &hip_graphs }))?;
            } else {
                output::say(&timing.to_string());
                hip_graphs
                    .into_iter()
                    .for_each(|graphs| output::say(&graphs.to_string()));
            }
        }
        let Some(shards) = self.shards else {
            return self.part.finish(self.description.as_ref());
        };
        let mut parts = shards.complete;
        parts.push(self.part);
        let count = parts.len();
        let mut files = Vec::new();
        for (index, part) in parts.into_iter().enumerate() {
            if let Some(description) = &mut self.description {
                description.shard = Some((index, count));
            }
            files.extend(part.finish(self.description.as_ref())?);
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_numbered_before_the_extension() {
        assert_eq!(
            shard_path(Path::new("a/b.c.npy"), 12),
            Path::new("a/b.c-00012.npy")
        );
        assert_eq!(shard_path(Path::new("b"), 0), Path::new("b-00000"));
    }
}
